"""The Python reference: an index, a page for each public name of `pairmark`, and the pages of its client."""

import inspect
import re
import textwrap
from typing import Any

import pairmark
import pairmark.client
from docs.markdown import block, documented, escaped, prose, table
from pairmark.models.registry import learner_specs

GROUPS = {
    "Similarity learners": (
        "SimilarityAuto",
        "Plda",
        "MetricSimilarity",
        "SimilarityClasses",
        "SimilarityLogistic",
        "SimilarityForest",
        "SimilarityTree",
        "RankBoostKernel",
        "AlignedKernel",
        "Ghost",
        "RSBL",
        "RecordSimilarity",
        "FellegiSunter",
    ),
    "Label rankers": (
        "LabelRankingAuto",
        "LabelRankingForest",
        "LabelRankingTree",
        "PairwiseLabelRanker",
    ),
    "Operating points": (
        "operating_point",
        "OperatingPoint",
        "InsufficientCalibrationData",
    ),
    "Statistics": ("roc_curve_pairs", "kendall_tau"),
    "Saving and loading": ("save", "load", "from_pipeline"),
}
KINDS = {spec.estimator.__name__: spec.kind for spec in learner_specs()}
CLIENT = "python/Client"
ANSWERS = "python/client-answers"
ERRORS = "python/client-errors"


def pages() -> dict[str, str]:
    """Text of every page, by its path below the reference without the ending."""
    names = [name for group in GROUPS.values() for name in group]
    texts = {
        "python": _index(),
        **{f"python/{name}": _page(name) for name in names},
        CLIENT: _client(),
        ANSWERS: _answers(),
        ERRORS: _errors(),
    }
    return {path: "\n".join(lines) + "\n" for path, lines in texts.items()}


def _index() -> list[str]:
    lines = [
        "# Python",
        "",
        "`from pairmark import ...` gives scikit-learn estimators and the statistics. `from pairmark.client import "
        "Client` talks to a running service.",
    ]
    for title, names in GROUPS.items():
        rows = [(f"[`{name}`](python/{name}.md)", _meaning(getattr(pairmark, name))) for name in names]
        lines += ["", f"## {title}", "", *table(("name", "meaning"), rows)]
    rows = [
        (f"[`Client`]({CLIENT}.md), `AsyncClient`", "Calls of a running service, plain or to be awaited."),
        (f"[Answers]({ANSWERS}.md)", "The records that calls return."),
        (f"[Errors]({ERRORS}.md)", "What calls raise."),
    ]
    lines += ["", "## Client", "", *table(("name", "meaning"), rows), "", "```{toctree}", ":hidden:", ""]
    lines += [f"python/{name}" for names in GROUPS.values() for name in names]
    return [*lines, CLIENT, ANSWERS, ERRORS, "```"]


def _meaning(public: Any) -> str:
    """The first sentence of its docstring."""
    paragraph = " ".join((inspect.getdoc(public) or "").split("\n\n")[0].split())
    return escaped(re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0])


def _page(name: str) -> list[str]:
    public = getattr(pairmark, name)
    lines = [f"# {name}", *block(f"from pairmark import {name}", "python"), *documented(name, public)]
    if name in KINDS:
        link = f"[`{KINDS[name]}`](../learners.md#{KINDS[name]})"
        lines += ["", f"Every parameter with its default and meaning: {link}."]
    return [*lines, *_methods(public)]


def _methods(public: Any) -> list[str]:
    """The methods that Pairmark defines."""
    lines: list[str] = []
    for method in sorted(dir(public)) if inspect.isclass(public) else ():
        member = inspect.getattr_static(public, method)
        function = getattr(member, "__func__", member)
        ours = str(getattr(function, "__module__", "")).startswith("pairmark.")
        if ours and callable(function) and not method.startswith("_"):
            lines += ["", f"## {method}", *documented(method, function)]
    return lines


def _client() -> list[str]:
    client = pairmark.client
    return [
        "# Client",
        *block("from pairmark.client import AsyncClient, Client", "python"),
        *documented("Client", client.Client),
        "",
        "Calls return [records](client-answers.md) and raise [errors of one tree](client-errors.md).",
        *block(_session(), "python"),
        *_methods(client.Client),
        "",
        "## AsyncClient",
        *documented("AsyncClient", client.AsyncClient),
    ]


def _session() -> str:
    """What the client's own documentation shows first."""
    paragraphs = (inspect.getdoc(pairmark.client) or "").split("\n\n")
    return next(text for text in paragraphs if text.startswith(">>>"))


def _answers() -> list[str]:
    lines = ["# Answers of the client", "", "What the calls of [`Client`](Client.md) return."]
    lines += ["", "## Answer", *documented("Answer", pairmark.client.Answer)]
    clients = (pairmark.client.Client, pairmark.client.AsyncClient, pairmark.client.Answer)
    for name in sorted(pairmark.client.__all__):
        public = getattr(pairmark.client, name)
        if public not in clients and not issubclass(public, Exception):
            lines += ["", f"## {name}", *documented(name, public)]
    return lines


def _errors() -> list[str]:
    tree = (inspect.getdoc(pairmark.client) or "").rpartition("::\n")[2]
    lines = ["# Errors of the client", "", "What the calls of [`Client`](Client.md) raise."]
    lines += block(textwrap.dedent(tree.strip("\n")), "text")
    for name in sorted(pairmark.client.__all__):
        public = getattr(pairmark.client, name)
        if issubclass(public, Exception):
            base = public.__bases__[0].__name__
            lines += ["", f"## {name}", *block(f"class {name}({base})", "python")]
            lines += prose(inspect.getdoc(public) or "")
    return lines
