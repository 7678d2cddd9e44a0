"""Galleries, their items, searches and calibrations."""

from typing import Any, Literal, Self

from pydantic import (
    Field,
    model_validator,
)

from pairmark.schemas.base import REFS_TEXT, Answer, Body, QueryModel, Rate, Ref, Request, Side, Vectors
from pairmark.schemas.scoring import Aggregation, MatchOut, PointParameters


class GalleryRequest(Request):
    """The model that searches a gallery."""

    model: str | None = Field(
        None,
        max_length=200,
        description="`name`, `name@alias` or `name:version`. The gallery keeps the version that this names now, "
        "until another PUT moves it. Optional if only one model can answer",
        examples=["people"],
    )


class ModelOfGallery(Answer):
    """A version."""

    name: str = Field(description="its name", examples=["people"])
    version: int = Field(description="number of the version", examples=[1])
    kind: str | None = Field(None, description="kind of the learner, as in `GET /learners`")


class GalleryOut(Answer):
    """A gallery."""

    name: str = Field(description="its name", examples=["badges"])
    model: ModelOfGallery = Field(description="the version that searches it")
    dimension: int = Field(description="length of its vectors", examples=[4])
    columns: dict[str, str] | None = Field(
        None, description="of records: the type of each column; null if the gallery holds vectors"
    )
    items: int = Field(description="number of items", examples=[500])
    subjects: int | None = Field(None, description="number of different subjects; absent in lists")
    calibration: str | None = Field(
        None, description="id of the newest calibration with the current version; absent in lists"
    )
    sequence: int = Field(
        description="a counter that increases with every row written or removed", examples=[500]
    )
    fields: list[str] = Field(description="metadata fields that a filter can use", examples=[["site"]])
    created_at: str = Field(description="when it was created", examples=["2026-01-31T12:00:00.000Z"])
    updated_at: str = Field(description="when it was last changed", examples=["2026-01-31T12:00:24.500Z"])


class RowError(Answer):
    """A row that was not stored."""

    row: int = Field(description="0-based index in the request", examples=[3])
    id: str | None = Field(None, description="id of the row, if it has one")
    detail: str = Field(
        description="what is wrong, for people", examples=["vector has 3 numbers; expected 4"]
    )


class ImportOptions(QueryModel):
    """How a bulk body becomes items."""

    id: str = Field("id", max_length=256, description="CSV, Parquet: column of ids")
    subject: str = Field("subject", max_length=256, description="CSV, Parquet: column of subjects")
    metadata: str | None = Field(
        None, max_length=4096, description="CSV, Parquet: columns kept as metadata, joined by commas"
    )

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in (self.metadata or "").split(",") if name)


class ItemIn(Request, extra="ignore"):
    """An item to enrol or to replace."""

    id: str = Field(min_length=1, max_length=512, description="its id")
    subject: str | None = Field(
        None, min_length=1, max_length=512, description="the person or thing that it is of; null: not named"
    )
    vector: list[float] | dict[str, Any] = Field(
        description='numbers, or a record `{"column": value, ..}` for a model of records'
    )
    metadata: dict[str, Any] | None = Field(
        None, description="your own fields of the item, which filters can use"
    )


class ItemsBody(Request):
    """Items to enrol. Each item is checked separately, so an invalid one does not affect the others."""

    items: list[ItemIn] = Field(
        min_length=1,
        description="the entries of this page",
        examples=[
            [
                {
                    "id": "ada-1",
                    "subject": "ada",
                    "vector": [0.27, -0.15, 0.41, -0.05],
                    "metadata": {"site": "north"},
                }
            ]
        ],
    )


class UpsertOut(Answer):
    """What was stored."""

    upserted: int = Field(description="number of stored items", examples=[1])
    errors: list[RowError] = Field(description="the first 1,000 rows that were not stored")
    n_errors: int = Field(description="number of rows that were not stored", examples=[1])


class ItemOut(Answer):
    """An item."""

    id: str = Field(description="its id", examples=["ada-1"])
    subject: str | None = Field(
        None, description="the person or thing that it is of; null: not named", examples=["ada"]
    )
    metadata: dict[str, Any] | None = Field(
        None, description="your own fields of the item, which filters can use", examples=[{"site": "north"}]
    )
    vector: list[float] | dict[str, Any] | None = Field(None, description="numbers, or the record")


class ErasureRequest(Request):
    """What to erase: either an item or a subject."""

    id: str | None = Field(None, min_length=1, max_length=512, description="the item's id")
    subject: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        description="the subject; all of its items and probes are erased",
        examples=["ada"],
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.id is None) == (self.subject is None):
            raise ValueError("expected either id or subject")
        return self


class Receipt(Answer):
    """What an erasure removed, and what is left to do."""

    gallery: str = Field(description="name of the gallery", examples=["badges"])
    id: str | None = Field(None, description="the erased item; null: a subject was erased")
    subject: str | None = Field(
        None, description="the erased subject; null: one item was erased", examples=["ada"]
    )
    items: int = Field(description="number of items removed", examples=[1])
    probes: int = Field(
        0,
        description="number of the subject's kept probes that were removed from calibrations, with their scores",
    )
    index_blocks: int = Field(
        description="number of index files on this machine that contained the items and were removed"
    )
    database: str = Field(description="`sqlite` or `postgresql`", examples=["sqlite"])
    database_complete: bool = Field(
        description="whether the database's files no longer contain the data", examples=[True]
    )
    pending: list[str] = Field(description="what is still to be done, and when it happens")
    erased_at: str = Field(description="when it was erased", examples=["2026-01-31T12:00:24.500Z"])


class SearchRequestFields(Body):
    """Which results a search returns."""

    k: int = Field(10, ge=1, description="largest number of results per query")
    filter: dict[str, Any] | None = Field(
        None,
        description='metadata that items must match: `{"site": "north"}`, `{"site": {"in": ["north", "south"]}}`, '
        '`{"year": {"gte": 2020, "lt": 2024}}`. It is applied before the search',
    )
    group_by: Literal["subject"] | None = Field(
        None,
        description="`subject`: one result per subject, its best item",
    )
    fpir: Rate | None = Field(
        None,
        description="return only matches, at this false positive identification rate of the whole search",
    )
    fpr: Rate | None = Field(
        None, description="return only matches, at this false positive rate of each comparison"
    )
    confidence: Rate = Field(0.95, description="the confidence with which the bound holds")
    refs: list[Ref] | None = Field(None, description=f"with a rate: your name of each query, {REFS_TEXT}")


class SearchBody(SearchRequestFields):
    """The vectors to search for, and which results to return."""

    queries: Vectors = Field(
        description="a vector or a list of vectors", examples=[[0.27, -0.15, 0.41, -0.05]]
    )


class SearchHit(Answer):
    """An item that was found."""

    id: str = Field(description="the item's id", examples=["ada-1"])
    subject: str | None = Field(
        description="the person or thing that it is of; null: not named", examples=["ada"]
    )
    score: float | None = Field(None, description="absent for keys that may only decide", examples=[5.1])
    match: bool | None = Field(
        None,
        description="whether the score is above the threshold; null: no rate was requested",
        examples=[True],
    )


class CandidatesOut(Answer):
    """How a search of many records chose what it scored."""

    scored: int = Field(description="records that were scored for each query, those that share most with it")


class SearchOut(Answer):
    """Results of each query, best first, ties by id. With a rate, an empty list means "unknown"."""

    model: ModelOfGallery = Field(description="the model")
    results: list[list[SearchHit]] = Field(description="the hits of each query, best first")
    candidates: CandidatesOut | None = Field(
        None, description="of a gallery of more records than are all scored; absent if everything was scored"
    )
    reasons: list[str | None] | None = Field(
        None,
        description="why a query matches nobody, whatever it scores: `unlike-calibration`; absent if none has a reason",
    )
    unlike_items: int | None = Field(
        None, description="enrolled items left out as unlike those of the calibration; absent if none"
    )
    operating_point: dict[str, Any] | None = Field(
        None,
        description="the threshold that decided, and what is guaranteed at it; null: no rate was requested",
    )
    warning: str | None = Field(None, description="what makes the guarantee doubtful; null: nothing")
    warnings: list[dict[str, str]] | None = Field(None, description="as of `/match`")


class VerifyParameters(PointParameters):
    """The operating point of a verification, and how a subject of several items is compared."""

    aggregation: Aggregation | None = Field(
        None,
        description="compare the subject as a whole in this way, or refuse. Default: `auto` if the calibration "
        "supports the subject's number of items; otherwise the best item decides",
    )
    fnr: Rate | None = Field(
        None,
        description="also limit the false negative rate: `decision` is `review` between the two thresholds, and both "
        "limits hold with `confidence`",
    )


class VerifyFields(Body):
    """What a verification holds beside the probe."""

    refs: list[Ref] | None = Field(
        None, min_length=1, max_length=1, description=f"your name of the probe, {REFS_TEXT}"
    )


class VerifyBody(VerifyFields):
    """One vector or several samples, to be compared with all items of a subject."""

    probe: Side = Field(
        description='one vector, or several samples `{"samples": [vector, ..]}`',
        examples=[[0.03, -0.17, 0.72, 0.12]],
    )


class VerifyOut(MatchOut):
    """Whether the probe belongs to the subject. Its score is that of the subject as a whole or, if `aggregation` is
    null, of its best item, and `unlike` names rows as `probe[0]` or `item ID`. If the best of several items decides,
    the false negative rate is at most that of one item."""

    model: ModelOfGallery = Field(description="the model")
    subject: str = Field(description="the subject that the probe was compared with", examples=["ada"])
    id: str = Field(description="the item that scored best", examples=["ada-1"])
    items: int = Field(description="number of items compared", examples=[2])
    operating_point: dict[str, Any] = Field(
        description="the threshold that decided, and what is guaranteed at it",
        examples=[{"fpr": 0.01, "threshold": 3.2, "guarantee": "finite-sample"}],
    )
    aggregation: str | None = Field(
        None, description="how the subject was compared as a whole; null: its best item decided"
    )
    fpr_upper_bound: float | None = Field(
        None,
        description="bound for the whole verification; if the best item decides, the bound of one comparison times "
        "the number of items; absent where nothing is guaranteed",
        examples=[0.00998],
    )
    warning: str | None = Field(None, description="what makes the guarantee doubtful; null: nothing")
    warnings: list[dict[str, str]] | None = Field(None, description="as of `/match`")


class GalleryCalibrationRequest(Request):
    """The probes that calibrate a gallery, most of them of people who are not enrolled."""

    dataset: str = Field(
        max_length=200,
        description="`name` or `name:version`; its labels (without labels: its ids) are subjects",
    )
    random_state: int = Field(0, ge=0, le=2**32 - 1, description="seed that draws one probe per subject")


class GalleryCalibrationOut(Answer):
    """A gallery's calibration, from searches by people who are not enrolled."""

    id: str = Field(description="its id", examples=["6f1ed002ab5595859014ebf0951522d9"])
    gallery: str = Field(description="name of the gallery", examples=["badges"])
    model: ModelOfGallery = Field(description="the model")
    n_probes: int = Field(
        description="number of people who are not enrolled, with one probe each", examples=[700]
    )
    n_mated: int = Field(description="number of enrolled people, with one probe each", examples=[500])
    gallery_size: int = Field(description="number of items that each search compared with", examples=[500])
    smallest_fpir: float = Field(
        description="the smallest FPIR that can be answered at confidence 0.95", examples=[0.0043]
    )
    changed: int = Field(
        description="number of rows written or removed since these figures were measured; searches take them into "
        "account"
    )
    stale: bool = Field(
        description="whether to calibrate again: it belongs to another version, or a newer calibration replaced it"
    )
    warnings: list[str] = Field(description="what to look at before relying on it")
    created_at: str = Field(description="when it was created", examples=["2026-01-31T12:00:00.000Z"])
