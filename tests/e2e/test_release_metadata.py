"""What a release's index page shows: addresses of the forge that built it, and no link that leads nowhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from tests.serving import ROOT

REPOSITORY = "https://forge.example/team/pairmark"


def released(folder: Path) -> subprocess.CompletedProcess[str]:
    script = ROOT / "deploy" / "release_metadata.py"
    return subprocess.run(
        [sys.executable, script, REPOSITORY, "v1.2.3"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_addresses_are_those_of_the_repository_that_releases(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    assert released(tmp_path).returncode == 0
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert project["project"]["urls"]["Source"] == REPOSITORY
    assert set(project["project"]["optional-dependencies"]) == {"s3", "dask", "oidc"}
    readme = (tmp_path / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    assert f"]({REPOSITORY}/raw/v1.2.3/docs/pictures/decision.svg)" in readme
    assert f"]({REPOSITORY}/blob/v1.2.3/docs/tutorials/embeddings.md)" in readme
    assert released(tmp_path).returncode != 0  # a second time would write the table twice


def test_what_is_published_was_checked_and_installed_and_the_image_is_signed_by_digest() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    commands = {name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    assert "twine check --strict dist/*.whl dist/*.tar.gz" in commands["wheels"]
    assert jobs["publish"]["needs"] == "installed"
    assert "cosign sign --yes" in commands["image"]
    assert "steps.push.outputs.digest" in commands["image"]
