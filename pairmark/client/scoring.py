"""Calls that score, decide, rank and search; and galleries."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pairmark.client.transport import (
    HAS_NUMPY,
    Calls,
    Progress,
    Side,
    Vectors,
    array,
    from_bytes,
    json_of,
    listed_rows,
    npz,
    path_part,
    raw_pairs,
    records_of,
    without_none,
)
from pairmark.schemas.galleries import GalleryOut, Receipt, SearchOut, UpsertOut, VerifyOut
from pairmark.schemas.scoring import ClassesOut, ExplanationOut, ModelUsed, OperatingPointOut, RankingsOut

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray

OCTETS = "application/octet-stream"
UPSERT_ROWS = 50_000
"""Rows of an array sent at a time."""
UPSERT_ITEMS = 5_000
"""Items in JSON sent at a time."""


@dataclass(frozen=True, kw_only=True)
class MatchResult:
    """Decisions at a false positive rate.

    Attributes
    ----------
    matches : (n,) bool, ``scores > threshold``.
    scores : (n,) float32; NaN for a key that may only decide.
    operating_point : the threshold and its promise.
    model : the version that answered (None where the scores were given).
    decisions : (n,) match, review or different, where a false negative rate was asked for too.
    reasons : (n,) why a pair does not match whatever it scores, such as ``unlike-calibration``; else None.
    compared : (n,) the columns that decided a pair of records which lacks others; else None.
    warnings : what limits the whole answer, each with ``code`` and ``detail``.
    """

    matches: NDArray[np.bool_]
    scores: NDArray[np.float32]
    operating_point: OperatingPointOut
    model: ModelUsed | None
    decisions: list[str] | None = None
    reasons: list[str | None] = field(default_factory=list)
    compared: list[list[str] | None] = field(default_factory=list)
    warnings: list[dict[str, str]] = field(default_factory=list)


class ScoringCalls(Calls):
    """Scores, decisions, rankings and galleries; arrays are lists where NumPy is not installed."""

    async def similarity(
        self, left: Side, right: Side, *, model: str | None = None, aggregation: str | None = None
    ) -> NDArray[np.float32]:
        """Scores of pairs, (n,) float32; higher is more similar. Sizes n:n, 1:n or n:1.

        What limits the answer, such as a category that training did not have, is told by `warnings.warn`.

        Parameters
        ----------
        left, right : vectors, or subjects of several samples ``{"samples": vectors}``.
        aggregation : how subjects are compared: ``auto``, ``mean``, ``plda``, ``best`` or ``median``.
        """
        params = {"aggregation": aggregation}
        raw = raw_pairs(left, right)
        if raw is None:
            body = {"model": model, "left": left, "right": right}
            answer = await self._send("POST", "/similarity", body, params=params)
            for warning in answer.get("warnings", ()):
                warnings.warn(warning["detail"], stacklevel=2)
            return cast("NDArray[np.float32]", array(answer["scores"], "float32"))
        response = await self._send_raw("/similarity", raw, {**params, "model": model}, accept=OCTETS)
        return cast("NDArray[np.float32]", from_bytes(response.content))

    async def match(
        self,
        left: Side = None,
        right: Side = None,
        *,
        fpr: float | None = None,
        decision: str | None = None,
        confidence: float | None = None,
        method: str | None = None,
        calibration: str | None = None,
        model: str | None = None,
        scores: Sequence[float] | NDArray[Any] | None = None,
        fnr: float | None = None,
        simultaneous: bool = False,
        aggregation: str | None = None,
        refs: Sequence[Sequence[str]] | None = None,
    ) -> MatchResult:
        """Same or different at a false positive rate, or by another ``decision``, ``"best-f1"``; or decide on
        ``scores`` with a stored ``calibration``.

        Subjects of several samples, ``{"samples": vectors}``, are decided as a whole, by a separate calibration.

        With ``fnr``, a false negative rate, `MatchResult.decisions` says match, review or different. ``refs`` are your
        names of both sides of each pair, kept for reviews if the model's policy says so.

        Raises
        ------
        InsufficientCalibration
            When the calibration data cannot support the rate; ``.facts`` holds ``smallest_fpr``.
        """
        params = {
            "fpr": fpr,
            "decision": decision,
            "fnr": fnr,
            "confidence": confidence,
            "method": method,
            "calibration": calibration,
            "simultaneous": simultaneous or None,
            "aggregation": aggregation,
        }
        raw = None if scores is not None or refs is not None else raw_pairs(left, right)
        if raw is not None:
            answer = json_of(await self._send_raw("/match", raw, {**params, "model": model}))
        else:
            body = {"model": model, "left": left, "right": right, "scores": scores, "refs": refs}
            answer = await self._send("POST", "/match", body, params=params)
        matches = answer["matches"]
        return MatchResult(
            matches=array([entry["match"] for entry in matches], "bool"),
            scores=array([entry.get("score", math.nan) for entry in matches], "float32"),
            operating_point=OperatingPointOut.from_json(answer["operating_point"]),
            model=None if answer.get("model") is None else ModelUsed.from_json(answer["model"]),
            decisions=None if fnr is None else [entry["decision"] for entry in matches],
            reasons=[entry.get("reason") for entry in matches],
            compared=[entry.get("compared") for entry in matches],
            warnings=answer.get("warnings", []),
        )

    async def _send_raw(
        self,
        path: str,
        raw: tuple[bytes, dict[str, int]],
        params: Mapping[str, Any],
        *,
        accept: str = "application/json",
    ) -> httpx.Response:
        content, shape = raw
        headers = {"Content-Type": OCTETS, "Accept": accept}
        query = without_none({**params, **shape})
        return await self.request("POST", path, content=content, params=query, headers=headers)

    async def explain(
        self, left: Side, right: Side, *, model: str | None = None, aggregation: str | None = None
    ) -> ExplanationOut:
        """Why one pair, of vectors or of subjects, scores as it does."""
        body, params = {"model": model, "left": left, "right": right}, {"aggregation": aggregation}
        return ExplanationOut.from_json(await self._send("POST", "/explain", body, params=params))

    async def rank_labels(
        self,
        features: Vectors | Mapping[str, float],
        *,
        model: str | None = None,
        top: int | None = None,
    ) -> RankingsOut:
        """Labels of each point, best first.

        Parameters
        ----------
        features : points by position, or by name (a mapping, or a list of them).
        top : return only this many labels, best first.
        """
        rows = features if isinstance(features, Mapping) else listed_rows(features)
        body = {"model": model, "features": rows, "top": top}
        return RankingsOut.from_json(await self._send("POST", "/rank-labels", body))

    async def classify(self, features: Vectors, *, model: str | None = None) -> ClassesOut:
        """``labels`` and ``probabilities`` of each point."""
        body = {"model": model, "features": features}
        return ClassesOut.from_json(await self._send("POST", "/classify", body))

    async def embed(self, features: Vectors, *, model: str | None = None) -> NDArray[np.float32]:
        """The model's own vectors of each point, (n, n_components) float32."""
        answer = await self._send("POST", "/embed", {"model": model, "features": features})
        return cast("NDArray[np.float32]", array(answer["vectors"], "float32"))

    async def search(self, /, gallery: str, queries: Vectors, *, k: int = 10, **options: Any) -> SearchOut:
        """Search by vectors or records; options: ``filter``, ``group_by``, ``fpir``, ``fpr``, ``confidence``,
        ``refs``.

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

    async def erase(self, gallery: str, *, id: str | None = None, subject: str | None = None) -> Receipt:
        """Erase an item, or everything of a subject; the receipt says what was removed."""
        if (id is None) == (subject is None):
            raise ValueError("expected either id or subject")
        # In the body: an id in the path of a DELETE could be resolved to another address on the way.
        path = f"/galleries/{path_part(gallery)}/erase"
        return Receipt.from_json(await self._send("POST", path, {"id": id, "subject": subject}))


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
