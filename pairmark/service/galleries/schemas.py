"""Requests and answers about galleries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, Field, model_validator

from pairmark.service.errors import DamagedRow
from pairmark.service.galleries.items.item_forms import body_json
from pairmark.service.pagination import Page
from pairmark.service.runtime.json_forms import REFS_TEXT, Body, JsonRequest, Ref, Side, Vectors
from pairmark.wire.base import iso
from pairmark.wire.galleries import (
    CandidatesFields,
    GalleryCalibrationParameters,
    GalleryEvaluationParameters,
    GalleryFields,
    GalleryModelFields,
    HitFields,
    ImportParameters,
    ItemFields,
    ProbesParameters,
    ReceiptFields,
    RowErrorFields,
    SearchFields,
    SearchOptions,
    SearchParameters,
    UpsertFields,
    VerificationFields,
)

if TYPE_CHECKING:
    # Whoever reads uploads needs what they may hold, and no database.
    from pairmark.service.galleries.repository import GalleryState
    from pairmark.service.tables import GalleryItem


class GalleryRequest(JsonRequest):
    """The model that searches a gallery."""

    model: str | None = Field(
        None,
        max_length=200,
        description="`name`, `name@alias` or `name:version`. The gallery keeps the version that this names now, "
        "until another PUT moves it. Optional if only one model can answer",
    )


class ModelOfGallery(BaseModel, GalleryModelFields):
    """A version."""


class GalleryOut(BaseModel, GalleryFields):
    """A gallery."""

    @classmethod
    def of(cls, state: GalleryState, subjects: int | None = None) -> Self:
        """A gallery's row as JSON shows it."""
        moving = None
        if state.next_version is not None and state.next_model is not None:
            moving = ModelOfGallery(name=state.next_model, version=state.next_version, kind=state.next_kind)
        return cls(
            name=state.name,
            model=ModelOfGallery(name=state.model, version=state.version, kind=state.kind),
            moving_to=moving,
            dimension=state.dimension,
            columns=None
            if state.columns is None
            else {column["name"]: column["type"] for column in state.columns},
            items=state.items,
            subjects=subjects,
            sequence=state.seq,
            fields=sorted(state.fields),
            created_at=iso(state.created_at),
            updated_at=iso(state.updated_at),
        )


class GalleryPage(Page[GalleryOut]):
    """Galleries by name."""


class RowError(BaseModel, RowErrorFields):
    """A row that was not stored."""


class ImportOptions(BaseModel, ImportParameters):
    """How a bulk body becomes items."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in (self.metadata or "").split(",") if name)


class ItemIn(BaseModel):
    """An item to enrol or to replace."""

    id: str = Field(min_length=1, max_length=512)
    subject: str | None = Field(None, min_length=1, max_length=512)
    vector: list[float] | dict[str, Any] = Field(
        description='numbers, or a record `{"column": value, ..}` for a model of records'
    )
    metadata: dict[str, Any] | None = None


class ItemsBody(BaseModel, extra="forbid"):
    """Items to enrol. Each item is checked separately, so an invalid one does not affect the others."""

    items: list[ItemIn] = Field(min_length=1)


class UpsertOut(BaseModel, UpsertFields):
    """What was stored."""


class ItemOut(BaseModel, ItemFields):
    """An item."""

    @classmethod
    def of(cls, row: GalleryItem, columns: Sequence[Any] | None, *, vector: bool) -> Self:
        """An item's row as JSON shows it, its vector or record where that is asked for."""
        try:
            vector_json = body_json(row.vector, columns)
            return cls(
                id=row.id,
                subject=row.subject,
                metadata=None if row.facts is None else json.loads(row.facts),
                vector=vector_json if vector else None,
            )
        except ValueError as error:
            raise DamagedRow(
                f"the item {row.id!a} is damaged: its vector or metadata cannot be read; enrol it again or erase it",
                row=row.id,
            ) from error


class ItemPage(Page[ItemOut]):
    """A gallery's items, ordered by id."""


class ErasureRequest(JsonRequest):
    """What to erase: either an item or a subject."""

    id: str | None = Field(None, min_length=1, max_length=512, description="the item's id")
    subject: str | None = Field(
        None, min_length=1, max_length=512, description="the subject; all of its items and probes are erased"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.id is None) == (self.subject is None):
            raise ValueError("expected either id or subject")
        return self


class ReceiptOut(BaseModel, ReceiptFields, title="Receipt"):
    """What an erasure removed, and what is left to do."""


class SearchRequestFields(Body, SearchOptions):
    """Which results a search returns."""

    refs: list[Ref] | None = Field(None, description=f"with a rate: your name of each query, {REFS_TEXT}")


class SearchBody(SearchRequestFields, SearchParameters):
    """The vectors to search for, and which results to return."""

    queries: Vectors = Field(description="a vector or a list of vectors", examples=[[0.1, 0.2, 0.3]])


class SearchHit(BaseModel, HitFields):
    """An item that was found."""


class CandidatesOut(BaseModel, CandidatesFields):
    """How a search of many records chose what it scored."""


class SearchOut(BaseModel, SearchFields):
    """Results of each query, best first, ties by id. With a rate, an empty list means "unknown"."""


class VerifyFields(Body):
    """What a verification holds beside the probe."""

    refs: list[Ref] | None = Field(
        None, min_length=1, max_length=1, description=f"your name of the probe, {REFS_TEXT}"
    )


class VerifyBody(VerifyFields):
    """One vector or several samples, to be compared with all items of a subject."""

    probe: Side = Field(
        description='one vector, or several samples `{"samples": [vector, ..]}`', examples=[[0.1, 0.2, 0.3]]
    )


class VerifyOut(BaseModel, VerificationFields):
    """Whether the probe belongs to the subject."""


class ProbesRequest(JsonRequest, ProbesParameters):
    """Probes with known subjects: a dataset, or vectors and subjects."""

    if TYPE_CHECKING:
        # The checker's plugin for models sees no members that are declared elsewhere.
        def __init__(self, **values: Any) -> None: ...


class GalleryCalibrationRequest(ProbesRequest, GalleryCalibrationParameters):
    """The probes that calibrate a gallery."""

    if TYPE_CHECKING:
        # The checker's plugin for models sees no members that are declared elsewhere.
        def __init__(self, **values: Any) -> None: ...


class GalleryEvaluationRequest(ProbesRequest, GalleryEvaluationParameters):
    """The probes and rates that a gallery is measured with."""

    if TYPE_CHECKING:
        # The checker's plugin for models sees no members that are declared elsewhere.
        def __init__(self, **values: Any) -> None: ...


class GalleryCalibrationOut(BaseModel):
    """A gallery's calibration, from searches by people who are not enrolled."""

    id: str
    gallery: str
    model: ModelOfGallery
    aggregation: str | None = Field(
        None, description="how searches calibrated by it compare subjects; null: single items"
    )
    n_probes: int = Field(description="number of people who are not enrolled, with one probe each")
    n_mated: int = Field(description="number of enrolled people, with one probe each")
    gallery_size: int
    smallest_fpir: float = Field(description="the smallest FPIR that can be answered at confidence 0.95")
    changed: int = Field(
        description="number of rows written or removed since these figures were measured; searches take them into "
        "account"
    )
    probes_kept: bool = Field(description="whether thresholds follow writes and erasures")
    stale: bool = Field(
        description="whether to calibrate again: it belongs to another version, or its probes were not kept and more "
        "than a tenth of the gallery has changed"
    )
    warnings: list[str]
    created_at: str


class GalleryEvaluationOut(BaseModel):
    """Error rates of a gallery, measured with probes."""

    id: str
    gallery: str
    model: ModelOfGallery
    gallery_size: int
    aggregation: str | None = Field(
        None, description="how subjects were compared as a whole; null: single items"
    )
    n_mated: int
    n_strangers: int
    rank_1: float | None = Field(
        description="share of probes of enrolled people whose own subject is the first result"
    )
    cmc: dict[str, Any] | None = Field(
        description="share of these probes whose own subject is within each rank, with intervals"
    )
    identification: list[dict[str, Any]] = Field(
        description="for each FPIR: the threshold from these strangers with its FNIR, or why there is none"
    )
    calibrated: dict[str, Any] | None = Field(
        description="both error rates of these probes at the gallery's own threshold for the first of the rates"
    )
    leave_one_out: dict[str, Any] | None = Field(
        description="an estimate without a guarantee, from searches for each enrolled subject among the others"
    )
    warnings: list[str]
    created_at: str
