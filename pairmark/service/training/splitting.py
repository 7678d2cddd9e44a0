"""Split a dataset, and choose the held-out pairs to score, before anything is learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairmark.models.calibration.chance import Chance
from pairmark.models.evaluation.ranking_metrics import split_rankings
from pairmark.models.pairs.splits import HeldOutPairs, split_data, split_pairs
from pairmark.service.datasets.data import LabelledData
from pairmark.service.errors import refusals
from pairmark.service.heldout.groups import without_groups
from pairmark.service.heldout.pairs import listed_pairs, pairs_among, split_codes, units_of_list
from pairmark.service.heldout.people import people_of
from pairmark.service.training.records import Indices, Loaded, Parts

ROWS = "held-out-rows"
GROUPED = "held-out-groups"


def split(loaded: Loaded) -> Parts:
    """The parts of a job's dataset, or `InvalidInput` when one would be too small."""
    data = loaded.data
    with refusals(f"dataset {data.name}:{data.version} cannot be split"):
        if loaded.spec.needs == "rankings":
            return _rankings(loaded)
        together = without_groups(data, loaded.claim.evaluation.groups)
        if data.pairs is not None:
            return _listed(loaded, together)
        if data.y is None:
            raise ValueError("it has neither a label column nor a list of pairs")
        return _identities(loaded, together)


def _rankings(loaded: Loaded) -> Parts:
    """Rows to learn from and rows to judge by; rankers calibrate themselves, so none go to that."""
    data = loaded.data
    if data.rankings is None:
        raise ValueError("it has no rankings: upload it with `ranking`")
    train, test = split_rankings(
        len(data),
        test_fraction=loaded.claim.evaluation.test_fraction,
        groups=data.groups,
        random_state=loaded.seed,
    )
    return Parts(
        loaded=loaded,
        protocol=ROWS if data.groups is None else GROUPED,
        rows=train,
        learned=train,
        test_rows=test,
        sizes={"train_rows": int(train.size), "test_rows": int(test.size)},
    )


def _fractions(loaded: Loaded) -> dict[str, Any]:
    asked = loaded.claim.evaluation
    # Of a table an encoder learns, whatever the learner does.
    learns = loaded.data.schema is not None or loaded.spec.learns(loaded.claim.params)
    return {
        # Without anything to learn, everybody outside the test part is there to calibrate on.
        "calibration_fraction": asked.calibration_fraction if learns else None,
        "test_fraction": asked.test_fraction,
        "random_state": loaded.seed,
    }


def _listed(loaded: Loaded, data: LabelledData) -> Parts:
    assert data.pairs is not None
    asked, pairs = loaded.claim.evaluation, data.pairs
    ends = np.asarray(pairs.left), np.asarray(pairs.right)
    same, listed = np.asarray(pairs.same), units_of_list(data, asked.protocol)
    found = split_pairs(
        listed.units, same, listed.usable, protocol=listed.protocol, name=listed.name, **_fractions(loaded)
    )
    calibration_rows = np.unique(np.concatenate([end[found.calibration] for end in ends]))
    people = people_of(data, calibration_rows, listed.protocol)
    seeds = (Chance.of_people(people, loaded.secret).seed, loaded.seed + 2)
    calibration, test = (
        listed_pairs(data, numbers, listed, n_pairs=asked.n_pairs, random_state=seed, listing=asked.listing)
        for seed, numbers in zip(seeds, (found.calibration, found.test), strict=True)
    )
    # A learner that learns nothing still wants to see data; it may see what calibrates it.
    fitted = found.train if found.train.size else found.calibration
    rows = np.unique(np.concatenate([end[fitted] for end in ends]))
    return Parts(
        loaded=loaded,
        protocol=found.protocol,
        rows=rows,
        learned=rows if found.train.size else rows[:0],
        pairs=fitted,
        calibration=calibration,
        test=test,
        calibration_rows=calibration_rows,
        people=people,
        sizes={
            "train_pairs": int(found.train.size),
            "calibration_pairs": int(found.calibration.size),
            "test_pairs": int(found.test.size),
            "dropped_pairs": found.n_dropped,
        },
    )


def _identities(loaded: Loaded, data: LabelledData) -> Parts:
    asked = loaded.claim.evaluation
    codes, protocol = split_codes(data, asked.protocol)
    whole = "open-set" if data.groups is not None else protocol
    found = split_data(codes, protocol=whole, **_fractions(loaded))
    people = people_of(data, found.calibration, protocol)
    seeds = (Chance.of_people(people, loaded.secret).seed, loaded.seed + 2)
    calibration, test = (
        pairs_among(data, rows, protocol=protocol, n_pairs=asked.n_pairs, random_state=seed)
        for seed, rows in zip(seeds, (found.calibration, found.test), strict=True)
    )
    _check_both_kinds(calibration, test)
    y = np.asarray(data.y)
    rows = {"train": found.train, "calibration": found.calibration, "test": found.test}
    return Parts(
        loaded=loaded,
        protocol=protocol,
        rows=found.train if found.train.size else found.calibration,
        learned=found.train,
        calibration=calibration,
        test=test,
        calibration_rows=np.asarray(found.calibration, dtype=np.int64),
        people=people,
        test_rows=_rows_of_learned_classes(loaded, protocol, found.test),
        sizes={
            **{f"{name}_rows": int(part.size) for name, part in rows.items()},
            **{f"{name}_identities": int(np.unique(y[part]).size) for name, part in rows.items()},
            "calibration_pairs": len(calibration),
            "test_pairs": len(test),
        },
    )


def _rows_of_learned_classes(loaded: Loaded, protocol: str, test: Indices) -> Indices | None:
    return test if protocol == "closed-set" and "classify" in loaded.spec.capabilities else None


def _check_both_kinds(calibration: HeldOutPairs, test: HeldOutPairs) -> None:
    for name, pairs in (("calibration", calibration), ("test", test)):
        if pairs.same.all() or (name == "test" and not pairs.same.any()):
            kind = "differ" if pairs.same.all() else "are the same"
            raise ValueError(
                f"its {name} part gives no pairs that {kind}: bring more data or larger fractions"
            )
