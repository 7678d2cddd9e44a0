"""Reference galleries."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from pairmark.client.calls import Steps, ask, operation, stream
from pairmark.client.results import Answer, Enrolled, Gallery, Item, Job, Receipt, SearchResult, Verification
from pairmark.client.transport import Calls
from pairmark.client.wire import Progress, Reported, Side, Vectors, npz, path_part, path_segment, without_none

UPSERT_ROWS = 50_000
"""Rows of a gallery sent at a time."""


class Galleries(Calls):
    """Enrolling, searching, erasing."""

    @operation
    def search(
        self, /, gallery: str, queries: Vectors, *, k: int = 10, **options: Any
    ) -> Steps[SearchResult]:
        """Exact search; options: ``filter``, ``group_by``, ``aggregation``, ``fpir``, ``fpr``, ``fnr``, ``confidence``.

        Returns
        -------
        ``model``, ``results`` (one list of ``{"id", "subject", "score"}`` a query, best first) and, with a rate,
        ``operating_point``: then only matches are listed, and an empty list means "unknown".
        """
        path, body = f"/galleries/{path_part(gallery)}/search", {"queries": queries, "k": k, **options}
        return SearchResult.of((yield from self._send("POST", path, body)))

    @operation
    def verify(
        self, /, gallery: str, subject: str, probe: Side, *, fpr: float, **options: Any
    ) -> Steps[Verification]:
        """Whether a vector, or ``{"samples": vectors}``, is of a subject; ``options`` are ``aggregation``,
        ``confidence``, ``method`` and ``calibration``."""
        path = f"/galleries/{path_part(gallery)}/subjects/{path_segment(subject)}/verify"
        asked = {"fpr": fpr, **options}
        return Verification.of((yield from self._send("POST", path, {"probe": probe}, params=asked)))

    @operation
    def upsert(
        self,
        gallery: str,
        items: Sequence[Mapping[str, Any]] | None = None,
        *,
        ids: Sequence[str] | NDArray[Any] | None = None,
        vectors: Any = None,
        subjects: Sequence[str | None] | NDArray[Any] | None = None,
        model: str | None = None,
        progress: Progress | None = None,
    ) -> Steps[Enrolled]:
        """Enrol items, or replace those of the same id.

        Parameters
        ----------
        items : ``{"id", "vector", "subject"?, "metadata"?}`` each; or else arrays:
        ids, vectors, subjects : (n,), (n, d), (n,); sent as npz, 50,000 rows at a time.
        model : creates the gallery first.
        progress : called with (fraction sent, "enrolling").

        Returns
        -------
        ``upserted``, ``n_errors``, and ``errors`` with the ``row`` of each item that was refused.
        """
        if (items is None) == (vectors is None):
            raise ValueError("expected either items or the arrays ids and vectors")
        if model is not None:
            yield from self._put_gallery(gallery, model)
        path = f"/galleries/{path_part(gallery)}/items"
        done: dict[str, Any] = {"upserted": 0, "errors": [], "n_errors": 0}
        if items is not None:
            n, size = len(items), 5_000
        else:
            rows, names, whose = _arrays(ids, vectors, subjects)
            n, size = len(rows), UPSERT_ROWS
        for start in range(0, max(n, 1), size):
            part = slice(start, start + size)
            if items is not None:
                answer = yield from self._send("PUT", path, {"items": list(items[part])})
            else:
                body = npz(
                    ids=names[part], vectors=rows[part], subjects=None if whose is None else whose[part]
                )
                headers = {"Content-Type": "application/x-npz"}
                answer = (yield from ask(self, "PUT", path, content=body, headers=headers)).json()
            done["upserted"] += answer["upserted"]
            done["n_errors"] += answer["n_errors"]
            done["errors"] += [{**error, "row": error["row"] + start} for error in answer["errors"]]
            if progress is not None:
                progress(min((start + size) / max(n, 1), 1.0), "enrolling")
        return Enrolled.of(done)

    @operation
    def upsert_file(
        self,
        /,
        gallery: str,
        file: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
        **options: Any,
    ) -> Steps[Enrolled]:
        """Enrol a CSV, Parquet or npz file in one request; ``options`` are ``id``, ``subject`` and ``metadata``."""
        kinds = {
            ".csv": "text/csv",
            ".npz": "application/x-npz",
            ".parquet": "application/vnd.apache.parquet",
            ".pq": "application/vnd.apache.parquet",
        }
        suffix = Path(file).suffix.lower()
        if suffix not in kinds:
            raise ValueError(f"{file}: expected a file named .csv, .npz or .parquet")
        with open(file, "rb") as stream:
            reported = Reported(stream, progress or (lambda fraction, stage: None))
            return Enrolled.of(
                (
                    yield from ask(
                        self,
                        "PUT",
                        f"/galleries/{path_part(gallery)}/items",
                        content=iter(lambda: reported.read(1 << 20), b""),
                        params=without_none(options),
                        headers={"Content-Type": kinds[suffix]},
                        timeout=httpx.Timeout(60.0, read=None),
                    )
                ).json()
            )

    @operation
    def put_gallery(self, gallery: str, model: str | None = None) -> Steps[Gallery]:
        """Make a gallery for a model, or move it to another version."""
        return (yield from self._put_gallery(gallery, model))

    def _put_gallery(self, gallery: str, model: str | None) -> Steps[Gallery]:
        path = f"/galleries/{path_part(gallery)}"
        return Gallery.of((yield from self._send("PUT", path, {"model": model})))

    @operation
    def galleries(self, *, limit: int | None = None) -> Steps[list[Gallery]]:
        """Galleries by name."""
        return (yield from self._listed("/galleries", Gallery.of, limit=limit))

    @operation
    def gallery(self, gallery: str) -> Steps[Gallery]:
        """One gallery."""
        return Gallery.of((yield from self._get(f"/galleries/{path_part(gallery)}")))

    @operation
    def delete_gallery(self, gallery: str) -> Steps[None]:
        """Delete a gallery with everything in it."""
        (yield from ask(self, "DELETE", f"/galleries/{path_part(gallery)}", timeout=None))

    @stream
    def items(self, gallery: str, *, subject: str | None = None, limit: int | None = None) -> Steps[Item]:
        """A gallery's items by id, without their vectors."""
        path = f"/galleries/{path_part(gallery)}/items"
        return self._pages(path, Item.of, limit=limit, subject=subject)

    @operation
    def item(self, gallery: str, id: str) -> Steps[Item]:
        """One item with its vector."""
        return Item.of((yield from self._get(f"/galleries/{path_part(gallery)}/items/{path_segment(id)}")))

    @operation
    def erase(self, gallery: str, *, id: str | None = None, subject: str | None = None) -> Steps[Receipt]:
        """Erase an item, or everything of a subject; the receipt says what was removed."""
        if (id is None) == (subject is None):
            raise ValueError("expected either id or subject")
        what = f"items/{path_segment(id)}" if id is not None else f"subjects/{path_segment(subject or '')}"
        return Receipt.of((yield from ask(self, "DELETE", f"/galleries/{path_part(gallery)}/{what}")).json())

    @operation
    def calibrate_gallery(
        self,
        gallery: str,
        dataset: str | None = None,
        *,
        vectors: Any = None,
        subjects: Any = None,
        background: bool = False,
    ) -> Steps[Answer]:
        """Calibrate searches with probes of people, some of whom are not enrolled: a dataset, or arrays.

        Parameters
        ----------
        background : queue a job and return it; ``wait`` follows it, and ``gallery_calibration`` gets what its
            ``result`` names.
        """
        body = {"dataset": dataset, "vectors": vectors, "subjects": subjects}
        return (yield from self._measured(gallery, "calibrations", body, background))

    @operation
    def gallery_calibration(self, gallery: str, id: str) -> Steps[Answer]:
        """One calibration of a gallery."""
        path = f"/galleries/{path_part(gallery)}/calibrations/{path_part(id)}"
        return Answer.of((yield from self._get(path)))

    @operation
    def gallery_evaluation(self, gallery: str, id: str) -> Steps[Answer]:
        """One evaluation of a gallery."""
        path = f"/galleries/{path_part(gallery)}/evaluations/{path_part(id)}"
        return Answer.of((yield from self._get(path)))

    @operation
    def evaluate_gallery(
        self,
        /,
        gallery: str,
        dataset: str | None = None,
        *,
        vectors: Any = None,
        subjects: Any = None,
        background: bool = False,
        **options: Any,
    ) -> Steps[Answer]:
        """Measure a gallery with probes; ``options`` are ``max_rank``, ``fpir``, ``confidence``, ``leave_one_out``.

        Parameters
        ----------
        background : queue a job and return it; ``wait`` follows it, and ``gallery_evaluation`` gets what its
            ``result`` names.
        """
        body = {"dataset": dataset, "vectors": vectors, "subjects": subjects, **options}
        return (yield from self._measured(gallery, "evaluations", body, background))

    def _measured(self, gallery: str, what: str, body: dict[str, Any], background: bool) -> Steps[Answer]:
        path = f"/galleries/{path_part(gallery)}/{what}{'?background=true' if background else ''}"
        answer = yield from self._send("POST", path, body, timeout=None)
        return Job.of(answer) if background else Answer.of(answer)


def _arrays(ids: Any, vectors: Any, subjects: Any) -> tuple[Any, Any, Any]:
    """Rows, ids and subjects of an upsert, checked against each other."""
    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or ids is None or len(ids) != len(rows):
        raise ValueError("expected as many ids as rows of vectors, (n, d)")
    names = np.asarray(ids, dtype=str)
    if subjects is None:
        return rows, names, None
    return rows, names, np.array(["" if one is None else one for one in subjects], dtype=str)
