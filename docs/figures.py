"""Writes the README's figures from the result files of the benchmarks: ``python -m docs.figures``."""

import re
from pathlib import Path
from typing import Any

from benchmarks.tables import read

README = Path(__file__).parents[1] / "README.md"
PLACE = re.compile(r"(?<=from benchmarks/results -->\n).*?(?=<!-- /figures -->)", re.DOTALL)


def main() -> None:
    """Rewrite the README."""
    text = README.read_text(encoding="utf-8")
    README.write_text(PLACE.sub(lambda _: figures(), text), encoding="utf-8")


def figures() -> str:
    """The lines, as they stand in the README."""
    made = [_guarantee(), _keystrokes(), _strangers(), _links(), _request(), _gallery()]
    text = "".join(f"{number}. {line}\n" for number, line in enumerate(made, 1))
    return re.sub(r"(?<=\d)%", "\u00a0%", text)


def _result(name: str, set: str | None = None) -> tuple[dict[str, Any], str]:
    """A result file, and where its figures come from in words: of one ``set``, where each has a commit."""
    found = read(name)
    measured = next((row for row in found["rows"] if set is not None and row["set"] == set), found)
    return found, f"(`{name}`, {measured['commit'][:7]})"


def _guarantee() -> str:
    found, source = _result("coverage")
    rows = [row for row in found["rows"] if row["kind"] in ("threshold", "search")]
    kept = [row for row in rows if row["method"] in ("auto", "finite-sample") and row["confidence"] == 0.95]
    worst = max(kept, key=lambda row: row["failed"])
    naive = max(row["failed"] for row in rows if row["method"] == "naive")
    n_worlds = len({row["scenario"] for row in kept})
    calibrations = [row["calibrations"] for row in kept]
    verdict = (
        "within chance of that" if worst["failed"] < 0.05 + 2 * worst["error"] else "more than chance allows"
    )
    return (
        f"**The guarantee holds.** We simulated {n_worlds} settings, with {min(calibrations):,} to "
        f"{max(calibrations):,} calibrations each. At 95 % confidence at most 5 % of calibrations may give a threshold "
        f"whose true FPR is too high. In the worst setting {worst['failed']:.1%} of the simulated ones did, {verdict}. "
        f"With a plain percentile of the scores, up to {naive:.1%} did {source}."
    )


def _keystrokes() -> str:
    found, source = _result("defaults", "keystroke")
    rates = {row["contestant"]: row["TPR at 0.01"] for row in found["rows"] if row["set"] == "keystroke"}
    return (
        f"**The default learner on typing rhythms.** At an FPR of 1 %, `similarity-auto` recognizes "
        f"{rates['pairmark similarity-auto']:.1%} of pairs of the same person, XGBoost on pairs "
        f"{rates['XGBoost on pairs']:.1%} {source}."
    )


def _strangers() -> str:
    found, source = _result("defaults", "digits never met")
    rates = {
        row["contestant"]: row["TPR at 0.01"] for row in found["rows"] if row["set"] == "digits never met"
    }
    return (
        f"**Where learning gains little.** Trained on five digits and tested on pairs of the other five, "
        f"`similarity-auto` recognizes {rates['pairmark similarity-auto']:.1%} of pairs of the same digit at an FPR of "
        f"1 %, plain cosine, which learns nothing, {rates['pairmark cosine']:.1%}, and our similarity forest "
        f"{rates['pairmark forest']:.1%} {source}."
    )


def _links() -> str:
    found, source = _result("links")
    rows = [row for row in found["rows"] if row["linker"] == "pairmark"]
    large = max(
        (row for row in rows if row["records"].startswith("families")),
        key=lambda row: int(row["records"].split(", ")[1].replace(",", "")),
    )
    return (
        f"**A table's duplicates without labels.** {large['records'].split(', ')[1]} made-up people with households "
        f"are linked by one command in {large['CPU s']:.0f} s of CPU and {large['MB']:,} MB, with an F1 of "
        f"{large['F1']:.3f}; the worst of {len(rows)} sets has {min(row['F1'] for row in rows):.3f} {source}."
    )


def _request() -> str:
    found, source = _result("http_peers")
    ms = {
        row["server"]: float(row["CPU us a request"]) / 1000
        for row in found["rows"]
        if row["request"] == "one pair"
    }
    return (
        f"**One pair over HTTP** costs {ms['pairmark']:.2f} ms of CPU: the cosine of two vectors of 128 numbers as "
        f"JSON. A route without key and rate takes {ms['FastAPI + numpy, async def']:.2f} ms in FastAPI with "
        f"pydantic, and {ms['Starlette + orjson + numpy']:.2f} ms in Starlette with orjson {source}."
    )


def _gallery() -> str:
    found, source = _result("default_search")
    most = max(row["items"] for row in found["rows"])
    rows = {row["search"]: row for row in found["rows"] if row["items"] == most}
    plda, trees = rows["plda"], rows["plda + 50 trees"]
    return (
        f"**Exact search of {most:,} vectors** of {found['facts']['features']} numbers with a trained PLDA takes "
        f"{plda['CPU ms a query']:.0f} ms of CPU for the ten nearest, {plda['over FAISS flat']:.2f} times what FAISS "
        f"flat takes; where training chose PLDA with 50 trees, {trees['over FAISS flat']:.2f} times {source}."
    )


if __name__ == "__main__":
    main()
