"""Commands that only check a file or count people do not wait for scikit-learn and the learners to load."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["datasets.beginnings", "datasets.promises", "heldout.schemas"])
def test_checks_load_no_learner(module: str) -> None:
    code = f"import sys, pairmark.service.{module}; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_public_names_are_there_all_the_same() -> None:
    code = "import pairmark.models as m; print(m.Plda.__name__, 'Plda' in m.__all__, hasattr(m, 'Pdla'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Plda True False\n"


def test_a_learner_loads_no_other() -> None:
    code = "import sys; from pairmark import SimilarityForest; print('pairmark.models.plda.estimator' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
