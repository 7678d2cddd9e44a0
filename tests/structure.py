"""``python -m tests.structure``: the figures of the code's shape, counted from the sources.

Lines of the package; names that are bare participles or quantifiers; class names that stand in several files; imports
in ``pairmark/models`` that run upwards; small modules with one importer; lines of the command line a command and of the
API a route.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.imports import ROOT, imports_of

PACKAGE = ROOT / "pairmark"
BARE = frozenset(
    [
        "added",
        "asked",
        "begun",
        "broken",
        "built",
        "called",
        "caught",
        "changed",
        "checked",
        "chosen",
        "counted",
        "done",
        "drawn",
        "either",
        "enough",
        "erased",
        "every",
        "expected",
        "few",
        "fewer",
        "filled",
        "fitted",
        "followed",
        "found",
        "gathered",
        "given",
        "gone",
        "grown",
        "heard",
        "held",
        "kept",
        "known",
        "least",
        "less",
        "listed",
        "loaded",
        "made",
        "many",
        "meant",
        "measured",
        "met",
        "more",
        "most",
        "moved",
        "much",
        "named",
        "needed",
        "neither",
        "noted",
        "offered",
        "one",
        "ones",
        "only",
        "opened",
        "other",
        "others",
        "parted",
        "passed",
        "picked",
        "placed",
        "received",
        "rest",
        "said",
        "seen",
        "sent",
        "served",
        "several",
        "shown",
        "some",
        "spent",
        "spread",
        "standing",
        "started",
        "stated",
        "stored",
        "such",
        "taken",
        "that",
        "these",
        "they",
        "this",
        "those",
        "told",
        "tried",
        "used",
        "wanted",
        "written",
        "both",
    ]
)
"""Words that say nothing of what a name holds; verbs and the field's words (`same`, `split`) are not among them."""
PARTICIPLE = re.compile(r"[a-z]+(?:ed|wn|ught|oken|osen|itten|iven)")
"""How participles look; some adjectives and words of the field look like it (`own`, `unlabelled`, `enrolled`)."""
NOT_PARTICIPLES = frozenset(["embed", "feed", "hundred", "need", "seed", "speed"])
ORDER = ("search", "core", "pairs", "calibration", "evaluation", "records", "families", "auto", "registry")
FAMILIES = frozenset(
    ["ghost", "label_ranking", "logistic", "metric", "plda", "rankboost", "rsbl", "similarity"]
)
SMALL = 40
"""Lines that begin a statement."""


def sources() -> list[Path]:
    """The package's files."""
    return sorted(path.relative_to(ROOT) for path in PACKAGE.rglob("*.py"))


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Every name that a file binds: variables, arguments, attributes of self, functions, classes, fields."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname


def floor(path: Path) -> int:
    """How high a module of ``pairmark/models`` stands."""
    parts = path.parts[2:]
    room = "families" if parts[0] in FAMILIES else parts[0].removesuffix(".py")
    return ORDER.index(room) if room in ORDER else len(ORDER)


def code_lines(tree: ast.Module) -> int:
    """Lines that hold code, without imports and docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Module)) or not isinstance(node, ast.stmt):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        lines.add(node.lineno)
    return len(lines)


def main() -> None:
    """Print the figures; ``--names`` lists the bare names by how often they are bound."""
    parser = argparse.ArgumentParser(prog="python -m tests.structure", description=__doc__)
    parser.add_argument(
        "--names", action="store_true", help="list bare names and the files they are bound in"
    )
    options = parser.parse_args()
    files = sources()
    trees = {path: ast.parse((ROOT / path).read_bytes()) for path in files}
    texts = {path: (ROOT / path).read_text(encoding="utf-8").splitlines() for path in files}
    names = {path: list(bound_names(tree)) for path, tree in trees.items()}
    bare = [(name, path) for path, bindings in names.items() for name in bindings if name.strip("_") in BARE]
    like_participles = [
        name
        for bindings in names.values()
        for name in bindings
        if PARTICIPLE.fullmatch(name.strip("_")) and name.strip("_") not in NOT_PARTICIPLES
    ]
    classes = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].add(path)
    importers: Counter[Path] = Counter()
    upward = []
    for path in files:
        for target in imports_of(path):
            importers[target] += 1
            inside = all(part.parts[:2] == ("pairmark", "models") for part in (path, target))
            if inside and path.name != "__init__.py" and floor(target) > floor(path):
                upward.append(f"{path} -> {target}")
    lonely = [
        path for path in files if importers[path] == 1 and len(texts[path]) < SMALL and path.stem[0] != "_"
    ]
    # Each command has its page of help; a group of commands has a list of them.
    pages = (ROOT / "tests/golden/surface/help.txt").read_text(encoding="utf-8").split("$ pairmark")[1:]
    commands = sum("─ Commands ─" not in page for page in pages)
    routes = "\n".join(texts[Path("pairmark/service/api/routes.py")]).count('Route("')
    comments = sum(line.lstrip().startswith("#") for lines in texts.values() for line in lines)
    lines_of = {
        room: sum(len(texts[path]) for path in files if str(path).startswith(f"pairmark/{room}"))
        for room in ("models", "service", "client", "wire", "migrations", "service/cli", "service/api")
    }
    total = sum(map(len, texts.values()))
    repeated = {name: paths for name, paths in classes.items() if len(paths) > 1}
    print(f"lines of pairmark/                             {total}  {lines_of}")
    print(f"lines that are comments                        {comments / total:.1%}")
    print(
        f"bare participles and quantifiers among names   {len(bare) / sum(map(len, names.values())):.2%}  ({len(bare)})"
    )
    share = len(like_participles) / sum(map(len, names.values()))
    print(f"single words that look like participles        {share:.2%}  ({len(like_participles)})")
    print(f"class names in several files                   {len(repeated)}  {', '.join(sorted(repeated))}")
    print(f"upward imports in models                       {len(upward)}")
    print("".join(f"    {line}\n" for line in sorted(upward)), end="")
    print(f"modules below {SMALL} statements with one importer   {len(lonely)}")
    print("".join(f"    {path}\n" for path in lonely), end="")
    print(
        f"lines of the command line a command            {lines_of['service/cli'] / max(commands, 1):.0f}  ({commands})"
    )
    print(
        f"lines of the API a route                       {lines_of['service/api'] / max(routes, 1):.0f}  ({routes})"
    )
    if options.names:
        for name, count in Counter(name for name, _ in bare).most_common():
            where = Counter(str(path.parent) for word, path in bare if word == name).most_common(6)
            print(f"{count:5} {name:12} {', '.join(f'{folder} {n}' for folder, n in where)}")


if __name__ == "__main__":
    main()
