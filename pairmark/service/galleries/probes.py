"""Labelled probes: of a dataset, or sent with the request; one a subject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.service.datasets.ingest import Datasets
from pairmark.service.errors import Conflict, InvalidInput
from pairmark.service.galleries import item_repository
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.rows import id_text
from pairmark.service.galleries.schemas import ProbesRequest
from pairmark.service.runtime.scoring import Served
from pairmark.service.store.store import ModelStore

Float32 = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Probes:
    """One probe a subject.

    Attributes
    ----------
    vectors : (n, d). subjects : n different texts. enrolled : (n,) whether the gallery has the subject.
    """

    vectors: Float32
    subjects: list[str]
    enrolled: NDArray[np.bool_]


class ProbeReader:
    """Reads what a request names, and looks up who is enrolled (all blocking)."""

    def __init__(self, galleries: Galleries, datasets: Datasets, store: ModelStore) -> None:
        self._galleries = galleries
        self._datasets = datasets
        self._store = store

    def read(
        self, name: str, served: Served, request: ProbesRequest, *, refuse_overlap: bool
    ) -> tuple[State, Probes, list[str]]:
        """The gallery, one probe a subject, and warnings."""
        state = self._galleries.state(name)
        if (state.model_id, state.version) != (served.entry.model_id, served.entry.version):
            raise Conflict(f"gallery {name!r} moved to another version just now: ask again")
        if not state.items:
            raise Conflict(f"gallery {name!r} is empty: enrol people first")
        vectors, subjects, warnings = self._given(served, request, refuse_overlap)
        if vectors.shape[1] != state.dimension:
            raise InvalidInput(
                f"probes have {vectors.shape[1]} numbers; the gallery's vectors have {state.dimension}",
                field="vectors",
                expected_dimension=state.dimension,
            )
        # One probe a subject, drawn without a look at scores: several of one person are not independent.
        order = np.random.default_rng(request.random_state).permutation(len(subjects))
        first: dict[str, int] = {}
        for at in order.tolist():
            first.setdefault(subjects[at], at)
        rows = sorted(first.values())
        chosen = [subjects[at] for at in rows]
        with self._galleries.database.read() as session:
            known = item_repository.stamps(session, state.id, chosen)
        enrolled = np.array([subject in known for subject in chosen], dtype=np.bool_)
        return state, Probes(vectors=vectors[rows], subjects=chosen, enrolled=enrolled), warnings

    def _given(
        self, served: Served, request: ProbesRequest, refuse_overlap: bool
    ) -> tuple[Float32, list[str], list[str]]:
        if (request.dataset is None) == (request.vectors is None):
            raise InvalidInput("expected either dataset, or vectors and subjects", field="dataset")
        if request.dataset is not None:
            return self._of_dataset(served, request.dataset, refuse_overlap)
        given, subjects = request.vectors, request.subjects
        if not given or subjects is None or len(subjects) != len(given):
            n = 0 if subjects is None else len(subjects)
            raise InvalidInput(
                f"there are {len(given or ())} vectors and {n} subjects; expected equal numbers, at least one",
                field="subjects",
            )
        if len({len(row) for row in given}) != 1:
            raise InvalidInput("vectors are of different lengths; expected one", field="vectors")
        with np.errstate(over="ignore"):
            vectors = np.array(given, dtype=np.float32)
        if not vectors.shape[1] or not np.isfinite(vectors).all():
            raise InvalidInput(
                "vectors hold NaN, infinities or nothing; expected finite numbers", field="vectors"
            )
        return vectors, [id_text(subject, "subjects") for subject in subjects], []

    def _of_dataset(
        self, served: Served, reference: str, refuse_overlap: bool
    ) -> tuple[Float32, list[str], list[str]]:
        data = self._datasets.load(self._datasets.get(reference).id)
        if data.y is None:
            raise InvalidInput(
                f"dataset {data.name}:{data.version} has no labels; expected the subject of each row as its label",
                field="dataset",
            )
        overlap = self._store.overlap(served.entry.name, served.entry.version, data, refuse=refuse_overlap)
        warnings = []
        if overlap is not None and (overlap.rows or overlap.identities):
            warnings.append(
                f"{overlap.rows} rows and {overlap.identities} identities of the probes were trained on: figures may "
                "be too good"
            )
        X: Any = data.X
        vectors = np.array(X.toarray() if data.is_sparse else X, dtype=np.float32)
        names = [id_text(identity, "dataset: a label") for identity in data.identities]
        return vectors, [names[code] for code in np.asarray(data.y).tolist()], warnings
