"""Markdown of the generated pages: tables, blocks of code, and docstrings."""

import inspect
import re
from collections.abc import Iterable
from typing import Any


def documented(name: str, public: Any) -> list[str]:
    """The signature of a class or function, under this name, and its docstring."""
    signature = str(inspect.signature(public)) if callable(public) else ""
    # Annotations are strings, and a method's reader never passes itself.
    signature = re.sub(r"(: |-> )(['\"])(.*?)\2(?=[,)\s]|$)", r"\1\3", signature)
    signature = re.sub(r"^\((self|cls)(, )?", "(", signature)
    if inspect.isclass(public):
        signature = signature.removesuffix(" -> None")
    return [*block(_wrapped(f"{name}{signature}"), "python"), *prose(inspect.getdoc(public) or "")]


def prose(text: str) -> list[str]:
    """A numpydoc docstring as Markdown: paragraphs, lists of what sections name, and code."""
    lines: list[str] = []
    section = ""
    for part in re.split(r"\n\n+", text):
        rows = part.splitlines()
        while len(rows) > 1 and set(rows[1]) == {"-"}:
            section, rows = rows[0], rows[2:]
            lines += ["", f"**{section}**"]
        if not rows:
            continue
        if section == "Examples" or rows[0].startswith((">>>", "    ")):
            code = [re.sub(r"\s*# doctest:.*", "", row) for row in rows]
            lines += block(inspect.cleandoc("\n".join(["", *code])), "python" if ">>>" in part else "text")
        elif section:
            lines.append("")
            for row in rows:
                named, _, meaning = row.partition(" : ")
                if row.startswith(" "):
                    lines.append("  " + escaped(row.strip()))
                elif meaning:
                    lines.append(f"- `{named.strip().replace('`', '')}`: {escaped(meaning)}")
                else:
                    name = row.removesuffix(" :").strip()
                    is_code = re.fullmatch(r"[\w.*]+(, [\w.*]+)*", name) is not None
                    lines.append(f"- `{name}`" if is_code else f"- {escaped(name)}")
        else:
            lines += ["", *(escaped(row) for row in rows)]
    return lines


def escaped(text: str) -> str:
    """Text whose code is Markdown's, and whose other signs mean themselves."""
    parts = re.split(r"(``.+?``|`[^`]+`)", text)
    return "".join(
        f"`{part.strip('`')}`" if at % 2 else re.sub(r"([\\*_<>\[\]$#~|])", r"\\\1", part)
        for at, part in enumerate(parts)
    )


def _wrapped(signature: str) -> str:
    """A signature of more than a line with an argument a line."""
    if len(signature) <= 100:
        return signature
    name, _, rest = signature.partition("(")
    arguments, _, answer = rest.rpartition(")")
    one_a_line = re.sub(r", (?=\*|\w+(?:: |=|$|,))", ",\n    ", arguments)
    return f"{name}(\n    {one_a_line},\n){answer}"


def block(text: str, language: str) -> list[str]:
    return ["", f"```{language}", *text.splitlines(), "```"] if text else []


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    columns = list(head)
    cells = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in rows]
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(row) + " |" for row in cells),
    ]
