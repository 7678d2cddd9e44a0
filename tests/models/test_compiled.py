"""Kernels without a writable cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pairmark.models.core.compiled import PORTABLE_CPU, SHIPPED, _runs_portable_code


def test_an_unwritable_cache_folder_is_no_error(tmp_path: Path) -> None:
    # A path below a file can be written by nobody, not even by root.
    (tmp_path / "file").write_text("")
    script = tmp_path / "probe.py"
    script.write_text(
        "from pairmark.models.core.compiled import kernel\n@kernel\ndef f(x):\n    return x + 1\nprint(f(1))\n"
    )
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path / "file" / "cache"),
        "PYTHONPATH": os.getcwd(),
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=environment,
    )
    assert done.stdout.strip() == "2"


@pytest.mark.nightly
@pytest.mark.skipif(not _runs_portable_code(), reason="shipped code is not for this CPU")
def test_shipped_machine_code_is_used_until_the_source_changes(tmp_path: Path) -> None:
    source = tmp_path / "entry.py"
    source.write_text(
        "from pairmark.models.core.compiled import kernel\n"
        "@kernel\ndef f(x):\n    return x + 1\n"
        "print(f(1), sum(f.stats.cache_hits.values()))\n"
    )

    def answer(folder: str, **cpu: str) -> list[str]:
        places = {"NUMBA_CACHE_DIR": str(tmp_path / folder), "PYTHONPATH": os.getcwd()}
        environment = {**os.environ, **places, "PYTHONDONTWRITEBYTECODE": "1", **cpu}
        command = [sys.executable, str(source)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True, env=environment
        ).stdout.split()

    assert answer("built", NUMBA_CPU_NAME=str(PORTABLE_CPU), NUMBA_CPU_FEATURES="") == ["2", "0"]
    (tmp_path / SHIPPED).mkdir()
    for made in (tmp_path / "built").rglob("*.nb[ic]"):
        made.rename(tmp_path / SHIPPED / made.name)
    # Installing gives files other times.
    os.utime(source, (1, 1))
    assert answer("fresh") == ["2", "1"]
    source.write_text(source.read_text().replace("x + 1", "x + 2"))
    assert answer("fresh") == ["3", "0"]


USES_TYPE = """
from layout import {name}
from pairmark.models.core.compiled import kernel

@kernel
def f(points):
    return points.x + 1

print(f({name}(41)), sum(f.stats.cache_hits.values()))
"""


@pytest.mark.nightly
def test_a_cache_of_an_earlier_release_whose_types_have_gone_is_replaced(tmp_path: Path) -> None:
    places = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.getcwd()}
    environment = {**os.environ, **places, "PYTHONDONTWRITEBYTECODE": "1"}

    def answer(name: str) -> list[str]:
        layout = f"from typing import NamedTuple\nclass {name}(NamedTuple):\n    x: int\n"
        (tmp_path / "layout.py").write_text(layout)
        (tmp_path / "entry.py").write_text(USES_TYPE.format(name=name))
        command = [sys.executable, str(tmp_path / "entry.py")]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True, env=environment
        ).stdout.split()

    assert [answer("Points"), answer("Points")] == [["42", "0"], ["42", "1"]]
    assert [answer("GhostPoints"), answer("GhostPoints")] == [["42", "0"], ["42", "1"]]
