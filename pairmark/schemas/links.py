"""Links within a table or between two."""

from __future__ import annotations

from pydantic import Field

from pairmark.schemas.base import Answer, Moment, Page, Request
from pairmark.schemas.jobs import JobState


class LinksRequest(Request):
    """What to link."""

    left: str = Field(
        max_length=200, description="a dataset of records, `name` or `name:version`", examples=["customers"]
    )
    right: str | None = Field(
        None,
        max_length=200,
        description="a second one; without it, duplicates within the first are looked for",
    )
    false_links: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="the share of the links that may be false, by the fitted model's own estimate; without it, a link "
        "is a pair that is likelier a match than not",
    )


class LinkBlocking(Answer):
    """How candidates were found."""

    rules: list[list[str]] = Field(
        description="columns that a candidate's records have in common, a rule each",
        examples=[[["phone"], ["last", "born"]]],
    )
    left_out: list[list[str]] = Field(
        description="rules that would have made more candidates than the budget", examples=[[]]
    )
    candidates_per_record: float = Field(description="candidates for each record", examples=[2.8])


class FalseLinks(Answer):
    """How many of the links are false."""

    estimate: float = Field(
        description="the share as the fitted model has it: an estimate, no bound", examples=[0.0015]
    )


class LinkSummary(Answer):
    """What was linked."""

    records: int = Field(description="records of both tables", examples=[10_000])
    candidates: int = Field(description="pairs of records that were compared", examples=[27_657])
    links: int = Field(description="pairs that are linked", examples=[5_280])
    cut: int = Field(
        description="pairs that look the same and would join records that contradict each other", examples=[0]
    )
    entities: int = Field(description="entities of two records or more", examples=[1_870])
    empty: int = Field(description="records without any cell, which link to nothing", examples=[0])
    blocking: LinkBlocking = Field(description="how candidates were found")
    false_links: FalseLinks = Field(description="how many of the links are false")
    ids: list[str | None] = Field(
        description="the column that names the rows of each table; null: row numbers", examples=[["id"]]
    )
    notes: list[str] = Field(description="what to know about the tables", examples=[[]])


class LinksOut(Answer):
    """A link job and what it found."""

    id: str = Field(description="of the job, too", examples=["6f1ed002ab5595859014ebf0951522d9"])
    left: str = Field(description="the dataset, `name:version`", examples=["customers:1"])
    right: str | None = Field(description="the second dataset; null: there is one", examples=[None])
    state: JobState = Field(description="the state of its job", examples=["succeeded"])
    created_at: Moment = Field(description="when it was submitted")
    # What was linked: null until the job has succeeded.
    records: int | None = Field(None, description="records of both tables", examples=[10_000])
    candidates: int | None = Field(None, description="pairs of records that were compared", examples=[27_657])
    links: int | None = Field(None, description="pairs that are linked", examples=[5_280])
    cut: int | None = Field(
        None, description="pairs that would join records that contradict each other", examples=[0]
    )
    entities: int | None = Field(None, description="entities of two records or more", examples=[1_870])
    empty: int | None = Field(
        None, description="records without any cell, which link to nothing", examples=[0]
    )
    blocking: LinkBlocking | None = Field(None, description="how candidates were found")
    false_links: FalseLinks | None = Field(None, description="how many of the links are false")
    notes: list[str] | None = Field(None, description="what to know about the tables", examples=[[]])


class LinksPage(Page[LinksOut]):
    """Link jobs, newest first."""


class LinkOut(Answer):
    """Two records that are linked, by their ids."""

    left: str = Field(description="id of the left record", examples=["c1"])
    right: str = Field(description="id of the right record", examples=["c17"])
    score: float = Field(description="the chance of a match", examples=[0.9999])
    decision: str = Field(description="`match`; `different` where the link was cut", examples=["match"])
    entity: str | None = Field(
        description="the id of the entity's first record; null where the link was cut", examples=["c1"]
    )


class LinkPage(Page[LinkOut]):
    """Links, in the order of the left table's rows."""


class EntityOut(Answer):
    """Records of one person or thing."""

    id: str = Field(description="the id of its first record", examples=["c1"])
    records: list[str] = Field(description="ids of its records", examples=[["c1", "c17"]])


class EntityPage(Page[EntityOut]):
    """Entities, in the order of their ids."""
