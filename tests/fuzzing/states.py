"""Mutated states of every learner, loaded and asked: ``python -m tests.fuzzing.states N SEED``.

Prints one line each: ``refused``, ``harmless``, or ``FOUND`` and what went wrong. A crash ends the process.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

from pairmark.models.core.artefact import Artefact
from tests.fuzzing.bodies import Random, array_like, chance, pick
from tests.models.test_states import VARIANTS, changed, refused_or_harmless, saved


def mutated(rng: Random, artefact: Artefact) -> Artefact:
    """The artefact with numbers of one to three arrays, or an array's form, changed."""
    names = [name for name, array in artefact.arrays.items() if array.size]
    for _ in range(int(rng.integers(1, 4)) if names else 0):
        name = pick(rng, names)
        array = np.array(artefact.arrays[name], order="C")
        if chance(rng, 0.25):
            artefact = changed(artefact, name, array_like(rng, array))
            continue
        if array.dtype.kind not in "iuf" or not array.size:
            continue
        flat = array.reshape(-1)
        for place in rng.integers(array.size, size=int(rng.integers(1, 6))):
            if array.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    number = pick(rng, [np.nan, np.inf, -np.inf, 0.0, 1e30, -1e30, float(rng.normal())])
                    flat[place] = np.float64(number).astype(array.dtype)
            else:
                info = np.iinfo(array.dtype)
                number = int(
                    pick(
                        rng,
                        [
                            info.min,
                            info.max,
                            2**30,
                            -1,
                            0,
                            place,
                            int(flat[place]) + 1,
                            array.size,
                            int(flat[0]),
                        ],
                    )
                )
                flat[place] = min(max(number, int(info.min)), int(info.max))
        artefact = changed(artefact, name, array)
    return artefact


def main(n: int, seed: int) -> None:
    """Load ``n`` of them, over all learners and forms in turn."""
    warnings.simplefilter("ignore")
    variants = sorted(VARIANTS)
    for number in range(n):
        variant = variants[number % len(variants)]
        rng = np.random.default_rng([seed, number])
        try:
            said = "refused" if refused_or_harmless(mutated(rng, saved(variant))) else "harmless"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            said = (
                f"FOUND {variant}, seed {seed}, number {number}: {type(error).__name__}: {str(error)[:300]}"
            )
        print(said.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
