"""Features of pairs: what they say, that sides do not matter, and that fast ways agree with plain ones."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import JaroWinkler, Levenshtein

from pairmark.models import FellegiSunter
from pairmark.models.records import neighbors
from pairmark.models.records.comparators import Comparators, normal_form
from pairmark.models.records.neighbors import Postings, keys_of, nominate
from pairmark.models.records.schema import RecordColumn, Records, Schema
from pairmark.models.records.tables import declare_schema
from tests.models.records.people import people

TEXT = st.text(st.sampled_from("abcde 1290.-é漢ß"), max_size=90) | st.text(max_size=8)
SCHEMA = Schema(
    columns=(
        RecordColumn(name="title", type="text"),
        RecordColumn(name="notes", type="text"),
        RecordColumn(name="kind", type="category"),
        RecordColumn(name="price", type="number"),
        RecordColumn(name="day", type="date", format="YYYY-MM-DD"),
        RecordColumn(name="ok", type="boolean"),
        RecordColumn(name="at", type="place"),
    )
)  # fmt: skip
CELLS = st.tuples(
    st.none() | TEXT.filter(lambda text: text.strip()), st.none() | TEXT.filter(lambda text: text.strip()),
    st.none() | st.sampled_from(["a", "b"]), st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.integers(-10_000, 40_000).map(float), st.none() | st.sampled_from([0.0, 1.0]),
    st.none() | st.tuples(st.floats(-90, 90), st.floats(-180, 180)),
)  # fmt: skip


def records(rows: list[Any]) -> Records:
    cells = np.empty((len(rows), len(SCHEMA.fields)), dtype=object)
    for at, row in enumerate(rows):
        for place, cell in enumerate(row):
            cells[at, place] = cell
    return cells


def features(comparators: Comparators, left: Records, right: Records) -> dict[str, float]:
    zero = np.zeros(1, dtype=np.int64)
    values = comparators.compare(comparators.prepare(left), zero, comparators.prepare(right), zero)[0]
    return dict(zip(map(": ".join, comparators.features), values.tolist(), strict=True))


def titles(*texts: str) -> Comparators:
    schema = Schema(columns=(RecordColumn(name="title", type="text"),))
    return Comparators(schema).fit(np.array([[text] for text in texts], dtype=object))


def of_titles(comparators: Comparators, one: str, other: str) -> dict[str, float]:
    return features(comparators, np.array([[one]], dtype=object), np.array([[other]], dtype=object))


def test_a_word_that_one_record_repeats_is_no_more_frequent() -> None:
    repeated, once = (
        of_titles(titles(title, "other"), "word", "word") for title in ("word word word", "word")
    )
    assert repeated["title: rarest token in both"] == once["title: rarest token in both"]


@given(TEXT, TEXT, st.integers(0, 3))
def test_texts_score_as_rapidfuzz_does(one: str, other: str, shared: int) -> None:
    one, other = f"{one} word" + " shared words" * shared, f"{other} word" + " shared words" * shared
    got = of_titles(titles("sony tv", "nikon camera"), one, other)
    one, other = normal_form(one, "text"), normal_form(other, "text")
    one, other = one[:64], other[:64]
    assert got["title: Levenshtein"] == pytest.approx(Levenshtein.normalized_similarity(one, other))
    assert got["title: Jaro-Winkler"] == pytest.approx(JaroWinkler.similarity(one, other), abs=1e-6)


class TestTokens:
    corpus = titles("sony alpha camera", "sony beta lens", "nikon camera", "canon camera x100", "sony tv")

    def test_rare_tokens_weigh_more(self) -> None:
        common = of_titles(self.corpus, "sony nikon", "sony canon")
        rare = of_titles(self.corpus, "nikon sony", "nikon camera")
        assert common["title: tokens, share of both"] < rare["title: tokens, share of both"]

    def test_shares_are_as_the_formula_has_them(self) -> None:
        got = of_titles(self.corpus, "sony alpha", "sony camera lens")
        n = 5
        sony, camera, once = math.log((1 + n) / 4), math.log((1 + n) / 4), math.log((1 + n) / 2)
        low, high = sony / (sony + camera + once), sony / (sony + once)
        assert got["title: tokens, lower share"] == pytest.approx(low, rel=1e-6)
        assert got["title: tokens, higher share"] == pytest.approx(high, rel=1e-6)
        assert got["title: rarest token in one, higher"] == pytest.approx(1.0)

    @pytest.mark.parametrize(
        ("one", "other", "share"),
        [
            ("macbook", "mac book", 0.95),  # inside the other side's squeezed text
            ("nakamura", "nakamora", 0.95),  # alike by letters
            ("x100", "x200", 0.0),  # digits are never merely alike
            ("camera", "tv", 0.0),
        ],
    )
    def test_tokens_match_softly(self, one: str, other: str, share: float) -> None:
        assert of_titles(self.corpus, one, other)["title: tokens, higher share"] == pytest.approx(
            share, abs=0.01
        )

    def test_numbers_and_models_are_compared_as_such(self) -> None:
        got = of_titles(self.corpus, "photo 7.0 mac lds4821ww", "photo 7 win lds4821wh")
        assert (got["title: numbers, containment"], got["title: model tokens, containment"]) == (1.0, 0.0)
        assert got["title: model tokens, best"] == pytest.approx(8 / 9)

    def test_a_cell_of_32_000_characters_is_compared(self) -> None:
        assert np.isfinite(of_titles(self.corpus, "word " * 6_400, "other " * 5_000)["title: Levenshtein"])


class TestPairs:
    @given(st.lists(CELLS, min_size=2, max_size=6))
    def test_swapped_sides_give_the_same_to_the_last_bit_and_alone_as_in_a_batch(
        self, rows: list[Any]
    ) -> None:
        cells = records(rows)
        comparators = Comparators(SCHEMA).fit(cells)
        prepared = comparators.prepare(cells)
        left, right = (side.ravel().astype(np.int64) for side in np.indices((len(rows), len(rows))))
        forward = comparators.compare(prepared, left, prepared, right)
        assert forward.tobytes() == comparators.compare(prepared, right, prepared, left).tobytes()
        assert not np.isinf(forward).any()
        zero = np.zeros(1, dtype=np.int64)
        alone = comparators.compare(
            comparators.prepare(cells[:1]), zero, comparators.prepare(cells[1:2]), zero
        )
        assert alone.tobytes() == forward[1:2].tobytes()

    @given(st.lists(CELLS, min_size=2, max_size=6))
    def test_what_one_side_lacks_is_not_read_on_the_other(self, rows: list[Any]) -> None:
        cells = records(rows)
        comparators = Comparators(SCHEMA).fit(cells)
        left, right = (side.ravel().astype(np.int64) for side in np.indices((len(rows), len(rows))))
        missing = np.equal(cells[left], None) | np.equal(cells[right], None)
        blanked = [np.where(missing, None, cells[side]) for side in (left, right)]
        numbers = np.arange(left.size)
        prepared = comparators.prepare(cells)
        sides = [comparators.prepare(side) for side in blanked]
        expected = comparators.compare(sides[0], numbers, sides[1], numbers)
        assert comparators.compare(prepared, left, prepared, right).tobytes() == expected.tobytes()

    def test_texts_are_compared_to_their_end_alone_and_in_a_batch(self) -> None:
        start = "word " * 100
        cells = np.array([[f"{start}one"], [f"{start}two"], [f"{start}one"]], dtype=object)
        comparators, sides = titles("word", "one"), np.array([[0, 0, 0], [1, 2, 0]])
        prepared = comparators.prepare(cells)
        place = comparators.features.index(("title", "level"))
        assert comparators.compare(prepared, sides[0], prepared, sides[1])[:, place].tolist() == [3, 4, 4]
        for number, expected in enumerate([3, 4, 4]):
            alone = comparators.compare(prepared, sides[0, :1], prepared, sides[1, number : number + 1])
            assert alone[0, place] == expected

    def test_no_pairs_have_no_features(self) -> None:
        comparators = Comparators(SCHEMA).fit(records([(None,) * 7]))
        prepared, nobody = comparators.prepare(records([(None,) * 7])), np.empty(0, dtype=np.int64)
        assert comparators.compare(prepared, nobody, prepared, nobody).shape == (0, len(comparators.features))

    def test_what_one_side_lacks_often_is_read_on_the_other(self) -> None:
        cells = records(
            [("a b", None, "a", 1.0, None, None, None), ("b", "a b", None, 1.0, None, None, None)]
        )
        comparators = Comparators(SCHEMA).fit(cells)
        prepared, left, right = comparators.prepare(cells), np.zeros(1, np.int64), np.ones(1, np.int64)
        blanked = comparators.compare(prepared, left, prepared, right)
        comparators.learn_patterns(prepared.missing[left], prepared.missing[right])
        often = dict(
            zip(
                map(": ".join, comparators.features),
                comparators.compare(prepared, left, prepared, right)[0],
                strict=True,
            )
        )
        assert (often["notes: missing"], often["all fields: tokens, lower share"]) == (1, 1)
        assert (
            dict(zip(map(": ".join, comparators.features), blanked[0], strict=True))[
                "all fields: tokens, lower share"
            ]
            < 1
        )
        swapped = comparators.compare(prepared, right, prepared, left)[0]
        assert swapped.tolist() == pytest.approx(list(often.values()), nan_ok=True)

    def test_a_missing_cell_is_no_number(self) -> None:
        full = ("a b", "c", "a", 0.0, 0.0, 1.0, (0.0, 0.0))
        comparators = Comparators(SCHEMA).fit(records([full, full]))
        got = features(comparators, records([full]), records([(None,) * 7]))
        assert all(got[f"{column.name}: missing"] == 2 for column in SCHEMA.fields)
        for name, value in got.items():
            assert name.endswith("missing") or np.isnan(value), name

    def test_numbers_dates_and_places_are_measured(self) -> None:
        one = ("a", "b", "a", 50.0, 100.0, 1.0, (48.8566, 2.3522))
        other = ("a", "b", "b", -200.0, 131.0, 0.0, (51.5074, -0.1278))
        got = features(Comparators(SCHEMA).fit(records([one, other])), records([one]), records([other]))
        assert (got["price: difference"], got["price: ratio"], got["day: days between"]) == (250, -0.25, 31)
        assert (got["ok: level"], got["at: kilometres"]) == (1, pytest.approx(343.6, abs=0.5))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Zoë", "zoe", True), ("Ñandú", "nandu", True), ("Ωμέγα", "ωμεγα", True), ("が", "か", False),
        ("パ", "ハ", False), ("й", "и", False), ("क्", "क", False), ("ё", "е", False), ("が", "か\u3099", True),
        ("ﬁn", "fin", True),
    ],
)  # fmt: skip
def test_accents_fold_and_letters_of_their_own_do_not(one: str, other: str, alike: bool) -> None:
    assert (normal_form(one, "text") == normal_form(other, "text")) is alike


OF_NAMES = declare_schema({"name": "name", "note": "text", "kind": "category", "size": "number"})
WORDS = st.lists(st.sampled_from(["ann", "anna", "bo", "lee", "smith", "smyth", ""]), max_size=3).map(
    " ".join
)
RECORD = st.fixed_dictionaries(
    {
        "name": WORDS,
        "note": WORDS,
        "kind": st.sampled_from(["a", "b", None]),
        "size": st.sampled_from([1.5, None]),
    }
)
TYPES = {
    "given": "name", "surname": "name", "address": "text", "born": "date:YYYY-MM-DD", "code": "text",
    "member": "boolean", "weight": "number", "home": "place",
}  # fmt: skip


def keys_by_hand(record: dict[str, Any]) -> set[Any]:
    keys: set[Any] = {(name, record[name]) for name in ("kind", "size") if record[name] is not None}
    # Words of a name are in an order of their own.
    for cell in (" ".join(sorted(record["name"].split())), record["note"].strip()):
        keys |= {("token", token) for token in cell.split()}
        padded = f" {cell} "
        keys |= {("gram", padded[at : at + 3]) for at in range(len(padded) - 2)} if cell else set()
    return keys


def nominated_by_hand(query: dict[str, Any], records: list[dict[str, Any]], alive: Any, n: int) -> list[int]:
    of_rows = [keys_by_hand(record) for record in records]
    shared = {}
    for row, keys in enumerate(of_rows):
        common = keys & keys_by_hand(query)
        if common and alive[row]:
            worth = [
                (0.25 if key[0] == "gram" else 1.0)
                * np.log2((1 + len(records)) / sum(key in other for other in of_rows))
                for key in common
            ]
            shared[row] = sum(max(round(256 * one), 1) for one in worth)
    return sorted(shared, key=lambda row: (-shared[row], row))[:n]


@given(st.data())
def test_candidates_are_those_that_counting_shared_keys_finds(data: st.DataObject) -> None:
    records = data.draw(st.lists(RECORD, min_size=2, max_size=12))
    query = data.draw(RECORD)
    alive = np.array(data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records))))
    cut = data.draw(st.integers(0, len(records)))
    n = data.draw(st.integers(1, 5))
    cells = OF_NAMES.records(records)
    comparators = Comparators(OF_NAMES).fit(cells)
    keys = np.unique(keys_of(comparators, comparators.prepare(OF_NAMES.records([query])))[0])
    # However a gallery is cut into parts, its best are the same.
    cuts = [part for part in (slice(0, cut), slice(cut, None)) if cells[part].size]
    parts = [Postings.of(*keys_of(comparators, comparators.prepare(cells[part]))) for part in cuts]
    masks, sizes = [alive[part] for part in cuts], [len(cells[part]) for part in cuts]
    candidates = nominate(keys, parts, masks, sizes, n)
    merged = sorted(
        (-int(worth), int(row) + (part.start or 0))
        for part, (rows, shared) in zip(cuts, candidates, strict=True)
        for row, worth in zip(rows, shared, strict=True)
    )
    assert [row for _, row in merged[:n]] == nominated_by_hand(query, records, alive, n)


def test_common_keys_are_passed_over_once_the_budget_is_spent() -> None:
    cells = OF_NAMES.records(
        [{"name": f"common rare{row}", "note": "", "kind": "a", "size": None} for row in range(50)]
    )
    comparators = Comparators(OF_NAMES).fit(cells)
    part = Postings.of(*keys_of(comparators, comparators.prepare(cells)))
    keys = np.unique(keys_of(comparators, comparators.prepare(cells[7:8]))[0])
    rows, _ = nominate(keys, [part], [None], [50], max_postings=3)[0]
    assert rows[0] == 7
    assert rows.size < 5


@pytest.fixture(scope="module")
def model() -> FellegiSunter:
    table, _ = people(300, seed=1)
    return FellegiSunter(columns=TYPES, n_pairs=5_000).fit(table)


def test_mistyped_people_are_candidates_and_a_saved_index_finds_the_same(
    model: FellegiSunter, tmp_path: Path
) -> None:
    table, _ = people(3_000, seed=5)
    cells = model._validated(table, "table")
    enrolled, probes = cells[::2], cells[1::2]
    index = model.index(enrolled)
    index.save(tmp_path / "index")
    mapped = model.open_index(tmp_path / "index")
    assert len(index) > neighbors.MAX_SCORED
    hits = 0
    for row in range(300):
        rows, shared = model.candidates(probes[row : row + 1], neighbors.N_CANDIDATES, [index], [None])[0]
        assert rows.shape[1] <= neighbors.N_CANDIDATES
        assert (np.diff(shared[0]) <= 0).all()
        hits += row in rows[0]
        again = model.candidates(probes[row : row + 1], neighbors.N_CANDIDATES, [mapped], [None])[0]
        assert (again[0] == rows).all()
    assert hits >= 297
