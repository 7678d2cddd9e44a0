"""Writes a release's addresses into its metadata: ``python deploy/release_metadata.py https://FORGE/OWNER/NAME TAG``.

The forge is known where a release is built and nowhere else: a copy of the repository that releases under its own name
points at itself. Adds ``[project.urls]`` to ``pyproject.toml``, and makes the links of ``README.md`` absolute, since an
index shows it without the files beside it.
"""

import re
import sys
from pathlib import Path

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?!https?://|#|mailto:)[^)\s]+)\)")


def absolute_links(readme: str, repository: str, tag: str) -> str:
    """The text, its relative links below ``repository`` at ``tag``; pictures as files, pages as pages."""

    def link(relative: re.Match[str]) -> str:
        kind = "raw" if relative["image"] else "blob"
        address = f"{repository}/{kind}/{tag}/{relative['target']}"
        return f"{relative['image']}[{relative['text']}]({address})"

    return _LINK.sub(link, readme)


def project_urls(repository: str, tag: str) -> str:
    """The table of ``pyproject.toml``."""
    addresses = {
        "Documentation": f"{repository}/blob/{tag}/docs/index.md",
        "Source": repository,
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Security": f"{repository}/security/policy",
    }
    return "\n[project.urls]\n" + "".join(f'{name} = "{address}"\n' for name, address in addresses.items())


def main() -> None:
    """Change both files of the current folder."""
    repository, tag = sys.argv[1].rstrip("/"), sys.argv[2]
    project, readme = Path("pyproject.toml"), Path("README.md")
    text = project.read_text(encoding="utf-8")
    if "[project.urls]" in text:
        raise SystemExit("pyproject.toml has [project.urls] already")
    at = text.index("\n[project.optional-dependencies]")
    project.write_text(text[:at] + project_urls(repository, tag) + text[at:], encoding="utf-8")
    readme.write_text(absolute_links(readme.read_text(encoding="utf-8"), repository, tag), encoding="utf-8")


if __name__ == "__main__":
    main()
