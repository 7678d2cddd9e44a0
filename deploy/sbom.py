"""The bill of materials of an image or installation: ``python deploy/sbom.py [FILE]``, CycloneDX 1.5 in JSON.

It names what requirements/runtime.txt locks, with the hashes of the files that may be installed, and the licences that
the packages of this environment state. No dependency; the same input gives the same bytes.
"""

import json
import re
import runpy
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_LOCKED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(locked: str) -> list[dict[str, Any]]:
    """The packages of a locked requirements file."""
    found: list[dict[str, Any]] = []
    for line in locked.splitlines():
        if package := _LOCKED.match(line):
            name, version = package["name"].lower(), package["version"]
            purl = f"pkg:pypi/{name}@{version}"
            one: dict[str, Any] = {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
            }
            if licence := _licence(name, version):
                one["licenses"] = [licence]
            found.append(one)
        for digest in _HASH.findall(line):
            # One package has a file for each platform; a reference holds the hashes of each.
            found[-1].setdefault("externalReferences", []).append(
                {
                    "type": "distribution",
                    "url": f"https://pypi.org/project/{found[-1]['name']}/{found[-1]['version']}/",
                    "hashes": [{"alg": "SHA-256", "content": digest}],
                }
            )
    return found


def bill() -> dict[str, Any]:
    """The whole document."""
    version = runpy.run_path(str(ROOT / "pairmark" / "version.py"))["VERSION"]
    own = {"type": "application", "bom-ref": "pairmark", "name": "pairmark", "version": version,
           "licenses": [{"expression": "Apache-2.0"}], "purl": f"pkg:pypi/pairmark@{version}"}  # fmt: skip
    parts = components((ROOT / "requirements" / "runtime.txt").read_text(encoding="ascii"))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own},
        "components": parts,
        "dependencies": [{"ref": "pairmark", "dependsOn": [one["bom-ref"] for one in parts]}],
    }


def _licence(name: str, version: str) -> dict[str, Any] | None:
    """What the installed package of that version says."""
    try:
        facts = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if facts["Version"] != version:
        return None
    if expression := facts.get("License-Expression"):
        return {"expression": expression}
    said = [
        one.rpartition(" :: ")[2] for one in facts.get_all("Classifier") or [] if one.startswith("License ::")
    ]
    said += (facts.get("License") or "").strip().splitlines()
    return {"license": {"name": said[0][:100]}} if said else None


if __name__ == "__main__":
    told = json.dumps(bill(), indent=1) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(told, encoding="utf-8")
    else:
        sys.stdout.write(told)
