"""What was erased is in no file: not in rows, the log, index blocks, nor in what a killed process left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import make_url, text

from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.live_gallery import LiveGallery
from pairmark.service.galleries.rows import RowErrors
from pairmark.service.settings import Settings
from tests.service.galleries.gallery_cases import WIDTH, rows, served

pytestmark = pytest.mark.each_database
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
    assert receipt.items == 1
    assert receipt.index_blocks == (1 if in_tail else 2)
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
