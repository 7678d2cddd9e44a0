"""The wheel holds everything: migrations, pages, commands. Installed, it works from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment in which the built wheel is installed."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    for name in ("pairmark", "models", "service", "migrations"):
        shutil.copytree(
            ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    build = "from setuptools import build_meta; print(build_meta.build_wheel('../dist'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True, timeout=120)
    (wheel,) = (work / "dist").glob("*.whl")
    venv.create(work / "env", with_pip=True)
    binaries = work / "env" / "bin"
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([binaries / "python", "-m", "pip", *install], check=True, timeout=120)
    # The dependencies are those of this environment; a path in a .pth file does not bring the checkout with it.
    (site,) = (work / "env" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return binaries


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a folder far from the checkout."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PAIRMARK_", "PYTHON"))
    }
    return subprocess.run(
        [installed / "pairmark", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_is_the_wheel_that_runs(installed: Path, tmp_path: Path) -> None:
    code = "from pairmark import service as s, migrations as g, models as m; print(s.__file__, g.__file__, m.__file__)"
    said = subprocess.run(
        [installed / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert str(ROOT) not in said.stdout
    assert said.stdout.count(str(installed.parent)) == 3


def test_help_names_every_command(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "--help")
    assert done.returncode == 0
    for command in (
        "serve",
        "worker",
        "train",
        "evaluate",
        "plan",
        "datasets",
        "models",
        "keys",
        "db",
        "warmup",
    ):
        assert command in done.stdout
    assert run(installed, tmp_path, "--version").stdout.startswith("pairmark ")


def test_migrations_are_inside(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "db", "upgrade")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "var" / "pairmark.db").exists()
    assert run(installed, tmp_path, "keys", "list", "--json").stdout.split() == ["{", '"items":', "[]", "}"]


def test_pages_and_pictures_are_inside(installed: Path) -> None:
    (site,) = (installed.parent / "lib").glob("python*/site-packages")
    for file in ("templates/overview.html", "static/console.css", "static/console.js", "static/icon.svg"):
        assert (site / "pairmark" / "service" / "console" / file).exists(), file
    assert (site / "pairmark" / "migrations" / "versions" / "0001_the_first_tables.py").exists()
