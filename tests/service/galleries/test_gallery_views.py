"""Views hold exactly what rows say, however processes interleave; what was erased is in no file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url, text

from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.galleries import repository
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.live_gallery import LiveGallery
from pairmark.service.galleries.metadata import parse_filter
from pairmark.service.galleries.rows import RowChecks, RowErrors, VectorForm, id_text
from pairmark.service.settings import Settings
from tests.service.galleries.conftest import WIDTH, rows, served
from tests.serving import until

pytestmark = pytest.mark.each_database


def brute(
    estimator: Any, truth: dict[str, Any], query: np.ndarray, k: int, *, by_subject: bool = False
) -> list[Any]:
    """What a search must return, by scoring every item."""
    names = list(truth)
    if not names:
        return []
    scores = estimator.pair_score(query[None], np.array([truth[name][0] for name in names], dtype=np.float32))
    order = sorted(range(len(names)), key=lambda at: (-float(scores[at]), names[at]))
    found, seen = [], set()
    for at in order:
        whose = truth[names[at]][1]
        key = ("item", names[at]) if whose is None else ("subject", whose)
        if not by_subject or key not in seen:
            seen.add(key)
            found.append((names[at], whose, float(scores[at])))
    return found[:k]


IDS = [f"id-{number}" for number in range(14)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.lists(st.sampled_from(IDS), min_size=1, max_size=9, unique=True)),
        st.tuples(st.just("erase"), st.sampled_from(IDS)),
        st.tuples(st.just("subject"), st.sampled_from(["a", "b", "c"])),
        st.tuples(st.just("look"), st.integers(0, 1)),
        st.tuples(st.just("compact"), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.integers(0, 1)),
    ),
    min_size=4,
    max_size=14,
)


@pytest.mark.parametrize(
    ("kind", "kept_removals"), [("metric", 3), ("metric", 10**6), ("similarity-forest", 10**6)]
)
def test_every_interleaving_gives_what_brute_force_gives(
    galleries: Galleries,
    estimators: dict[str, Any],
    kind: str,
    kept_removals: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Who is further behind than removals are kept must read everything anew.
    monkeypatch.setattr(repository, "LISTED_REMOVALS", kept_removals)
    estimator = estimators[kind]
    count = 0

    @settings_for(galleries)
    @given(steps=STEPS, seed=st.integers(0, 2**16))
    def run(steps: list[Any], seed: int) -> None:
        nonlocal count
        count += 1
        name = f"g{count}"
        rng = np.random.default_rng(seed)
        galleries.put(name, served(estimator))
        state = galleries.state(name)
        # Two views on one folder, as two processes have; what is written goes through the first one's.
        pair = [
            galleries.views.live(state, estimator),
            LiveGallery(galleries.database, galleries.views.disk(state), state, estimator),
        ]
        truth: dict[str, Any] = {}
        for what, argument in [*steps, ("look", 0), ("look", 1)]:
            if what == "upsert":
                new = {
                    one: (
                        rng.integers(0, 3, WIDTH).astype(np.float32),
                        rng.choice(["a", "b", "c", None]),
                        None,
                    )
                    for one in argument
                }
                galleries.write(name, [rows(new)], RowErrors(), served(estimator))
                truth.update(new)
            elif what == "erase":
                if argument in truth:
                    galleries.erase(name, id=argument)
                    del truth[argument]
            elif what == "subject":
                receipt = galleries.erase(name, subject=argument)
                mine = [one for one, item in truth.items() if item[1] == argument]
                assert receipt.items == len(mine)
                for one in mine:
                    del truth[one]
            elif what == "restart":
                pair[argument] = LiveGallery(
                    galleries.database, galleries.views.disk(state), state, estimator
                )
            elif what == "compact":
                while pair[argument].compact():
                    pass
            else:
                view = pair[argument].view(galleries.state(name).seq)
                assert view.n_items == len(truth)
                query = rng.integers(0, 3, WIDTH).astype(np.float32)
                for by_subject in (False, True):
                    k = int(rng.integers(1, 20))
                    hits = view.search(query[None], k, by_subject=by_subject)[0]
                    assert [(hit.id, hit.subject, hit.score) for hit in hits] == brute(
                        estimator, truth, query, k, by_subject=by_subject
                    )
        for other in pair:
            while other.compact():
                pass
        galleries.delete(name)
        assert not galleries.views.disk(state).path.exists()

    run()


def test_a_write_is_taken_in_before_the_next_search(galleries: Galleries, estimators: dict[str, Any]) -> None:
    estimator, rng = estimators["metric"], np.random.default_rng(0)
    galleries.put("g", served(estimator))
    live = galleries.views.live(galleries.state("g"), estimator)

    def has_been_taken_in(n: int) -> bool:
        new = {f"i{at}": (rng.normal(size=WIDTH).astype(np.float32), None, None) for at in range(n)}
        galleries.write("g", [rows(new)], RowErrors(), served(estimator))
        return live.cached(galleries.state("g").seq) is not None

    # Nobody searches yet.
    assert not has_been_taken_in(3)
    for _ in range(2):
        live.view(galleries.state("g").seq)
        assert has_been_taken_in(2)
    # Nobody searched since: it can wait. Many rows are made a segment of, which a write does not wait for.
    assert not has_been_taken_in(2)
    live.view(galleries.state("g").seq)
    assert not has_been_taken_in(20)
    live.view(galleries.state("g").seq)
    assert has_been_taken_in(1)
    # What the background takes in is no search.
    assert not has_been_taken_in(20)
    seq = galleries.state("g").seq
    galleries.views.in_background(live, seq)
    until(lambda: live.cached(seq), "the background has taken them in")
    assert not has_been_taken_in(2)


def settings_for(galleries: Galleries) -> Any:
    """More examples where a commit is cheap."""
    return settings(max_examples=20 if galleries.database.is_sqlite else 6)


def test_filters_choose_before_ranking(galleries: Galleries, estimators: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    estimator = estimators["metric"]
    galleries.put("g", served(estimator))
    items = {}
    for number in range(30):
        facts = json.dumps({"site": "ns"[number % 2], "year": 2000 + number % 5, "vip": number % 7 == 0})
        items[f"i{number:02}"] = (rng.normal(size=WIDTH), None, facts if number % 10 else None)
    galleries.write("g", [rows(items)], RowErrors(), None)
    state = galleries.state("g")
    assert sorted(state.fields) == ["site", "vip", "year"]
    view = galleries.views.live(state, estimator).view(state.seq)

    def chosen(given: Any) -> list[int]:
        hits = view.search(
            np.zeros((1, WIDTH), np.float32) + 1, 100, conditions=parse_filter(given, state.fields)
        )[0]
        return sorted(int(hit.id[1:]) for hit in hits)

    kept = [number for number in range(30) if number % 10]
    assert chosen({"site": "n"}) == [n for n in kept if n % 2 == 0]
    assert chosen({"site": {"in": ["n", "zzz"]}, "year": 2003}) == [
        n for n in kept if n % 2 == 0 and n % 5 == 3
    ]
    assert chosen({"year": {"gte": 2001, "lt": 2003}}) == [n for n in kept if n % 5 in (1, 2)]
    assert chosen({"vip": True}) == [n for n in kept if n % 7 == 0]
    assert chosen({"vip": 1}) == []
    assert chosen({"site": {"gt": "n"}}) == [n for n in kept if n % 2 == 1]
    for wrong in (
        {"nope": 1},
        {"site": {"between": [1, 2]}},
        {"year": {"gte": 1, "lt": "b"}},
        [1],
        {"site": {"in": []}},
    ):
        with pytest.raises(InvalidInput, match="filter"):
            parse_filter(wrong, state.fields)


def test_segments_are_merged_and_survive_damage(galleries: Galleries, estimators: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    estimator = estimators["metric"]
    galleries.put("g", served(estimator))
    truth: dict[str, Any] = {}
    state = galleries.state("g")
    live = LiveGallery(galleries.database, galleries.views.disk(state), state, estimator)
    for start in range(0, 60, 3):
        new = {f"n{start + at}": (rng.normal(size=WIDTH).astype(np.float32), None, None) for at in range(3)}
        galleries.write("g", [rows(new)], RowErrors(), None)
        truth.update(new)
        live.view(galleries.state("g").seq)
        while live.compact():
            pass
    folders = [path for path in live.disk.folder.iterdir() if not path.name.startswith(".")]
    assert 0 < len(folders) <= 10
    damaged: list[Path] = [folders[0] / "segment.json", folders[-1] / "index" / "manifest.json"]
    damaged[0].write_text("{")
    if damaged[1].exists():
        damaged[1].write_text("{}")
    (live.disk.folder / ".part-left").mkdir()
    fresh = LiveGallery(galleries.database, galleries.views.disk(state), state, estimator)
    query = rng.normal(size=WIDTH).astype(np.float32)
    hits = fresh.view(galleries.state("g").seq).search(query[None], 60)[0]
    assert [(hit.id, hit.subject, hit.score) for hit in hits] == brute(estimator, truth, query, 60)
    assert not list(live.disk.folder.glob(".part-*"))


def test_a_gallery_moves_to_another_version_while_the_first_serves(
    galleries: Galleries, estimators: dict[str, Any]
) -> None:
    first, second = served(estimators["metric"]), served(estimators["similarity-forest"], version=2)
    galleries.put("g", first)
    items = {f"n{at}": (np.full(WIDTH, at, dtype=np.float32), "s", None) for at in range(9)}
    # Some replace others, which are counted once.
    galleries.write("g", [rows(dict(list(items.items())[:4]))], RowErrors(), None)
    galleries.write("g", [rows(items)], RowErrors(), None)
    reported, made = galleries.put("g", second)
    assert not made
    assert reported.model.version == 2
    now = galleries.state("g")
    assert (now.version, now.items) == (2, 9)
    hits = (
        galleries.views.live(now, second.estimator)
        .view(now.seq)
        .search(np.ones((1, WIDTH), np.float32), 3)[0]
    )
    assert len(hits) == 3


ODD = (
    *(".", "..", "../x", "a/../b", "a/.", "..\\x", "a\\."),
    *(
        "a\x00",
        "a\n",
        "a\x7f",
        "a\x85",
        "a\u061c",
        "\u200ea",
        "a\u200f",
        "\u202ab",
        "a\u202eb",
        "\u2066b",
        "a\u2069",
    ),
    *("", "x" * 513, "é" * 257, "\u0958" * 171, "\ud800"),
)


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text[:10]))
def test_texts_that_could_pass_for_another_are_no_ids(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^subject (has|holds) .*(expected|characters)"):
        id_text(text, "subject")
    errors = RowErrors()
    rows = RowChecks(VectorForm(1), errors).rows(
        0, [text, "a"], np.zeros((2, 1), dtype=np.float32), None, None
    )
    assert (rows.ids, errors.count) == (["a"], 1)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("Zoe\u0308", "Zo\u00eb"),
        ("e\u0301" * 256, "\u00e9" * 256),
        ("x" * 512, "x" * 512),
        ("a..b/.c/...", "a..b/.c/..."),
        ("%2e%2e", "%2e%2e"),
        ("//", "//"),
        (np.str_("a"), "a"),
        (np.int64(7), "7"),
    ],
)
def test_other_texts_are_stored_in_nfc(text: Any, stored: str) -> None:
    assert id_text(text, "id") == stored
    assert type(id_text(text, "id")) is str


def test_subjects_are_stored_in_one_spelling_and_none_is_a_word_for_nobody() -> None:
    errors = RowErrors()
    subjects = ["p1 ", " Zoe\u0308", "p1", None, "unknown", "N/A ", " "]
    rows = RowChecks(VectorForm(1), errors).rows(
        0, [f"i{at}" for at in range(7)], np.zeros((7, 1), dtype=np.float32), subjects, None
    )
    assert rows.subjects == ["p1", "Zo\u00eb", "p1", None]
    assert [error["row"] for error in errors.items] == [4, 5, 6]
    assert "names nobody" in errors.items[0]["detail"]


def test_more_items_than_are_taken_say_what_they_would_take(
    galleries: Galleries, estimators: dict[str, Any]
) -> None:
    galleries._settings.max_gallery_items = 3_000
    galleries.put("large", served(estimators["metric"]))
    wide = np.ones((3_001, WIDTH), dtype=np.float32)
    few, more = ({f"id-{at}": (wide[at], None, None) for at in part} for part in (range(3_000), range(3_001)))
    with pytest.raises(
        TooLarge,
        match=r"3,001 items; at most 3,000 .*0\.00014 GB of disk, and up to as .*PAIRMARK_MAX_GALLERY_ITEMS",
    ):
        galleries.write("large", [rows(more)], RowErrors(), None)
    assert galleries.write("large", [rows(few)], RowErrors(), None).upserted == 3_000
    # Of a full gallery, and of one that holds more than are taken by now, items can be replaced, and none be added.
    for most in (3_000, 2_000):
        galleries._settings.max_gallery_items = most
        assert galleries.write("large", [rows(few)], RowErrors(), None).upserted == 3_000
        with pytest.raises(TooLarge, match="3,001 items"):
            galleries.write("large", [rows({"id-0": few["id-0"], "new": few["id-1"]})], RowErrors(), None)
    assert galleries.state("large").items == 3_000


SIZES = (50, 5)


class Killed(BaseException):
    """What nobody catches, as nobody catches SIGKILL."""


def holds(folder: Path, *needles: bytes, pattern: str = "*") -> list[str]:
    """Files under a folder that hold one of these bytes."""
    bodies = {path: path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}
    return [f"{path}: {needle!r}" for path, body in bodies.items() for needle in needles if needle in body]


@pytest.mark.parametrize("in_tail", [False, True])
def test_nothing_of_an_erased_subject_is_left(
    galleries: Galleries, estimators: dict[str, Any], settings: Settings, in_tail: bool
) -> None:
    rng, estimator = np.random.default_rng(0), estimators["metric"]
    galleries.put("g", served(estimator))
    others = {
        f"other-{at:03}": (rng.normal(size=WIDTH).astype(np.float32), "somebody", None) for at in range(120)
    }
    secret_old, secret = rng.normal(size=WIDTH).astype(np.float32), rng.normal(size=WIDTH).astype(np.float32)
    facts = json.dumps({"note": "METADATA-OF-ANNA"})
    galleries.write("g", [rows({"id-of-anna": (secret_old, "subject-anna", facts)})], RowErrors(), None)
    galleries.write("g", [rows(others)], RowErrors(), None)
    state = galleries.state("g")
    live = LiveGallery(galleries.database, galleries.views.disk(state), state, estimator)
    live.view(state.seq)
    # Replaced: the first vector is dead in a block, the second is in another or in the tail.
    galleries.write("g", [rows({"id-of-anna": (secret, "subject-anna", facts)})], RowErrors(), None)
    if not in_tail:
        more = {f"more-{at:03}": (rng.normal(size=WIDTH).astype(np.float32), None, None) for at in range(30)}
        galleries.write("g", [rows(more)], RowErrors(), None)
    view = live.view(galleries.state("g").seq)
    assert view.search(secret[None], 1)[0][0].id == "id-of-anna"
    needles = [b"id-of-anna", b"subject-anna", b"METADATA-OF-ANNA", secret.tobytes(), secret_old.tobytes()]
    assert holds(settings.home, *needles)

    receipt = galleries.erase("g", subject="subject-anna")
    assert (receipt.items, receipt.index_blocks) == (1, 1 if in_tail else 2)
    assert holds(settings.home, *needles) == []
    if galleries.database.is_sqlite:
        assert receipt.database_complete
        file = Path(make_url(settings.resolved_database_url).database or "")
        assert holds(file.parent, *needles, pattern=f"{file.name}*") == []
    else:
        assert not receipt.database_complete
        assert any("VACUUM" in said for said in receipt.pending)
    # The view lets go of it, makes its blocks anew, and they hold nothing either.
    view = live.view(galleries.state("g").seq)
    assert all(hit.id != "id-of-anna" for hit in view.search(secret[None], 200)[0])
    while live.compact():
        pass
    assert not live.needs_compaction()
    assert holds(settings.home, *needles) == []
    assert len(live.view(0).search(secret[None], 500)[0]) == (120 if in_tail else 150)


def test_an_erasure_cut_short_is_completed_when_it_is_asked_for_again(
    galleries: Galleries, estimators: dict[str, Any], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, estimator = np.random.default_rng(1), estimators["metric"]
    galleries.put("g", served(estimator))
    items = {f"n{at:03}": (rng.normal(size=WIDTH).astype(np.float32), "anna", None) for at in range(40)}
    galleries.write("g", [rows(items)], RowErrors(), None)
    state = galleries.state("g")
    LiveGallery(galleries.database, galleries.views.disk(state), state, estimator).view(state.seq)
    with monkeypatch.context() as patch:
        patch.setattr(
            type(galleries.views.disk(state)),
            "remove_segments_with",
            lambda *_: (_ for _ in ()).throw(Killed),
        )
        with pytest.raises(Killed):
            galleries.erase("g", id="n007")
    assert holds(settings.home / "galleries", b"n007")
    # Whoever opens the gallery next sees the erasure in the database and drops the files.
    fresh = LiveGallery(galleries.database, galleries.views.disk(state), state, estimator)
    view = fresh.view(galleries.state("g").seq)
    assert all(hit.id != "n007" for hit in view.search(np.ones((1, WIDTH), np.float32), 50)[0])
    assert not holds(settings.home / "galleries", b"n007")


def test_what_deleted_galleries_leave_is_swept(
    galleries: Galleries, estimators: dict[str, Any], settings: Settings
) -> None:
    rng, estimator = np.random.default_rng(2), estimators["metric"]
    galleries.put("g", served(estimator))
    items = {f"n{at:03}": (rng.normal(size=WIDTH).astype(np.float32), None, None) for at in range(10)}
    galleries.write("g", [rows(items)], RowErrors(), None)
    state = galleries.state("g")
    LiveGallery(galleries.database, galleries.views.disk(state), state, estimator).view(state.seq)
    assert holds(settings.home, b"n003")
    with galleries.database.write() as session:
        session.execute(text("DELETE FROM galleries"))
    galleries.sweep()
    assert not holds(settings.home, b"n003")
    with galleries.database.read() as session:
        assert session.scalar(text("SELECT count(*) FROM gallery_items")) == 0
    # The number is not used again, and a gallery of that name starts empty.
    galleries.put("g", served(estimator))
    assert galleries.state("g").items == 0
