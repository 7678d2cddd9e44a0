"""What a file of points must look like, whichever command reads it."""

from __future__ import annotations

from pathlib import Path

from pairmark.service.cli.points import read_points


def test_a_file_gives_names_and_points_whatever_wrote_it(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_bytes(b'\xef\xbb\xbf"width, cm",length\r\n1,2.5\r\n\r\n-3e2,4\r\n')
    assert read_points(file) == (["width, cm", "length"], [[1.0, 2.5], [-300.0, 4.0]])
