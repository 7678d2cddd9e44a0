"""Requests and answers about galleries."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pairmark.service.galleries.repository import State
from pairmark.service.runtime.bodies import Side, Vectors
from pairmark.service.tables import GalleryItem
from pairmark.service.times import iso

Aggregation = Literal["auto", "mean", "plda", "best", "median"]
Rate = Annotated[float, Field(gt=0, lt=1)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class GalleryRequest(Strict):
    """Which model searches a gallery."""

    model: str | None = Field(
        None,
        max_length=200,
        description="`name`, `name@alias` or `name:version`: the version it means now is the gallery's until it is "
        "moved by another PUT. May be left out if only one can serve",
    )


class ModelOfGallery(BaseModel):
    """A version."""

    name: str
    version: int
    kind: str | None = None


class GalleryOut(BaseModel):
    """A gallery."""

    name: str
    model: ModelOfGallery = Field(description="the version that searches it")
    moving_to: ModelOfGallery | None = Field(None, description="the version it is being indexed anew for")
    dimension: int
    items: int
    subjects: int | None = Field(None, description="different subjects; not in lists")
    calibration: str | None = Field(
        None, description="id of the newest calibration with the version that searches it; not in lists"
    )
    evaluation: str | None = Field(None, description="id of the newest evaluation; not in lists")
    sequence: int = Field(description="counts every row written or removed")
    fields: list[str] = Field(description="metadata fields that items have had, to filter by")
    created_at: str
    updated_at: str

    @classmethod
    def of(cls, state: State, subjects: int | None = None) -> Self:
        """A gallery's row as JSON shows it."""
        moving = None
        if state.next_version is not None and state.next_model is not None:
            moving = ModelOfGallery(name=state.next_model, version=state.next_version, kind=state.next_kind)
        return cls(
            name=state.name,
            model=ModelOfGallery(name=state.model, version=state.version, kind=state.kind),
            moving_to=moving,
            dimension=state.dimension,
            items=state.items,
            subjects=subjects,
            sequence=state.seq,
            fields=sorted(state.fields),
            created_at=iso(state.created_at),
            updated_at=iso(state.updated_at),
        )


class GalleryPage(BaseModel):
    """Galleries by name."""

    items: list[GalleryOut]
    next_cursor: str | None = None


class RowError(BaseModel):
    """A row that was not stored."""

    row: int = Field(description="0-based place in the request")
    id: str | None = None
    detail: str


class ItemIn(BaseModel):
    """An item to enrol, or to replace."""

    id: str = Field(min_length=1, max_length=512)
    subject: str | None = Field(None, min_length=1, max_length=512)
    vector: list[float]
    metadata: dict[str, Any] | None = None


class ItemsBody(BaseModel):
    """Items to enrol. Rows are checked one by one, so that one that is wrong does not refuse the others."""

    model_config = ConfigDict(extra="forbid")

    items: list[ItemIn] = Field(min_length=1)


class UpsertOut(BaseModel):
    """What was stored."""

    upserted: int
    errors: list[RowError] = Field(description="rows that were not stored: the first 1,000")
    n_errors: int = Field(description="how many rows were not stored")


class ItemOut(BaseModel):
    """An item."""

    id: str
    subject: str | None = None
    metadata: dict[str, Any] | None = None
    vector: list[float] | None = None

    @classmethod
    def of(cls, row: GalleryItem, *, vector: bool) -> Self:
        """An item's row as JSON shows it, its vector where that is asked for."""
        return cls(
            id=row.id,
            subject=row.subject,
            metadata=None if row.facts is None else json.loads(row.facts),
            vector=np.frombuffer(row.vector, dtype="<f4").tolist() if vector else None,
        )


class ItemPage(BaseModel):
    """Items by id."""

    items: list[ItemOut]
    next_cursor: str | None = None


class Receipt(BaseModel):
    """What an erasure removed, and what it could not."""

    gallery: str
    id: str | None = None
    subject: str | None = None
    items: int = Field(description="items removed")
    probes: int = Field(
        0, description="kept probes of the subject, removed from calibrations with their scores"
    )
    index_blocks: int = Field(description="index files on this machine that held them, removed with them")
    database: str = Field(description="`sqlite` or `postgresql`")
    database_complete: bool = Field(description="whether the database's files no longer hold the bytes")
    pending: list[str] = Field(description="what will complete it, and when")
    models_with_training_rows: list[ModelOfGallery] = Field(
        description="versions whose artefacts keep rows of their training data: train them anew without the person"
    )
    erased_at: str


class SearchBody(BaseModel):
    """Whom to look for, and what counts as found."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    queries: Vectors = Field(description="a vector or a list of vectors", examples=[[0.1, 0.2, 0.3]])
    k: int = Field(10, ge=1, description="how many to return at most")
    filter: dict[str, Any] | None = Field(
        None,
        description='metadata that items must have: `{"site": "north"}`, `{"site": {"in": ["north", "south"]}}`, '
        '`{"year": {"gte": 2020, "lt": 2024}}`; applied before ranking',
    )
    group_by: Literal["subject"] | None = Field(
        None,
        description="`subject`: one hit for each subject, its best item; or the subject as a whole, see `aggregation`",
    )
    aggregation: Aggregation | None = Field(
        None,
        description="with `group_by`: compare each subject as a whole, by all of its items: `auto` (plda where the "
        "model has it, else mean), `mean`, `plda`, `best` or `median`; `fpir` then takes a calibration made with the "
        "same",
    )
    fpir: Rate | None = Field(
        None,
        description="return only matches, at this false positive identification rate of the whole search",
    )
    fpr: Rate | None = Field(
        None, description="return only matches, at this false positive rate of each comparison"
    )
    fnr: Rate | None = Field(
        None,
        description="with fpr: a false negative rate of each comparison too; items between the two thresholds are "
        "returned for review, and `confidence` is that both promises hold",
    )
    confidence: Rate = Field(0.95, description="how sure the bound shall be")


class SearchHit(BaseModel):
    """An item that was found."""

    id: str | None = Field(description="null for a subject that was compared as a whole")
    subject: str | None
    items: int | None = Field(None, description="items of a subject that was compared as a whole")
    score: float | None = Field(None, description="absent for keys that may only decide")
    match: bool | None = None
    decision: Literal["match", "review"] | None = Field(None, description="with fnr")


class SearchOut(BaseModel):
    """Found items of each query, best first, ties by id; with a rate, an empty list is the answer "unknown"."""

    model: ModelOfGallery
    results: list[list[SearchHit]]
    aggregation: str | None = Field(None, description="how subjects were compared as wholes")
    operating_point: dict[str, Any] | None = None
    warning: str | None = None


class VerifyBody(BaseModel):
    """One vector, or a subject of several samples, to be compared with all of a subject's items."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    probe: Side = Field(
        description='one vector, or several samples `{"samples": [vector, ..]}`', examples=[[0.1, 0.2, 0.3]]
    )


class VerifyOut(BaseModel):
    """Whether the probe is of the subject."""

    model: ModelOfGallery
    subject: str
    match: bool = Field(description="score > threshold, compared in float32")
    decision: Literal["match", "review", "different"] | None = Field(
        None,
        description="with fnr. Where the best of several items decides, its false negative rate is at most that of one",
    )
    score: float | None = Field(
        None,
        description="of the probe with the subject as a whole, or the best over its items where `aggregation` is "
        "absent; left out for keys that may only decide",
    )
    id: str = Field(description="the item that scored best")
    items: int = Field(description="items compared")
    operating_point: dict[str, Any]
    aggregation: str | None = Field(
        None, description="how the subject was compared as a whole; null: the best of its items decided"
    )
    fpr_upper_bound: float = Field(
        description="of the whole verification: where the best item decides, the bound of one comparison times items"
    )
    warning: str | None = None


class ProbesRequest(Strict):
    """Probes with known subjects: a dataset, or vectors and subjects."""

    dataset: str | None = Field(
        None, max_length=200, description="`name` or `name:version`; its labels are subjects"
    )
    vectors: list[list[float]] | None = Field(None, description="(n, d) numbers")
    subjects: list[str] | None = Field(None, description="(n,) whose each vector is")
    random_state: int = Field(0, ge=0, le=2**32 - 1, description="draws one probe a subject")
    aggregation: Aggregation | None = Field(
        None, description="measure searches for whole subjects (`group_by: subject` with this `aggregation`)"
    )


class GalleryCalibrationRequest(ProbesRequest):
    """Probes to calibrate a gallery with."""

    keep_probes: bool = Field(
        True,
        description="keep the probes' vectors, so that thresholds follow every write and erasure; they "
        "are never shown, and erased with DELETE /galleries/{gallery}/subjects/{subject}. Without them the threshold "
        "is refused once more than a tenth of the gallery has changed",
    )


class GalleryEvaluationRequest(ProbesRequest):
    """What to measure a gallery with."""

    max_rank: int = Field(20, ge=1, le=100)
    fpir: list[Rate] = Field(
        [0.01, 0.05, 0.1], max_length=20, description="rates to tell thresholds and FNIR at"
    )
    confidence: Rate = 0.95
    leave_one_out: bool = Field(False, description="also search every enrolled subject among the others")


class GalleryCalibrationOut(BaseModel):
    """What searches with strangers said about thresholds in a gallery."""

    id: str
    gallery: str
    model: ModelOfGallery
    aggregation: str | None = Field(
        None, description="how subjects are compared in the searches it is for; null: single items"
    )
    n_probes: int = Field(description="people who are not enrolled, one probe each")
    n_mated: int = Field(description="people who are, one probe each")
    gallery_size: int
    smallest_fpir: float = Field(description="the smallest rate that is answered at confidence 0.95")
    changed: int = Field(description="rows written or removed since these figures; searches count them")
    probes_kept: bool = Field(description="whether thresholds follow what is written and erased")
    stale: bool = Field(
        description="of another version, or its probes were not kept and more than a tenth has changed: calibrate again"
    )
    warnings: list[str]
    created_at: str


class GalleryEvaluationOut(BaseModel):
    """A gallery measured with probes."""

    id: str
    gallery: str
    model: ModelOfGallery
    gallery_size: int
    aggregation: str | None = Field(
        None, description="how subjects were compared as wholes; null: single items"
    )
    n_mated: int
    n_strangers: int
    rank_1: float | None = Field(description="share of mated probes whose own subject comes first")
    cmc: dict[str, Any] | None = Field(description="share within each rank, with intervals")
    identification: list[dict[str, Any]] = Field(
        description="at each rate: the threshold these strangers give and its FNIR, or why there is none"
    )
    calibrated: dict[str, Any] | None = Field(
        description="what the gallery's own calibrated threshold (at the first of the rates) did with these probes"
    )
    leave_one_out: dict[str, Any] | None = Field(description="an estimate without guarantee, labelled so")
    warnings: list[str]
    created_at: str
