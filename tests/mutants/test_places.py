"""Each mutant breaks one place, and has tests: code that moves takes its mutants along."""

import pytest

from tests.mutants.__main__ import ROOT, places
from tests.mutants.catalogue import WATCHED, Mutant


@pytest.mark.parametrize("tests", WATCHED)
def test_each_mutant_breaks_one_place(tests: str) -> None:
    assert (ROOT / tests).is_file()
    broken = {row[0]: len(places(Mutant(*row, (tests,)), ROOT)) for row in WATCHED[tests]}
    assert broken == dict.fromkeys(broken, 1)
