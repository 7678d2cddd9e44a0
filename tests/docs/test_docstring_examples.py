"""Every public name shows an example in its docstring, and the example runs and prints what it says."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import pairmark


@pytest.mark.parametrize("name", sorted(pairmark.__all__))
def test_the_example_of_a_public_name_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docstring = inspect.getdoc(getattr(pairmark, name)) or ""
    _, heading, section = docstring.partition("\nExamples\n--------\n")
    assert heading, "no section Examples"
    test = doctest.DocTestParser().get_doctest(section, {}, name, None, None)
    lines = [line for example in test.examples for line in example.source.splitlines()]
    assert 2 <= len(lines) <= 10
    assert any(example.want for example in test.examples), "an example shows an answer"
    monkeypatch.chdir(tmp_path)
    failures: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=failures.append)
    assert result.failed == 0, "".join(failures)
