"""Models of records: what they learn, how they explain it, and which artefacts are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from pairmark import FellegiSunter, RecordSimilarity
from pairmark.models.core.artefact import ArtefactError, OutdatedModel, read_artefact, write_artefact
from pairmark.models.records.encoder import RecordEncoder
from pairmark.models.records.inference import infer
from pairmark.models.records.schema import RecordError
from pairmark.models.registry import load, save
from tests.models.records.people import people
from tests.models.saving import reloaded

TABLE, WHO = people(120, seed=1)
OTHERS, OTHER_WHO = people(80, seed=2)
SMALL: dict[str, Any] = {"n_pairs": 4_000, "random_state": 0}


def rows(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Records as a request brings them."""
    schema = infer(TABLE).schema
    return list(schema.values(schema.read(table)))


@pytest.fixture(scope="module")
def trees() -> RecordSimilarity:
    return RecordSimilarity(n_estimators=40, **SMALL).fit(TABLE, WHO)


@pytest.fixture(scope="module")
def unlabelled() -> FellegiSunter:
    return FellegiSunter(**SMALL).fit(TABLE)


def misjudged(model: Any) -> float:
    """Share of same pairs of new people that score no higher than the best 1 in 1,000 different pairs."""
    i, j = np.triu_indices(len(OTHER_WHO), 1)
    scores, same = model.score_pairs(OTHERS, i, j), OTHER_WHO[i] == OTHER_WHO[j]
    return float((scores[same] <= np.quantile(scores[~same], 0.999)).mean())


class TestLearning:
    def test_new_people_are_told_apart(self, trees: RecordSimilarity, unlabelled: FellegiSunter) -> None:
        assert misjudged(trees) < 0.03
        assert misjudged(unlabelled) < 0.05

    def test_the_share_of_same_pairs_is_found_without_labels(self, unlabelled: FellegiSunter) -> None:
        n = len(WHO)
        assert unlabelled.prior_ * n * (n - 1) / 2 == pytest.approx(120, rel=0.1)

    def test_an_equal_cell_never_lowers_a_score(self, trees: RecordSimilarity) -> None:
        records = rows(OTHERS)
        for name in ("member", "weight", "home"):
            pairs = [(left, right) for left, right in zip(records, records[3:], strict=False)
                     if name in left and name in right and left[name] != right[name]]  # fmt: skip
            apart = trees.pair_score([left for left, _ in pairs], [right for _, right in pairs])
            equal = trees.pair_score(
                [left for left, _ in pairs], [{**right, name: left[name]} for left, right in pairs]
            )
            assert len(pairs) > 20
            assert (equal >= apart).all(), name

    def test_frames_records_and_columns_are_one_table(self, trees: RecordSimilarity) -> None:
        class Frame:
            columns = tuple(OTHERS)

            def __getitem__(self, name: str) -> list[Any]:
                return OTHERS[name]

        expected = trees.pair_score(OTHERS, {name: cells[::-1] for name, cells in OTHERS.items()})
        for left in (Frame(), rows(OTHERS)):
            assert trees.pair_score(left, rows(OTHERS)[::-1]).tobytes() == expected.tobytes()

    def test_learns_from_labelled_pairs(self) -> None:
        i, j = np.triu_indices(len(WHO), 1)
        keep = np.flatnonzero((WHO[i] == WHO[j]) | (np.arange(i.size) % 20 == 0))
        everyone = rows(TABLE)
        left, right = ([everyone[row] for row in side[keep]] for side in (i, j))
        same = WHO[i[keep]] == WHO[j[keep]]
        columns = {column.name: column.type + (f":{column.format}" if column.format else "")
                   for column in infer(TABLE).schema.columns}  # fmt: skip
        columns["born"] = "date:YYYY-MM-DD"
        for model in (
            RecordSimilarity(columns=columns, n_estimators=30),
            FellegiSunter(columns=columns),
        ):
            assert misjudged(model.fit_pairs(left, right, same)) < 0.06

    def test_a_search_finds_the_other_record_of_a_person(self, trees: RecordSimilarity) -> None:
        queries = {name: cells[1::2][:20] for name, cells in OTHERS.items()}
        gallery = {name: cells[::2] for name, cells in OTHERS.items()}
        ids, _ = trees.top_k(queries, gallery, 1)
        assert (ids[:, 0] == np.arange(20)).mean() > 0.9


class TestExplanations:
    def test_contributions_add_up_to_the_score(
        self, trees: RecordSimilarity, unlabelled: FellegiSunter
    ) -> None:
        one, other = rows(OTHERS)[:2]
        for model in (trees, unlabelled):
            said = model.explain(one, other)
            json.dumps(said)
            total = said.get("base", 0.0) + sum(entry["contribution"] for entry in said["fields"])
            assert total == pytest.approx(said["score"], abs=1e-4)
            by_field = {entry["field"]: entry for entry in said["fields"]}
            assert by_field["surname"]["left"] == one["surname"]

    def test_what_speaks_against_a_pair_is_named(self, unlabelled: FellegiSunter) -> None:
        one = rows(OTHERS)[0]
        other = one | {"born": "1999-01-01" if one["born"][:4] < "1990" else "1950-01-01"}
        said = {entry["field"]: entry for entry in unlabelled.explain(one, other)["fields"]}
        assert said["born"]["level"] == "different"
        assert said["born"]["contribution"] < 0
        assert said["surname"]["level"] == "equal"


class TestArtefacts:
    def test_a_saved_model_scores_as_it_did(self, trees: Any, unlabelled: Any, tmp_path: Path) -> None:
        left, right = rows(OTHERS)[:40], rows(OTHERS)[40:80]
        for model in (trees, unlabelled):
            back = reloaded(model, tmp_path / "model")
            assert back.pair_score(left, right).tobytes() == model.pair_score(left, right).tobytes()
            assert back.explain(left[0], right[0]) == model.explain(left[0], right[0])
            assert back.schema_ == model.schema_

    @pytest.mark.parametrize(
        ("kind", "array", "place", "value"),
        [
            ("trees", "features", 0, 10_000),
            ("trees", "children", 0, 0),
            ("trees", "children", 0, 10**6),
            ("trees", "roots", 0, 5),
            ("trees", "values", 0, np.nan),
            ("trees", "rarity_weights", 0, -1.0),
            ("trees", "rarity_hashes", None, None),
            ("unlabelled", "m", (0, 0), 0.0),
            ("unlabelled", "u", (0, 1), np.nan),
        ],
    )
    def test_arrays_that_no_fit_writes_are_refused(
        self, kind: str, array: str, place: Any, value: Any, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        save(request.getfixturevalue(kind), tmp_path / "model")
        held = read_artefact(tmp_path / "model")
        arrays = {name: np.array(each) for name, each in held.arrays.items()}
        if place is None:
            arrays[array] = arrays[array][:-1]
        else:
            arrays[array][place] = value
        write_artefact(tmp_path / "bad", kind=held.kind, params=held.params, meta=held.meta, arrays=arrays)
        with pytest.raises(ArtefactError, match=array.split("_")[0]):
            load(tmp_path / "bad")

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            ({"schema": {"columns": [{"name": "values", "type": "text"}]}}, ArtefactError),
            ({"schema": {"columns": []}}, ArtefactError),
            # An earlier version, which had an alike of its own.
            ({"whole": []}, OutdatedModel),
        ],
    )
    def test_facts_that_no_fit_writes_are_refused(
        self, change: dict[str, Any], error: type[Exception], trees: Any, tmp_path: Path
    ) -> None:
        save(trees, tmp_path / "model")
        held = read_artefact(tmp_path / "model")
        meta = held.meta | {"comparators": held.meta["comparators"] | change}
        write_artefact(tmp_path / "bad", kind=held.kind, params=held.params, meta=meta, arrays=held.arrays)
        with pytest.raises(error):
            load(tmp_path / "bad")


class TestEncoder:
    schema = infer(TABLE).schema
    cells = schema.read(TABLE)

    def test_dense_and_sparse_rows_say_the_same(self) -> None:
        dense = RecordEncoder(self.schema, n_grams=64).fit(self.cells)
        sparse = RecordEncoder(self.schema, sparse=True, n_grams=64).fit(self.cells)
        rows = dense.transform(self.cells)
        assert (rows.dtype, rows.shape) == (np.float32, (len(WHO), len(dense.feature_names)))
        np.testing.assert_array_equal(sparse.transform(self.cells).toarray(), rows)

    def test_missing_cells_set_their_flag_and_nothing_else(self) -> None:
        encoder = RecordEncoder(self.schema).fit(self.cells)
        row = encoder.transform(self.schema.records([{}]))[0]
        assert {encoder.feature_names[at] for at in np.flatnonzero(row)} == {
            f"{column.name} missing" for column in self.schema.fields
        }

    def test_its_state_comes_back_and_a_hostile_one_is_refused(self) -> None:
        encoder = RecordEncoder(self.schema).fit(self.cells)
        arrays, meta = encoder.to_state()
        meta = json.loads(json.dumps(meta))
        back = RecordEncoder.from_state(arrays, meta)
        np.testing.assert_array_equal(back.transform(self.cells), encoder.transform(self.cells))
        for changed in (arrays | {"scale": arrays["scale"][:-1]}, arrays | {"rarity": arrays["rarity"] * np.nan},
                        arrays | {"more": arrays["scale"]}):  # fmt: skip
            with pytest.raises(ArtefactError):
                RecordEncoder.from_state(changed, meta)
        for wrong in (meta | {"n_grams": 2**40}, meta | {"levels": {}}, meta | {"table": {"columns": []}}):
            with pytest.raises(ArtefactError, match="encoder"):
                RecordEncoder.from_state(arrays, wrong)


class TestRefusals:
    def test_records_of_another_table_are_refused(self, trees: RecordSimilarity) -> None:
        with pytest.raises(RecordError, match="row 1, column 'nome'"):
            trees.pair_score([{"nome": "ana"}], [{"given": "ana"}])
        with pytest.raises(RecordError, match="column 'weight'"):
            trees.pair_score([{"given": "ana"}], [{"weight": "heavy"}])
        with pytest.raises(ValueError, match="holds numbers"):
            trees.pair_score(np.zeros((1, 8)), np.zeros((1, 8)))

    def test_two_records_are_the_least(self) -> None:
        with pytest.raises(ValueError, match="at least two"):
            FellegiSunter(columns={"a": "text"}).fit([{"a": "x"}])


COLUMNS = {"title": "text"}
SMALL_OF_TABLES: dict[str, Any] = {"columns": COLUMNS, "n_estimators": 40, "random_state": 0}
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
    return RecordSimilarity(**SMALL_OF_TABLES).fit_among(
        TABLES, LEFT[LEARNED], RIGHT[LEARNED], SAME[LEARNED], n_left=N
    )


def errors(scores: np.ndarray, same: np.ndarray) -> int:
    """Fewest wrong decisions of any threshold."""
    ordered = same[np.argsort(-scores, kind="stable")]
    return int(np.min(np.append(0, np.cumsum(~ordered)) + same.sum() - np.append(0, np.cumsum(ordered))))


def test_rivals_tell_what_a_pair_alone_does_not(model: RecordSimilarity) -> None:
    left, right, same = (side[~LEARNED] for side in (LEFT, RIGHT, SAME))
    alone = model.score_pairs(TABLES, left, right)
    assert errors(model.score_among(TABLES, left, right, n_left=N), same) < 2 / 3 * errors(alone, same)


def test_a_lone_pair_scores_as_without_context(model: RecordSimilarity) -> None:
    rows = [{"title": title} for title in TABLES["title"]]
    plain = RecordSimilarity(**SMALL_OF_TABLES).fit_pairs(
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
    model = RecordSimilarity(**SMALL_OF_TABLES).fit_among(
        TABLES, LEFT[LEARNED], RIGHT[LEARNED], SAME[LEARNED]
    )
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


def test_a_model_from_a_folder_learns_the_same_cells_again(tmp_path: Path) -> None:
    cells = np.array(
        [[f"widget {at % 20}", f"firm {at % 20}", float(at % 20)] for at in range(60)], dtype=object
    )
    columns = {"title": "text", "maker": "company", "price": "number"}
    made = RecordSimilarity(columns=columns, n_estimators=3, random_state=0).fit(cells, np.arange(60) % 20)
    again = clone(reloaded(made, tmp_path / "model")).fit(cells, np.arange(60) % 20)
    assert (
        again.score_pairs(cells, [0, 1], [20, 2]).tobytes()
        == made.score_pairs(cells, [0, 1], [20, 2]).tobytes()
    )


def test_few_labels_teach_nothing_of_rivals() -> None:
    few = np.flatnonzero(LEFT < 2)
    model = RecordSimilarity(**SMALL_OF_TABLES).fit_among(TABLES, LEFT[few], RIGHT[few], SAME[few], n_left=N)
    assert model.context_ is None
    with pytest.raises(ValueError, match="more pairs of either kind"):
        model.score_among(TABLES, LEFT, RIGHT, n_left=N)


def test_pairs_that_are_not_of_the_two_tables_are_refused(model: RecordSimilarity) -> None:
    with pytest.raises(ValueError, match=f"left rows below {N}"):
        model.score_among(TABLES, RIGHT, LEFT, n_left=N)
    with pytest.raises(ValueError, match="expected one of each a pair"):
        model.score_among(TABLES, LEFT, RIGHT[:-1], n_left=N)
