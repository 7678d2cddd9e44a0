"""Tables of the docs, made from result files: ``python -m benchmarks.tables`` writes them, ``--check`` compares.

``--stale`` lists the result files whose code changed since the commit that was run: what to measure again.

A table stands in a Markdown page between two comments. The first says from which result file it is made and what of it
is shown, one column a line::

    <!-- results: keystroke
    contestant
    EER : .3f
    FNMR at FMR 1e-2 : .3f = FNMR at 1e-2
    -->
    <!-- end of results -->

A column is followed by a format (Python's) and a title where they differ from the plain ones. ``where COLUMN = VALUE``
keeps some rows, ``highest N by COLUMN`` the N rows with the greatest values, ``across COLUMN show OTHER : FORMAT`` lays
a column's values out side by side, ``claims`` counts those that hold, ``claims all`` shows every claim. A block may
ask for rows and for claims below them. The line below a table says which commit and preset it is from.

Between ``<!-- misses -->`` and its end stand all claims that do not hold.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.common import ROOT, laid_out

RESULTS = (ROOT / "benchmarks" / "results", ROOT / "experiments" / "results")
BLOCK = re.compile(
    r"<!-- results: (?P<name>\w+)\n(?P<spec>.*?)-->\n(?P<body>.*?)<!-- end of results -->", re.DOTALL
)

MISSES = re.compile(r"<!-- misses -->\n.*?<!-- end of misses -->", re.DOTALL)


@dataclass(frozen=True)
class Column:
    """A column of the result file, how its numbers are written, and what the docs call it."""

    name: str
    form: str
    title: str

    @classmethod
    def parse(cls, line: str) -> "Column":
        """``NAME [: FORMAT] [= TITLE]``."""
        name, _, title = line.partition(" = ")
        name, _, form = name.partition(" : ")
        return cls(name.strip(), form.strip(), title.strip() or name.strip())

    def cell(self, row: Mapping[str, Any]) -> str:
        """What stands in a row."""
        if self.name not in row:
            raise ValueError(f"no column {self.name!r}; there are: {', '.join(row)}")
        return written(row[self.name], self.form)


@dataclass
class Table:
    """What a block asks for."""

    columns: list[Column] = field(default_factory=list)
    where: list[tuple[str, str]] = field(default_factory=list)
    highest: tuple[int, str] | None = None
    across: tuple[str, Column] | None = None
    claims: Literal["", "count", "all"] = ""

    @classmethod
    def parse(cls, spec: str) -> "Table":
        """Read the lines of a block's first comment."""
        asked = cls()
        for line in filter(None, map(str.strip, spec.splitlines())):
            if line in ("claims", "claims all"):
                asked.claims = "all" if line.endswith("all") else "count"
            elif line.startswith("highest "):
                count, _, name = line.removeprefix("highest ").partition(" by ")
                asked.highest = int(count), name.strip()
            elif line.startswith("where "):
                name, _, value = line.removeprefix("where ").partition(" = ")
                asked.where.append((name.strip(), value.strip()))
            elif line.startswith("across "):
                name, _, shown = line.removeprefix("across ").partition(" show ")
                asked.across = name.strip(), Column.parse(shown)
            else:
                asked.columns.append(Column.parse(line))
        return asked

    def render(self, result: Mapping[str, Any]) -> str:
        """The Markdown of the block."""
        parts = [self._rows(result)] if self.columns else []
        if self.claims == "count":
            claims = result["claims"]
            parts.append(f"{sum(claim['holds'] for claim in claims)} of {len(claims)} claims hold.")
        if self.claims == "all":
            parts.append(self._claims(result["claims"]))
        return "\n\n".join(parts)

    def _rows(self, result: Mapping[str, Any]) -> str:
        rows = [
            row for row in result["rows"] if all(str(row.get(name)) == value for name, value in self.where)
        ]
        if not rows:
            raise ValueError(f"no rows where {self.where}")
        if self.highest is not None:
            count, name = self.highest
            rows = sorted(rows, key=lambda row: -row[name])[:count]
        if self.across is None:
            titles = [column.title for column in self.columns]
            return laid_out(titles, [[column.cell(row) for column in self.columns] for row in rows])
        name, shown = self.across
        beside = list(dict.fromkeys(str(row[name]) for row in rows))
        cells: dict[tuple[str, ...], dict[str, str]] = {}
        for row in rows:
            key = tuple(column.cell(row) for column in self.columns)
            cells.setdefault(key, {})[str(row[name])] = shown.cell(row)
        lines = [[*key, *(found.get(value, "") for value in beside)] for key, found in cells.items()]
        return laid_out([*(column.title for column in self.columns), *beside], lines)

    def _claims(self, claims: Sequence[Mapping[str, Any]]) -> str:
        lines = [
            [
                *(written(claim[name], "") for name in ("what", "goal", "measured")),
                "yes" if claim["holds"] else "**no**",
            ]
            for claim in claims
        ]
        return laid_out(["claim", "goal", "measured", "holds"], lines)


def written(value: Any, form: str) -> str:
    """A value as the docs write it; four digits where no format is given."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return re.sub(r"(?<=\d)%", " %", str(value)).replace("|", "\\|")
    if form:
        return format(value, form).replace("%", " %")
    return (
        format(value, ",")
        if isinstance(value, int)
        else f"{value:,.0f}"
        if abs(value) >= 1e4
        else f"{value:.4g}"
    )


def plain(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table, as they are."""
    columns = list(rows[0])
    return laid_out(columns, [[written(row.get(column), "") for column in columns] for row in rows])


def read(name: str) -> dict[str, Any]:
    """The kept result of a benchmark or an experiment."""
    for folder in RESULTS:
        path = folder / f"{name}.json"
        if path.exists():
            return json.loads(path.read_text())
    raise ValueError(f"there is no results/{name}.json")


def origin(result: Mapping[str, Any]) -> str:
    """Where a table is from, in words."""
    revision = result.get("commit")
    # Some files are made set by set, and rows say what they were measured at.
    commits = {str(row.get("commit", "")) for row in result["rows"]}
    earlier = {commit for commit in commits if re.fullmatch("[0-9a-f]{40}", commit)} - {revision}
    made = (
        f"commit {revision[:10]}{', with changes' if result.get('dirty') else ''}"
        + "".join(f"; some sets at {other[:10]}" for other in sorted(earlier))
        if revision
        else "commit not kept"
    )
    return f"`{result['benchmark']}`, {result['preset']} preset, {made}."


def rendered(text: str, page: str) -> str:
    """A page with its tables made anew."""

    def block(found: re.Match[str]) -> str:
        try:
            result = read(found["name"])
            table = Table.parse(found["spec"]).render(result)
        except (ValueError, KeyError) as error:
            raise SystemExit(f"{page}: table of {found['name']}: {error}") from error
        head = f"<!-- results: {found['name']}\n{found['spec']}-->"
        return f"{head}\n\n{table}\n\n{origin(result)}\n\n<!-- end of results -->"

    return MISSES.sub(
        lambda _: f"<!-- misses -->\n\n{misses()}\n\n<!-- end of misses -->", BLOCK.sub(block, text)
    )


def misses() -> str:
    """A table of the claims that do not hold."""
    results = [
        (file.stem, json.loads(file.read_text()))
        for folder in RESULTS
        for file in sorted(folder.glob("*.json"))
    ]
    lines = [
        [
            f"`{name}`",
            *(written(claim[key], "") for key in ("what", "goal", "measured")),
            result["commit"][:8],
        ]
        for name, result in results
        for claim in result.get("claims", ())
        if not claim["holds"]
    ]
    return laid_out(["of", "claim", "goal", "measured", "commit"], lines)


CODE = {
    "coverage": ("pairmark/models/calibration", "pairmark/models/pairs"),
    "label_ranking": ("pairmark/models/label_ranking",),
    **dict.fromkeys(("records", "record_peers"), ("pairmark/models/records",)),
    **dict.fromkeys(
        ("defaults", "gallery_search", "default_search", "rates", "fit_peers"), ("pairmark/models",)
    ),
}
"""Folders that a benchmark measures; all of the package where none are named."""


def stale() -> list[str]:
    """A line for each result file that is older than what it measures."""
    lines = []
    for file in sorted(
        file for folder in RESULTS for file in folder.glob("*.json") if ".part" not in file.name
    ):
        commit = json.loads(file.read_text(encoding="utf-8"))["commit"]
        script = file.parents[1] / f"{file.stem}.py"
        command = ["git", "diff", "--name-only", commit, "--", script, *CODE.get(file.stem, ("pairmark",))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            lines.append(f"{file.stem}: commit {commit[:10]} is not in this clone")
        elif done.stdout:
            lines.append(f"{file.stem}: {len(done.stdout.splitlines())} files changed since {commit[:10]}")
    return lines


def pages() -> list[Path]:
    """README and the docs, without what was built of them before."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(page for page in docs if "_build" not in page.parts)]


def main() -> int:
    """Write or compare the tables of all pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 where a table is not up to date"
    )
    parser.add_argument(
        "--stale", action="store_true", help="list the result files that are older than their code"
    )
    options = parser.parse_args()
    if options.stale:
        print("\n".join(stale()))
        return 0
    outdated = []
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = rendered(before, str(page.relative_to(ROOT)))
        if after != before:
            outdated.append(str(page.relative_to(ROOT)))
            if not options.check:
                page.write_text(after, encoding="utf-8")
    if outdated and options.check:
        print(
            f"tables differ from result files: {', '.join(outdated)}. Run python -m benchmarks.tables",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
