"""Reference galleries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from pairmark.client.transport import Transport
from pairmark.client.wire import (
    Progress,
    Told,
    Vectors,
    as_dict,
    npz,
    path_part,
    path_segment,
    without_none,
)

UPSERT_ROWS = 50_000
"""Rows of a gallery sent at a time."""


class Galleries(Transport):
    """Enrolling, searching, erasing."""

    def search(self, gallery: str, queries: Vectors, *, k: int = 10, **options: Any) -> dict[str, Any]:
        """Exact search; ``options`` are ``filter``, ``group_by``, ``fpir``, ``fpr`` and ``confidence``.

        Returns
        -------
        ``model``, ``results`` (one list of ``{"id", "subject", "score"}`` a query, best first) and, with a rate,
        ``operating_point``: then only matches are listed, and an empty list means "unknown".
        """
        body = without_none({"queries": queries, "k": k, **options})
        return as_dict(self.post(f"/galleries/{path_part(gallery)}/search", body))

    def verify(
        self, gallery: str, subject: str, probe: Vectors, *, fpr: float, **options: Any
    ) -> dict[str, Any]:
        """Whether a vector is of a subject: its best score with the subject's items, and the decision at ``fpr``."""
        path = f"/galleries/{path_part(gallery)}/subjects/{path_segment(subject)}/verify"
        return as_dict(self.post(path, {"probe": probe}, params=without_none({"fpr": fpr, **options})))

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
    ) -> dict[str, Any]:
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
            self.put_gallery(gallery, model)
        path = f"/galleries/{path_part(gallery)}/items"
        if items is not None:
            n = len(items)
            sent = (
                self.send("PUT", path, {"items": list(items[start : start + 5_000])})
                for start in range(0, max(n, 1), 5_000)
            )
            return _enrolled(sent, 5_000, n, progress)
        rows = np.asarray(vectors, dtype=np.float32)
        if rows.ndim != 2 or ids is None or len(ids) != len(rows):
            raise ValueError("expected as many ids as rows of vectors, (n, d)")
        names = np.asarray(ids, dtype=str)
        whose = (
            None
            if subjects is None
            else np.array(["" if one is None else one for one in subjects], dtype=str)
        )
        arrays = (
            npz(
                ids=names[start : start + UPSERT_ROWS],
                vectors=rows[start : start + UPSERT_ROWS],
                subjects=None if whose is None else whose[start : start + UPSERT_ROWS],
            )
            for start in range(0, max(len(rows), 1), UPSERT_ROWS)
        )
        sent = (
            self.request("PUT", path, content=body, headers={"Content-Type": "application/x-npz"})
            for body in arrays
        )
        return _enrolled(sent, UPSERT_ROWS, len(rows), progress)

    def upsert_file(
        self, gallery: str, file: str | os.PathLike[str], *, progress: Progress | None = None, **options: Any
    ) -> dict[str, Any]:
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
            told = Told(stream, progress or (lambda fraction, stage: None))
            return as_dict(
                self.request(
                    "PUT",
                    f"/galleries/{path_part(gallery)}/items",
                    content=iter(lambda: told.read(1 << 20), b""),
                    params=without_none(options),
                    headers={"Content-Type": kinds[suffix]},
                    timeout=httpx.Timeout(60.0, read=None),
                ).json()
            )

    def put_gallery(self, gallery: str, model: str | None = None) -> dict[str, Any]:
        """Make a gallery for a model, or move it to another version."""
        return as_dict(
            self.send("PUT", f"/galleries/{path_part(gallery)}", without_none({"model": model})).json()
        )

    def galleries(self, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Galleries by name."""
        return list(self.pages("/galleries", limit=limit))

    def gallery(self, gallery: str) -> dict[str, Any]:
        """One gallery."""
        return as_dict(self.get(f"/galleries/{path_part(gallery)}"))

    def delete_gallery(self, gallery: str) -> None:
        """Delete a gallery with everything in it."""
        self.request("DELETE", f"/galleries/{path_part(gallery)}", timeout=None)

    def items(
        self, gallery: str, *, subject: str | None = None, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """A gallery's items by id, without their vectors."""
        return self.pages(f"/galleries/{path_part(gallery)}/items", limit=limit, subject=subject)

    def item(self, gallery: str, id: str) -> dict[str, Any]:
        """One item with its vector."""
        return as_dict(self.get(f"/galleries/{path_part(gallery)}/items/{path_segment(id)}"))

    def erase(self, gallery: str, *, id: str | None = None, subject: str | None = None) -> dict[str, Any]:
        """Erase an item, or everything of a subject; the receipt says what was removed."""
        if (id is None) == (subject is None):
            raise ValueError("expected either id or subject")
        what = f"items/{path_segment(id)}" if id is not None else f"subjects/{path_segment(subject or '')}"
        return as_dict(self.request("DELETE", f"/galleries/{path_part(gallery)}/{what}").json())

    def calibrate_gallery(
        self,
        gallery: str,
        dataset: str | None = None,
        *,
        vectors: Any = None,
        subjects: Any = None,
        background: bool = False,
    ) -> dict[str, Any]:
        """Calibrate searches with probes of people, some of whom are not enrolled: a dataset, or arrays.

        Parameters
        ----------
        background : queue a job and return it; ``wait`` follows it, and ``gallery_calibration`` gets what its
            ``result`` names.
        """
        body = without_none({"dataset": dataset, "vectors": vectors, "subjects": subjects})
        return self._measured(gallery, "calibrations", body, background)

    def gallery_calibration(self, gallery: str, id: str) -> dict[str, Any]:
        """One calibration of a gallery."""
        return as_dict(self.get(f"/galleries/{path_part(gallery)}/calibrations/{path_part(id)}"))

    def gallery_evaluation(self, gallery: str, id: str) -> dict[str, Any]:
        """One evaluation of a gallery."""
        return as_dict(self.get(f"/galleries/{path_part(gallery)}/evaluations/{path_part(id)}"))

    def evaluate_gallery(
        self,
        gallery: str,
        dataset: str | None = None,
        *,
        vectors: Any = None,
        subjects: Any = None,
        background: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Measure a gallery with probes; ``options`` are ``max_rank``, ``fpir``, ``confidence``, ``leave_one_out``.

        Parameters
        ----------
        background : queue a job and return it; ``wait`` follows it, and ``gallery_evaluation`` gets what its
            ``result`` names.
        """
        body = without_none({"dataset": dataset, "vectors": vectors, "subjects": subjects, **options})
        return self._measured(gallery, "evaluations", body, background)

    def _measured(self, gallery: str, what: str, body: dict[str, Any], background: bool) -> dict[str, Any]:
        asked = "?background=true" if background else ""
        return as_dict(self.post(f"/galleries/{path_part(gallery)}/{what}{asked}", body, timeout=None))


def _enrolled(sent: Iterator[httpx.Response], size: int, n: int, progress: Progress | None) -> dict[str, Any]:
    """Answers to parts of ``size`` items, as one answer to all n."""
    told: dict[str, Any] = {"upserted": 0, "errors": [], "n_errors": 0}
    for part, response in enumerate(sent):
        answer = as_dict(response.json())
        told["upserted"] += answer["upserted"]
        told["n_errors"] += answer["n_errors"]
        told["errors"] += [{**error, "row": error["row"] + part * size} for error in answer["errors"]]
        if progress is not None:
            progress(min((part + 1) * size / max(n, 1), 1.0), "enrolling")
    return told
