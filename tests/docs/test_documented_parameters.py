"""Parameters that docstrings describe are parameters of the function, or fields of the class, that they stand in."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^Parameters\n-+\n", re.MULTILINE)
NEXT_SECTION = re.compile(r"^\w[\w ]*\n-+$", re.MULTILINE)
# Short entries may share a line: `n : of rows. k : of columns.`
ENTRY = re.compile(r"(?:^|\. )(\*{0,2}\w+(?:, \*{0,2}\w+)*) :", re.MULTILINE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def documented(docstring: str) -> list[str]:
    """Parameters that the section names."""
    text = inspect.cleandoc(docstring)
    names: list[str] = []
    for start in SECTION.finditer(text):
        body = text[start.end() :]
        end = NEXT_SECTION.search(body)
        entries = ENTRY.findall(body if end is None else body[: end.start()])
        names += [name.lstrip("*") for entry in entries for name in entry.split(", ")]
    return names


def parameters(function: Function) -> set[str]:
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return {argument.arg for argument in [*plain, arguments.vararg, arguments.kwarg] if argument is not None}


def constructor(node: ast.ClassDef) -> set[str] | None:
    """What makes an object of the class: parameters of its constructor, or its fields; None where bases say it."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name in ("__init__", "__new__"):
            return parameters(item)
    if node.bases and ast.unparse(node.bases[0]) not in ("NamedTuple", "Protocol"):
        return None
    return {ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)}


def wrong_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(function or class, name) of whatever is described and is not there."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = documented(ast.get_docstring(node) or "")
        if not isinstance(node, ast.ClassDef) and node.args.kwarg is not None:
            # Its options have names of their own.
            continue
        present = constructor(node) if isinstance(node, ast.ClassDef) else parameters(node)
        if present is not None:
            yield from ((node.name, name) for name in names if name not in present)


def test_documented_parameters_are_parameters() -> None:
    wrong = [
        (str(path.relative_to(ROOT)), *name)
        for path in sorted((ROOT / "pairmark").rglob("*.py"))
        for name in wrong_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert wrong == []


def test_a_parameter_that_was_renamed_is_seen() -> None:
    source = (
        "class Spread:\n"
        '    """Of rates.\n\n    Parameters\n    ----------\n    rate, gone : of matches.\n        more : text. '
        "away : of none.\n\n"
        '    Returns\n    -------\n    n : rows.\n    """\n\n'
        "    def __init__(self, rate: float) -> None: ...\n"
    )
    assert list(wrong_names(ast.parse(source))) == [("Spread", "gone"), ("Spread", "away")]
