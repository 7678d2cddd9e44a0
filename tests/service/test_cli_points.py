"""What a file of points must look like, whichever command reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from pairmark.service.cli.points import numbers, read_points, require_one_input, split_words


def test_a_file_gives_names_and_points_whatever_wrote_it(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_bytes(b'\xef\xbb\xbf"width, cm",length\r\n1,2.5\r\n\r\n-3e2,4\r\n')
    assert read_points(file) == (["width, cm", "length"], [[1.0, 2.5], [-300.0, 4.0]])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a line of names and a line for each point"),
        ("a,b\n", "a line of names and a line for each point"),
        ("a,b\n1,2\n3\n", "row 2 has not as many fields"),
        ("a,b\n1,2,3\n", "row 1 has not as many fields"),
        ("a,b\n1,many\n", "row 1, column 'b': 'many' is not a number; leave out columns"),
        ("a,b,a\n1,2,3\n", "'a' more than once"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "points.csv"
    file.write_text(text)
    with pytest.raises(typer.BadParameter, match=said):
        read_points(file)


def test_a_point_or_a_file_is_given_and_not_both(tmp_path: Path) -> None:
    require_one_input(["1,2"], None)
    require_one_input(None, tmp_path)
    for features, file in ((None, None), ([], None), (["1"], tmp_path)):
        with pytest.raises(typer.BadParameter, match="either"):
            require_one_input(features, file)
    assert numbers(split_words(["1,2", "3"]), "features") == [1.0, 2.0, 3.0]
