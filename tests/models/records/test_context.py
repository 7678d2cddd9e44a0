"""Pairs among their rivals: what context adds, and what it must not depend on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmark import RecordSimilarity
from pairmark.models.core.artefact import ArtefactError, read_artefact, write_artefact
from pairmark.models.registry import load
from tests.models.saving import reloaded

COLUMNS = {"title": "text"}
SMALL: dict[str, Any] = {"columns": COLUMNS, "n_estimators": 40, "random_state": 0}
N_TWINS = 120
N = 2 * N_TWINS
N_WORDS = 14


def twins(seed: int) -> tuple[dict[str, list[str]], np.ndarray, np.ndarray, np.ndarray]:
    """Two tables of N products, one after the other, the pairs of each product with its own row and its twin's, and
    which of them are the same.

    A product shares two words more with its own row than with its twin's. How many that is differs from twins to twins,
    and every word is in two rows: a pair alone does not tell.
    """
    random = np.random.default_rng(seed)

    def words(n: int) -> list[str]:
        return ["".join(random.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(n)]

    table = np.empty(2 * N, dtype=object)
    for at in range(0, N, 2):
        shared = int(random.integers(1, 6))
        rows = {row: list[str]() for row in (at, at + 1, N + at, N + at + 1)}
        for first in (at, at + 1):
            for second in (N + at, N + at + 1):
                both = words(shared + 2 * (second - first == N))
                rows[first] += both
                rows[second] += both
        for row, own in rows.items():
            table[row] = " ".join(random.permutation(own + words(N_WORDS - len(own))))
    left = np.repeat(np.arange(N), 2)
    right = N + left // 2 * 2 + np.tile([0, 1], N)
    return {"title": table.tolist()}, left, right, right - left == N


TABLES, LEFT, RIGHT, SAME = twins(1)
LEARNED = LEFT < N // 2


@pytest.fixture(scope="module")
def model() -> RecordSimilarity:
    return RecordSimilarity(**SMALL).fit_among(TABLES, LEFT[LEARNED], RIGHT[LEARNED], SAME[LEARNED], n_left=N)


def errors(scores: np.ndarray, same: np.ndarray) -> int:
    """Fewest wrong decisions of any threshold."""
    ordered = same[np.argsort(-scores, kind="stable")]
    return int(np.min(np.append(0, np.cumsum(~ordered)) + same.sum() - np.append(0, np.cumsum(ordered))))


def test_rivals_tell_what_a_pair_alone_does_not(model: RecordSimilarity) -> None:
    left, right, same = (side[~LEARNED] for side in (LEFT, RIGHT, SAME))
    alone = model.score_pairs(TABLES, left, right)
    among = model.score_among(TABLES, left, right, n_left=N)
    assert errors(among, same) < 2 / 3 * errors(alone, same)


def test_a_lone_pair_scores_as_without_context(model: RecordSimilarity) -> None:
    rows = [{"title": title} for title in TABLES["title"]]
    plain = RecordSimilarity(**SMALL).fit_pairs(
        [rows[row] for row in LEFT[LEARNED]], [rows[row] for row in RIGHT[LEARNED]], SAME[LEARNED]
    )
    expected = plain.score_pairs(TABLES, LEFT, RIGHT)
    assert model.score_pairs(TABLES, LEFT, RIGHT).tobytes() == expected.tobytes()
    assert plain.context_ is None


def test_scores_hang_on_the_tables_alone(model: RecordSimilarity) -> None:
    everything = model.score_among(TABLES, LEFT, RIGHT, n_left=N)
    some = np.random.default_rng(0).permutation(LEFT.size)[:50]
    asked = model.score_among(TABLES, LEFT[some], RIGHT[some], n_left=N)
    assert asked.tobytes() == everything[some].tobytes()
    # The same pair is worth less once a better rival is there.
    richer = {"title": [*TABLES["title"], TABLES["title"][0]]}
    first = SAME & (LEFT == 0)
    assert (
        model.score_among(richer, LEFT[first], RIGHT[first], n_left=N)
        < model.score_among(TABLES, LEFT[first], RIGHT[first], n_left=N)
    ).all()


def test_swapped_tables_change_no_bit(model: RecordSimilarity) -> None:
    swapped = {"title": TABLES["title"][N:] + TABLES["title"][:N]}
    scores = model.score_among(TABLES, LEFT, RIGHT, n_left=N)
    assert model.score_among(swapped, RIGHT - N, LEFT + N, n_left=N).tobytes() == scores.tobytes()


def test_one_table_has_rivals_too() -> None:
    model = RecordSimilarity(**SMALL).fit_among(TABLES, LEFT[LEARNED], RIGHT[LEARNED], SAME[LEARNED])
    left, right, same = (side[~LEARNED] for side in (LEFT, RIGHT, SAME))
    among = model.score_among(TABLES, left, right)
    assert errors(among, same) < errors(model.score_pairs(TABLES, left, right), same)
    assert model.score_among(TABLES, right, left).tobytes() == among.tobytes()


def test_context_is_saved_and_held_against_its_trees(model: RecordSimilarity, tmp_path: Path) -> None:
    again = reloaded(model, tmp_path / "model")
    assert (
        again.score_among(TABLES, LEFT, RIGHT, n_left=N).tobytes()
        == model.score_among(TABLES, LEFT, RIGHT, n_left=N).tobytes()
    )
    artefact = read_artefact(tmp_path / "model")
    children = np.array(artefact.arrays["context_children"])
    children[int(np.argmax(artefact.arrays["context_features"] >= 0))] = 2**62
    write_artefact(
        tmp_path / "wrong",
        kind=artefact.kind,
        params=artefact.params,
        meta=artefact.meta,
        arrays={**artefact.arrays, "context_children": children},
    )
    with pytest.raises(ArtefactError, match="context_children"):
        load(tmp_path / "wrong")


def test_few_labels_teach_nothing_of_rivals() -> None:
    few = np.flatnonzero(LEFT < 2)
    model = RecordSimilarity(**SMALL).fit_among(TABLES, LEFT[few], RIGHT[few], SAME[few], n_left=N)
    assert model.context_ is None
    with pytest.raises(ValueError, match="more pairs of either kind"):
        model.score_among(TABLES, LEFT, RIGHT, n_left=N)


def test_pairs_that_are_not_of_the_two_tables_are_refused(model: RecordSimilarity) -> None:
    with pytest.raises(ValueError, match=f"left rows below {N}"):
        model.score_among(TABLES, RIGHT, LEFT, n_left=N)
    with pytest.raises(ValueError, match="expected one of each a pair"):
        model.score_among(TABLES, LEFT, RIGHT[:-1], n_left=N)
