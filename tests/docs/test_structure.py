"""The shape of the code: no private name crosses a module, and the links at the top lead to one package."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pairmark

ROOT = Path(__file__).parents[2]
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "pairmark").rglob("*.py"))
}


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Modules of ours and the names taken from them, wherever in a file that runs."""
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pairmark"):
            yield from ((node.module, name.name) for name in node.names)


def is_set(node: ast.Attribute | ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


STANDARD = {"_asdict", "_exit", "_field_defaults", "_fields", "_mapping", "_replace"}
"""Public for all that their names say: of named tuples, of `os`, of SQLAlchemy's rows."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_module_takes_a_private_name_from_another() -> None:
    found = []
    for module, path in SOURCES.items():
        tree = ast.parse(path.read_text())
        found += [f"{module}: {source}.{name}" for source, name in imports(tree) if private(name)]
        nodes = list(ast.walk(tree))
        # What belongs to this module: what it defines, and what it sets on an object or declares in a class.
        own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and is_set(node)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and is_set(node)}
        found += [
            f"{module}:{node.lineno}: {ast.unparse(node)}"
            for node in nodes
            if isinstance(node, ast.Attribute)
            and private(node.attr)
            and node.attr not in own | STANDARD
            and ast.unparse(node.value) not in ("self", "cls", "super()")
        ]
    assert not found


LEARNERS = ("estimator", "scorer", "learner", "model", "index")


def test_nothing_probes_what_a_learner_has() -> None:
    """The protocols of `core.spec` say it; scikit-learn's `available_if` alone asks whether there is a method."""
    probes = [
        f"{module}:{node.lineno}: {ast.unparse(node)}"
        for module, path in SOURCES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("getattr", "hasattr")
        and ast.unparse(node.args[0]).rpartition(".")[2].rstrip("_").endswith(LEARNERS)
        and isinstance(node.args[1], ast.Constant)
        # Of any estimator of scikit-learn's.
        and node.args[1].value not in ("feature_names_in_", "steps", "predict_proba")
    ]
    assert [probe for probe in probes if not probe.startswith("pairmark.models.auto.estimator")] == []


@pytest.mark.parametrize("module", ["service.names", "models.core.base", "migrations"])
def test_the_links_at_the_top_make_no_second_module(module: str) -> None:
    code = f"import pairmark.{module}, {module}"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert f"ImportError: import pairmark.{module.split('.')[0]}, not" in run.stderr


def test_every_source_is_one_real_file() -> None:
    assert not [path for path in (ROOT / "pairmark").rglob("*") if path.is_symlink()]
    assert {name: (ROOT / name).readlink() for name in ("models", "service", "migrations")} == {
        name: Path("pairmark", name) for name in ("models", "service", "migrations")
    }


def test_the_recipe_of_a_learner_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    source = re.search(r"`pairmark/models/diagonal\.py`:\n\n```python\n(.*?)```", text, re.DOTALL)
    module = ModuleType("pairmark.models.diagonal")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source[1], module.__dict__)
    model = module.DIAGONAL.estimator()
    X, y = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32), np.repeat(np.arange(5), 4)
    scores = model.fit(X, y).pair_score(X[:2], X[2:4])
    assert np.diag(model.score_against(X[:2], X[2:4])).tobytes() == scores.tobytes()
    assert model.top_k(X[:1], X, 1)[0].tolist() == [[0]]
    assert model.to_state()[0]["weights"].tobytes() == model.weights_.tobytes()
    model.fit_pairs(X[:10], X[10:], np.arange(10) % 2)


@pytest.mark.parametrize("name", sorted(pairmark.__all__))
def test_the_example_of_a_public_name_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docstring = inspect.getdoc(getattr(pairmark, name)) or ""
    _, heading, section = docstring.partition("\nExamples\n--------\n")
    assert heading, "no section Examples"
    test = doctest.DocTestParser().get_doctest(section, {}, name, None, None)
    assert 2 <= len([line for example in test.examples for line in example.source.splitlines()]) <= 10
    assert any(example.want for example in test.examples), "an example shows an answer"
    monkeypatch.chdir(tmp_path)
    failures: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(test, out=failures.append).failed == 0, "".join(failures)
