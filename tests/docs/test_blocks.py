"""Every code block of the README, the tutorials and the how-to pages runs, in order, and prints what is shown."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs import blocks
from tests.serving import ROOT, RunningServer, serving

PAGES = sorted([*(ROOT / "docs" / "how-to").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")])


# The first test of the module waits for the README's training too.
pytestmark = pytest.mark.timeout(900)
LOCKING = (
    "keys",
    "tenants",
)
"""Pages that make a key, after which every request needs one: they have a service of their own."""
DOWNLOADED = {"keystrokes": ("keystroke", "keystroke.csv")}
"""Files that a page's reader downloads, and where they are in the folder that `PAIRMARK_DATA` names."""


@contextmanager
def reader(place: Path) -> Iterator[tuple[RunningServer, Path]]:
    """A service on its default database, and an empty folder to follow a page in."""
    home, folder = place / "home", place / "folder"
    folder.mkdir(parents=True)
    with serving(home, f"sqlite:///{home / 'pairmark.db'}", process=True, job_thread=True) as server:
        yield server, folder


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Path]]:
    """A service and a folder in which somebody has followed the README: the how-to pages go on from there."""
    with reader(tmp_path_factory.mktemp("docs")) as (server, folder):
        follow(ROOT / "README.md", server, folder)
        yield server, folder


def follow(page: Path, server: RunningServer, folder: Path) -> None:
    """Run a page's blocks as its reader would; `pairmark` and `python` are this environment's."""
    if not (folder / "docs").exists():
        (folder / "docs").symlink_to(ROOT / "docs")
    known = {name: value for name, value in server.environment.items() if name != "PAIRMARK_DATABASE_URL"}
    commands = folder / ".bin"
    commands.mkdir(exist_ok=True)
    for name, words in (("pairmark", "-m pairmark.service.cli"), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (commands / name).chmod(0o755)
    blocks.run(page, folder, server.url, {**known, "PATH": f"{commands}:{known['PATH']}"})


def test_the_readme_does_what_it_shows(followed: tuple[RunningServer, Path]) -> None:
    server, _ = followed
    assert server.http.get("/models/people").json()["aliases"][0]["alias"] == "production"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in LOCKING], ids=lambda page: page.stem
)
def test_the_page_does_what_it_shows(followed: tuple[RunningServer, Path], page: Path) -> None:
    if page.stem in DOWNLOADED:
        path = Path(os.environ.get("PAIRMARK_DATA", ""), *DOWNLOADED[page.stem])
        if not path.is_file():
            pytest.skip(f"needs {'/'.join(DOWNLOADED[page.stem])} in PAIRMARK_DATA")
        shutil.copy(path, followed[1])
    if page.stem == "adapters":
        embed_what_stands_for_files(followed[1])
    follow(page, *followed)


def embed_what_stands_for_files(folder: Path) -> None:
    """Pictures, sounds and texts of 70 people, five each, and stand-ins for the models that embed them."""
    shutil.copytree(ROOT / "tests" / "docs" / "stubs", folder, dirs_exist_ok=True)
    lines = ["text,intent"]
    for person in range(70):
        for sample in range(5):
            for kind, suffix in (("faces", "jpg"), ("voices", "wav")):
                path = folder / kind / f"p{person}" / f"{sample}.{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            lines.append(f"i{person} wording {sample},i{person}")
    (folder / "questions.csv").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.nightly
@pytest.mark.parametrize("name", LOCKING)
def test_the_page_that_locks_the_service_does_what_it_shows(name: str, tmp_path: Path) -> None:
    with reader(tmp_path) as (server, folder):
        follow(ROOT / "docs" / "how-to" / f"{name}.md", server, folder)


def test_what_is_not_run_says_why() -> None:
    for page in (ROOT / "README.md", *PAGES):
        for found in blocks.FENCE.finditer(page.read_text()):
            if found["language"] in ("bash", "console", "python") and found["skip"]:
                assert len(found["reason"]) > 10, page
