"""Reference galleries."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from pairmark.client.calls import Calls
from pairmark.client.encoding import (
    Progress,
    ProgressReader,
    Side,
    Vectors,
    npz,
    path_part,
    records_of,
    without_none,
)
from pairmark.client.errors import json_of
from pairmark.schemas.base import Answer
from pairmark.schemas.galleries import GalleryOut, ItemOut, ReceiptOut, SearchOut, UpsertOut, VerifyOut
from pairmark.schemas.jobs import JobOut

UPSERT_ROWS = 50_000
"""Rows of a gallery sent at a time."""


class GalleryCalls(Calls):
    """Enrolling, searching, erasing."""

    async def search(self, /, gallery: str, queries: Vectors, *, k: int = 10, **options: Any) -> SearchOut:
        """Search by vectors or records; options: ``filter``, ``group_by``, ``aggregation``, ``fpir``, ``fpr``, ``fnr``,
        ``confidence``, ``refs``.

        Returns
        -------
        ``model``, ``results`` (one list of ``{"id", "subject", "score"}`` a query, best first) and, with a rate,
        ``operating_point``: then only matches are listed, and an empty list means "unknown".
        """
        path, body = f"/galleries/{path_part(gallery)}/search", {"queries": queries, "k": k, **options}
        return SearchOut.from_json(await self._send("POST", path, body))

    async def verify(
        self, /, gallery: str, subject: str, probe: Side, *, fpr: float, **options: Any
    ) -> VerifyOut:
        """Whether a vector, or ``{"samples": vectors}``, is of a subject; ``options`` are ``aggregation``,
        ``confidence``, ``method``, ``calibration`` and ``fnr``."""
        path = f"/galleries/{path_part(gallery)}/subjects/{path_part(subject)}/verify"
        params = {"fpr": fpr, **options}
        return VerifyOut.from_json(await self._send("POST", path, {"probe": probe}, params=params))

    async def upsert(
        self,
        gallery: str,
        items: Sequence[Mapping[str, Any]] | None = None,
        *,
        ids: Sequence[str] | NDArray[Any] | None = None,
        vectors: Any = None,
        subjects: Sequence[str | None] | NDArray[Any] | None = None,
        model: str | None = None,
        progress: Progress | None = None,
    ) -> UpsertOut:
        """Enrol items, or replace those of the same id.

        Parameters
        ----------
        items : ``{"id", "vector", "subject"?, "metadata"?}`` each, the vector a record ``{"column": value}`` for a
            model of records; or else arrays:
        ids, vectors, subjects : (n,), (n, d), (n,); sent as npz, 50,000 rows at a time. ``vectors`` may be records: a
            list of dicts, a pandas or polars frame, or an Arrow table.
        model : creates the gallery first.
        progress : called with (fraction sent, "enrolling").

        Returns
        -------
        ``upserted``, ``n_errors``, and ``errors`` with the ``row`` of each item that was refused.
        """
        if (items is None) == (vectors is None):
            raise ValueError("expected either items or the arrays ids and vectors")
        if model is not None:
            await self.put_gallery(gallery, model)
        if items is None:
            items = _record_items(ids, vectors, subjects)
        path = f"/galleries/{path_part(gallery)}/items"
        totals: dict[str, Any] = {"upserted": 0, "errors": [], "n_errors": 0}
        if items is not None:
            n, size = len(items), 5_000
        else:
            rows, names, whose = _arrays(ids, vectors, subjects)
            n, size = len(rows), UPSERT_ROWS
        for start in range(0, max(n, 1), size):
            part = slice(start, start + size)
            if items is not None:
                answer = await self._send("PUT", path, {"items": list(items[part])})
            else:
                body = npz(
                    ids=names[part], vectors=rows[part], subjects=None if whose is None else whose[part]
                )
                headers = {"Content-Type": "application/x-npz"}
                answer = json_of(await self.request("PUT", path, content=body, headers=headers))
            totals["upserted"] += answer["upserted"]
            totals["n_errors"] += answer["n_errors"]
            totals["errors"] += [{**error, "row": error["row"] + start} for error in answer["errors"]]
            if progress is not None:
                progress(min((start + size) / max(n, 1), 1.0), "enrolling")
        return UpsertOut.from_json(totals)

    async def upsert_file(
        self,
        /,
        gallery: str,
        file: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
        **options: Any,
    ) -> UpsertOut:
        """Enrol a CSV, Parquet or npz file in one request; ``options`` are ``id``, ``subject`` and
        ``metadata``."""
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
            reported = ProgressReader(stream, progress or (lambda fraction, stage: None))
            answer = await self.request(
                "PUT",
                f"/galleries/{path_part(gallery)}/items",
                content=iter(lambda: reported.read(1 << 20), b""),
                params=without_none(options),
                headers={"Content-Type": kinds[suffix]},
                timeout=httpx.Timeout(60.0, read=None),
            )
            return UpsertOut.from_json(json_of(answer))

    async def put_gallery(self, gallery: str, model: str | None = None) -> GalleryOut:
        """Make a gallery for a model, or move it to another version."""
        path = f"/galleries/{path_part(gallery)}"
        return GalleryOut.from_json(await self._send("PUT", path, {"model": model}))

    async def galleries(self, *, limit: int | None = None) -> list[GalleryOut]:
        """Galleries by name."""
        return [GalleryOut.from_json(gallery) async for gallery in self.pages("/galleries", limit=limit)]

    async def gallery(self, gallery: str) -> GalleryOut:
        """One gallery."""
        return GalleryOut.from_json(await self._get(f"/galleries/{path_part(gallery)}"))

    async def delete_gallery(self, gallery: str) -> None:
        """Delete a gallery with everything in it."""
        await self.request("DELETE", f"/galleries/{path_part(gallery)}", timeout=None)

    async def items(
        self, gallery: str, *, subject: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ItemOut]:
        """A gallery's items by id, without their vectors."""
        path = f"/galleries/{path_part(gallery)}/items"
        async for entry in self.pages(path, limit=limit, subject=subject):
            yield ItemOut.from_json(entry)

    async def item(self, gallery: str, id: str) -> ItemOut:
        """One item with its vector."""
        return ItemOut.from_json(await self._get(f"/galleries/{path_part(gallery)}/items/{path_part(id)}"))

    async def erase(self, gallery: str, *, id: str | None = None, subject: str | None = None) -> ReceiptOut:
        """Erase an item, or everything of a subject; the receipt says what was removed."""
        if (id is None) == (subject is None):
            raise ValueError("expected either id or subject")
        # In the body: an id in the path of a DELETE could be resolved to another address on the way.
        path = f"/galleries/{path_part(gallery)}/erase"
        return ReceiptOut.from_json(await self._send("POST", path, {"id": id, "subject": subject}))

    async def calibrate_gallery(
        self,
        /,
        gallery: str,
        dataset: str | None = None,
        *,
        vectors: Any = None,
        subjects: Any = None,
        background: bool = False,
        **options: Any,
    ) -> Answer:
        """Calibrate searches with probes of people, some of whom are not enrolled: a dataset, or arrays; ``options``
        are ``aggregation``, ``keep_probes`` and ``random_state``.

        Parameters
        ----------
        background : queue a job and return it; ``wait`` follows it, and ``gallery_calibration`` gets what its
            ``result`` names.
        """
        body = {"dataset": dataset, "vectors": vectors, "subjects": subjects, **options}
        path = f"/galleries/{path_part(gallery)}/calibrations{'?background=true' if background else ''}"
        answer = await self._send("POST", path, body, timeout=None)
        return JobOut.from_json(answer) if background else Answer.from_json(answer)

    async def gallery_calibration(self, gallery: str, id: str) -> Answer:
        """One calibration of a gallery."""
        path = f"/galleries/{path_part(gallery)}/calibrations/{path_part(id)}"
        return Answer.from_json(await self._get(path))


def _record_items(ids: Any, vectors: Any, subjects: Any) -> list[dict[str, Any]] | None:
    """Items of an upsert of records; None for vectors."""
    is_listed = isinstance(vectors, Sequence) and bool(vectors) and isinstance(vectors[0], Mapping)
    records = vectors if is_listed else records_of(vectors)
    if records is None:
        return None
    whose = [None] * len(records) if subjects is None else list(subjects)
    if ids is None or len(ids) != len(records) or len(whose) != len(records):
        raise ValueError("expected as many ids, and subjects if there are any, as records")
    return [
        {"id": str(id), "vector": record} | ({} if subject is None else {"subject": str(subject)})
        for id, record, subject in zip(ids, records, whose, strict=True)
    ]


def _arrays(ids: Any, vectors: Any, subjects: Any) -> tuple[Any, Any, Any]:
    """Rows, ids and subjects of an upsert, checked against each other."""
    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or ids is None or len(ids) != len(rows):
        raise ValueError("expected as many ids as rows of vectors, (n, d)")
    names = np.asarray(ids, dtype=str)
    if subjects is None:
        return rows, names, None
    return rows, names, np.array(["" if subject is None else subject for subject in subjects], dtype=str)
