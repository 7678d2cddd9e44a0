"""Reference galleries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from pairmark.client.calls import Calls
from pairmark.client.encoding import (
    HAS_NUMPY,
    Progress,
    Side,
    Vectors,
    array,
    npz,
    path_part,
    records_of,
)
from pairmark.client.errors import json_of
from pairmark.schemas.base import Answer
from pairmark.schemas.galleries import GalleryOut, ItemOut, ReceiptOut, SearchOut, UpsertOut, VerifyOut

UPSERT_ROWS = 50_000
"""Rows of an array sent at a time."""
UPSERT_ITEMS = 5_000
"""Items in JSON sent at a time."""


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
        ids: Any = None,
        vectors: Any = None,
        subjects: Any = None,
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
        path = f"/galleries/{path_part(gallery)}/items"
        totals: dict[str, Any] = {"upserted": 0, "errors": [], "n_errors": 0}
        rows, size = _items(ids, vectors, subjects) if items is None else list(items), UPSERT_ITEMS
        arrays = {} if rows is not None else _arrays(ids, vectors, subjects)
        if rows is None:
            rows, size = arrays["vectors"], UPSERT_ROWS
        for start in range(0, max(len(rows), 1), size):
            part = slice(start, start + size)
            if arrays:
                body = npz(**{name: values[part] for name, values in arrays.items()})
                headers = {"Content-Type": "application/x-npz"}
                answer = json_of(await self.request("PUT", path, content=body, headers=headers))
            else:
                answer = await self._send("PUT", path, {"items": rows[part]})
            totals["upserted"] += answer["upserted"]
            totals["n_errors"] += answer["n_errors"]
            totals["errors"] += [{**error, "row": error["row"] + start} for error in answer["errors"]]
            if progress is not None:
                progress(min((start + size) / max(len(rows), 1), 1.0), "enrolling")
        return UpsertOut.from_json(totals)

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

    async def calibrate_gallery(self, /, gallery: str, dataset: str | None = None, **options: Any) -> Answer:
        """Calibrate searches with probes of people, some of whom are not enrolled: a dataset, or arrays ``vectors`` and
        ``subjects``; further ``options`` are ``aggregation``, ``keep_probes`` and
        ``random_state``."""
        path, body = f"/galleries/{path_part(gallery)}/calibrations", {"dataset": dataset, **options}
        return Answer.from_json(await self._send("POST", path, body, timeout=None))


def _items(ids: Any, vectors: Any, subjects: Any) -> list[dict[str, Any]] | None:
    """Items of an upsert of records; None for vectors, which travel as npz where there is NumPy."""
    is_listed = isinstance(vectors, Sequence) and bool(vectors) and isinstance(vectors[0], Mapping)
    records = vectors if is_listed or not HAS_NUMPY else records_of(vectors)
    if records is None:
        return None
    whose = [None] * len(records) if subjects is None else list(subjects)
    if ids is None or len(ids) != len(records) or len(whose) != len(records):
        raise ValueError("expected as many ids, and subjects if there are any, as records")
    return [
        {"id": str(id), "vector": record} | ({} if subject is None else {"subject": str(subject)})
        for id, record, subject in zip(ids, records, whose, strict=True)
    ]


def _arrays(ids: Any, vectors: Any, subjects: Any) -> dict[str, Any]:
    """Rows, ids and subjects of an upsert, checked against each other."""
    rows = array(vectors, "float32")
    if rows.ndim != 2 or ids is None or len(ids) != len(rows):
        raise ValueError("expected as many ids as rows of vectors, (n, d)")
    arrays = {"ids": array(ids, "str"), "vectors": rows}
    if subjects is not None:
        arrays["subjects"] = array(["" if subject is None else subject for subject in subjects], "str")
    return arrays
