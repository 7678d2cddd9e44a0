"""The wheel holds everything: migrations, pages, commands. Installed, it works from any folder."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def copy_of_the_sources(folder: Path) -> Path:
    """What a build reads, without the checkout's caches."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("pairmark", "deploy/client"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder


def built(source: Path, into: Path) -> Path:
    """The wheel of a project."""
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", build, str(into)],
        cwd=source,
        env={**os.environ, "PAIRMARK_COMMIT": COMMIT},
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = into.glob("*.whl")
    return wheel


def environment_with(wheel: Path, at: Path, pip: Path | None = None) -> Path:
    """The ``bin`` folder of an environment that holds the wheel and, behind a path, this one's dependencies.

    ``pip`` is the ``bin`` folder of another environment whose pip is to be used.
    """
    venv.create(at, with_pip=pip is None)
    target = ["--python", str(at / "bin" / "python")]
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([(pip or at / "bin") / "python", "-m", "pip", *target, *install], check=True, timeout=120)
    (site,) = (at / "lib").glob("python*/site-packages")
    # A path in a .pth file does not bring the checkout with it.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return at / "bin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment in which the built wheel is installed."""
    work = tmp_path_factory.mktemp("wheel")
    (work / "source").mkdir()
    place = environment_with(built(copy_of_the_sources(work / "source"), work), work / "env")
    (site,) = (place.parent / "lib").glob("python*/site-packages")
    # Equal sources take the checkout's machine code: a service that starts would compile for half a minute.
    for code in (ROOT / "pairmark").rglob("*.nb[ic]"):
        copy = site / code.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy2(code, copy)
    return place


def test_it_is_the_wheel_that_runs(installed: Path, tmp_path: Path) -> None:
    code = "from pairmark import service as s, migrations as g, models as m; print(s.__file__, g.__file__, m.__file__)"
    said = subprocess.run(
        [installed / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert str(ROOT) not in said.stdout
    assert said.stdout.count(str(installed.parent)) == 3


def python(installed: Path, folder: Path, code: str) -> str:
    """What a program prints that a person runs in their own folder."""
    done = subprocess.run(
        [installed / "python", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_wheel_adds_one_import_name(installed: Path) -> None:
    (site,) = (installed.parent / "lib").glob("python*/site-packages")
    (record,) = site.glob("pairmark-*.dist-info/RECORD")
    tops = {line.split(",")[0].split("/")[0] for line in record.read_text().splitlines()}
    assert {top for top in tops if not top.endswith(".dist-info")} - {".."} == {"pairmark"}
    assert (site / "pairmark" / "py.typed").exists()
    assert list(site.glob("pairmark-*.dist-info/licenses/LICENSE"))


@pytest.fixture(scope="module")
def light(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `installed`, with the distribution of the clients alone."""
    work = tmp_path_factory.mktemp("light")
    (work / "source").mkdir()
    wheel = built(copy_of_the_sources(work / "source") / "deploy" / "client", work)
    return environment_with(wheel, work / "env", pip=installed)


def test_the_light_distribution_holds_the_same_client_and_no_more(light: Path, tmp_path: Path) -> None:
    (site,) = (light.parent / "lib").glob("python*/site-packages")
    (record,) = site.glob("pairmark_client-*.dist-info/RECORD")
    files = [line.split(",")[0] for line in record.read_text().splitlines()]
    own = {name for name in files if name.startswith("pairmark/") and "__pycache__" not in name}
    client = {
        f"pairmark/{folder}/{file.name}"
        for folder in ("client", "schemas")
        for file in (ROOT / "pairmark" / folder).glob("*.py")
    }
    top = {f"pairmark/{name}" for name in ("__init__.py", "version.py", "py.typed", "commit.txt")}
    assert own == client | top
    assert python(light, tmp_path, "import pairmark.client as c; print(c.__file__)").startswith(str(site))
    answer = python(
        light,
        tmp_path,
        "import pairmark\ntry: pairmark.SimilarityForest\nexcept ImportError as error: print(error)",
    )
    assert "pip install pairmark" in answer


def test_the_light_distribution_needs_two_packages_and_little_room(light: Path) -> None:
    (site,) = (light.parent / "lib").glob("python*/site-packages")
    (metadata,) = site.glob("pairmark_client-*.dist-info/METADATA")
    needs = re.findall(r"^Requires-Dist: ([A-Za-z0-9-]+)", metadata.read_text(), re.MULTILINE)
    assert sorted(needs) == ["httpx", "pydantic"]
    seen: set[str] = set()
    waiting = needs
    while waiting:
        name = waiting.pop().lower()
        if name in seen:
            continue
        seen.add(name)
        required = map(Requirement, importlib.metadata.distribution(name).requires or [])
        waiting += [one.name for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    files = {
        Path(str(distribution.locate_file(file)))
        for distribution in map(importlib.metadata.distribution, seen)
        for file in distribution.files or []
    }
    own = sum(file.stat().st_size for file in (site / "pairmark").rglob("*") if file.is_file())
    downloaded = (file for file in files if file.exists() and file.suffix != ".pyc")
    assert own + sum(file.stat().st_size for file in downloaded) < 60e6, seen
