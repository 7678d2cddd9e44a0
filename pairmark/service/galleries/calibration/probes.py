"""Labelled probes, one a subject: read from a dataset or a request, and ranked in a gallery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.identification import leave_one_subject_out
from pairmark.models.core.progress import report
from pairmark.schemas.galleries import ProbesRequest
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.errors import Conflict, InvalidInput
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.index.gallery_view import ItemHit
from pairmark.service.galleries.index.subject_search import SubjectHit
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.item_forms import (
    ItemForm,
    Matrix,
    RecordForm,
    VectorForm,
    form_of,
    refuse_wholes,
)
from pairmark.service.galleries.items.rows import StoredRows, subject_text
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.heldout.encoding import cells_for
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.store.store import ModelStore

MAX_LEFT_OUT = 2_000
"""Enrolled subjects that are searched among the others for an estimate."""

Search = Callable[[Matrix, int], Sequence[Sequence[ItemHit | SubjectHit]]]
"""Probes and k -> the k best subjects of each."""


@dataclass(frozen=True, kw_only=True)
class Probes:
    """One probe a subject.

    Attributes
    ----------
    vectors : (n, d), as the model takes them. bodies : the same as the database stores them.
    subjects : n different texts. enrolled : (n,) whether the gallery has the subject.
    """

    vectors: Matrix
    bodies: list[bytes]
    subjects: list[str]
    enrolled: NDArray[np.bool_]


class ProbeReader:
    """Reads what a request names, and looks up who is enrolled (all blocking)."""

    def __init__(self, galleries: Galleries, datasets: Datasets, store: ModelStore) -> None:
        self._galleries = galleries
        self._datasets = datasets
        self._store = store

    def read(
        self, name: str, version: LoadedVersion, request: ProbesRequest, *, refuse_overlap: bool
    ) -> tuple[GalleryState, Probes, list[str]]:
        """The gallery, one probe a subject, and warnings."""
        state = self._galleries.state(name)
        if (state.model_id, state.version) != (version.entry.model_id, version.entry.version):
            raise Conflict(f"gallery {name!r} moved to another version just now: ask again")
        if not state.items:
            raise Conflict(f"gallery {name!r} is empty: enrol people first")
        form = form_of(version.estimator, state.dimension)
        if request.aggregation is not None:
            refuse_wholes(form)
        raw_rows, subjects, warnings = self._labelled(version, request, form, refuse_overlap)
        if isinstance(form, VectorForm) and raw_rows.shape[1] != state.dimension:
            raise InvalidInput(
                f"probes have {raw_rows.shape[1]} numbers; the gallery's vectors have {state.dimension}",
                field="vectors",
                expected_dimension=state.dimension,
            )
        # One probe a subject, drawn without a look at scores: several of one person are not independent.
        order = np.random.default_rng(request.random_state).permutation(len(subjects))
        first: dict[str, int] = {}
        for at in order.tolist():
            first.setdefault(subjects[at], at)
        rows = sorted(first.values())
        drawn_subjects = [subjects[at] for at in rows]
        with self._galleries.database.read() as session:
            stamps = item_repository.stamps(session, state.id, drawn_subjects)
        enrolled = np.array([subject in stamps for subject in drawn_subjects], dtype=np.bool_)
        drawn_rows = raw_rows[rows]
        vectors = form.model_rows(drawn_rows) if isinstance(form, RecordForm) else drawn_rows
        probes = Probes(
            vectors=vectors, bodies=form.bodies(drawn_rows), subjects=drawn_subjects, enrolled=enrolled
        )
        return state, probes, warnings

    def _labelled(
        self, version: LoadedVersion, request: ProbesRequest, form: ItemForm, refuse_overlap: bool
    ) -> tuple[Matrix, list[str], list[str]]:
        if (request.dataset is None) == (request.vectors is None):
            raise InvalidInput("expected either dataset, or vectors and subjects", field="dataset")
        if request.dataset is not None:
            return self._of_dataset(version, request.dataset, form, refuse_overlap)
        rows, subjects = request.vectors, request.subjects
        if rows is None or not len(rows) or subjects is None or len(subjects) != len(rows):
            n, n_rows = (0 if given is None else len(given) for given in (subjects, rows))
            raise InvalidInput(
                f"there are {n_rows} vectors and {n} subjects; expected equal numbers, at least one",
                field="subjects",
            )
        whose = [subject_text(subject, "subjects") for subject in subjects]
        if isinstance(form, RecordForm) or isinstance(rows[0], dict):
            cells, problems = form.read_json(rows)
            bad = next((at for at, problem in enumerate(problems) if problem is not None), None)
            if bad is not None:
                raise InvalidInput(f"vectors[{bad}]: {problems[bad]}", field=f"vectors[{bad}]")
            return cells, whose, []
        if len({len(row) for row in rows}) != 1:
            raise InvalidInput("vectors are of different lengths; expected one", field="vectors")
        with np.errstate(over="ignore"):
            vectors = np.array(rows, dtype=np.float32)
        if not vectors.shape[1] or not np.isfinite(vectors).all():
            raise InvalidInput(
                "vectors hold NaN, infinities or nothing; expected finite numbers", field="vectors"
            )
        return vectors, whose, []

    def _of_dataset(
        self, version: LoadedVersion, reference: str, form: ItemForm, refuse_overlap: bool
    ) -> tuple[Matrix, list[str], list[str]]:
        data = self._datasets.load(self._datasets.get(reference).id)
        if data.y is None:
            raise InvalidInput(
                f"dataset {data.name}:{data.version} has no labels; expected the subject of each row as its label",
                field="dataset",
            )
        overlap = self._store.overlap(version.entry.name, version.entry.version, data, refuse=refuse_overlap)
        warnings = []
        if overlap is not None and (overlap.rows or overlap.identities):
            warnings.append(
                f"{overlap.rows} rows and {overlap.identities} identities of the probes were trained on: figures may "
                "be too good"
            )
        schema = form.schema if isinstance(form, RecordForm) else None
        X: Any = cells_for(schema, data)
        vectors = (
            X if schema is not None else np.array(X.toarray() if data.is_sparse else X, dtype=np.float32)
        )
        names = [subject_text(identity, "dataset: a label") for identity in data.identities]
        return vectors, [names[code] for code in np.asarray(data.y).tolist()], warnings


def ranks_of(search: Search, probes: Probes, records: NDArray[np.void], max_rank: int) -> NDArray[np.int64]:
    """Rank of each enrolled probe's own subject among subjects, ties against it; max_rank + 1 for later. ``records``:
    the probes' scores, see `RECORD`."""
    enrolled = np.flatnonzero(records["own_items"] > 0)
    ranks: list[int] = []
    for at in enrolled.tolist():
        report(0.4 + 0.4 * len(ranks) / enrolled.size, "ranking the enrolled")
        hits = search(probes.vectors[at : at + 1], max_rank + 1)[0]
        own_score = records["own"][at]
        n_better = sum(
            hit.subject != probes.subjects[at] and np.float32(hit.score) >= own_score for hit in hits
        )
        ranks.append(min(1 + n_better, max_rank + 1))
    return np.array(ranks, dtype=np.int64)


def search_left_out(
    search: Search, items: Iterable[StoredRows], threshold: float, confidence: float
) -> dict[str, Any] | None:
    """Search for enrolled subjects, one item each, among the others."""
    best: dict[str, float] = {}
    for rows in items:
        for at, subject in enumerate(rows.subjects):
            if subject is None or subject in best or len(best) >= MAX_LEFT_OUT:
                continue
            report(0.8 + 0.2 * len(best) / MAX_LEFT_OUT, "leaving one out")
            hits = search(rows.vectors[at : at + 1], 2)[0]
            best[subject] = next((hit.score for hit in hits if hit.subject != subject), -np.inf)
        if len(best) >= MAX_LEFT_OUT:
            break
    if len(best) < 2:
        return None
    return leave_one_subject_out(np.array(list(best.values())), np.array(list(best)), threshold, confidence)
