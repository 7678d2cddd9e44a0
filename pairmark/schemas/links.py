"""Links within a table or between several."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pairmark.schemas.base import Answer, Moment, Request
from pairmark.schemas.jobs import JobState
from pairmark.schemas.link_shares import FalseLinks, LinkRecall, MissedLinks

CANDIDATES_PER_RECORD = 50
MAX_TABLES = 30

_Ref = Annotated[str, Field(min_length=1, max_length=200)]


class LinksRequest(Request):
    """What to link."""

    left: str | None = Field(
        None,
        max_length=200,
        description="a dataset of records, `name` or `name:version`",
        examples=["customers"],
    )
    right: str | None = Field(
        None,
        max_length=200,
        description="a second one; without it, duplicates within the first are looked for",
    )
    tables: list[_Ref] | None = Field(
        None,
        min_length=1,
        max_length=MAX_TABLES,
        description="in the place of `left` and `right`, any number of datasets: with three and more, links across and "
        'within them, such as `["customers", "orders", "newsletter"]`',
    )
    unique: list[_Ref] | None = Field(
        None,
        min_length=1,
        max_length=MAX_TABLES,
        description="those of the datasets, as they are called here, that have no duplicates: an entity has one record "
        "of each at most",
    )
    model: str | None = Field(
        None,
        max_length=200,
        description="a model of records, which scores candidates; without it, one is fitted on the tables themselves",
        examples=["people@production"],
    )
    rules: list[Annotated[list[str], Field(min_length=1, max_length=31)]] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="columns that candidates have in common, a rule each; without it, rules are proposed from the "
        "data. `blocking.rules` reads them back",
        examples=[[["phone"], ["last", "born"]]],
    )
    must: list[Annotated[list[str], Field(min_length=1, max_length=31)]] | None = Field(
        None,
        max_length=100,
        description="columns; records that have the same values of all of one entry are linked, whatever else"
        " they hold",
        examples=[[["npi"]]],
    )
    never: list[str] | None = Field(
        None,
        max_length=100,
        description="columns; records with different values of one are never linked nor of one entity, whatever"
        " `must` says",
        examples=[["born"]],
    )
    frequencies: dict[str, _Ref] | None = Field(
        None,
        max_length=60,
        description="by column, a dataset of two columns, value and frequency: how frequent values are elsewhere, as "
        "shares or counts, in the place of what the tables say; values that it lacks are as frequent as there",
    )
    candidates_per_record: int = Field(
        CANDIDATES_PER_RECORD,
        ge=1,
        le=1_000,
        description="candidates for each record, at most: a rule that would make more is left out, and "
        "`blocking.left_out` says so",
    )
    fpr: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="links score above the model's threshold at this rate of its calibration; without `model`, where "
        "the fitted model estimates it. About candidates that guarantees nothing",
    )
    cut: float | None = Field(
        None,
        ge=-1e6,
        le=1e6,
        description="links score above it: the chance of a match, or a model's score. By default a link is a pair that "
        "is likelier a match than not",
        examples=[0.9],
    )
    false_links: float | None = Field(
        None,
        ge=1e-6,
        le=0.9,
        description="the share of the links that may be false: judgements (the job's review, or `--judge`) are asked "
        "for until their bound is below. Without `model`, links are also kept to this share by the fitted model's own "
        "estimate; by default a link is a pair that is likelier a match than not, and judgements are about 0.02",
    )
    expected_false_links: float | None = Field(
        None,
        ge=1e-4,
        le=0.5,
        description="of two datasets, one of which is `unique`: the mean share of false links, kept by conformal "
        "p-values that the unique one's own pairs make. Expected if what `notes` say holds; no bound",
    )
    missed_links: float | None = Field(
        None,
        ge=1e-6,
        le=0.9,
        description="the share of the true links among candidates that may be missed: the job opens a second review, "
        "of links and of candidates that are none, each of a kind drawn with the same probability",
    )
    recall: float | None = Field(
        None,
        ge=0.1,
        le=0.99,
        description="the share of the true links, candidates or not, that is to be found: the job's review, or "
        "`--judge`, asks about records drawn at random, each beside the five of all tables that are nearest to it",
    )
    confidence: float = Field(
        0.95, ge=0.5, le=0.9999, description="the confidence with which the bounds hold"
    )
    one_to_one: bool = Field(
        False, description="a record is linked to one other at most; of several links the surest is kept"
    )
    previous: str | None = Field(
        None,
        max_length=32,
        description="an earlier link job on the same tables: records that are new or changed are compared, entities "
        "keep their ids, and what people merged and split stays",
    )

    @property
    def datasets(self) -> list[str]:
        """All that are linked, in order."""
        return self.tables or [each for each in (self.left, self.right) if each is not None]

    @model_validator(mode="after")
    def _several_tables(self) -> Self:
        if (self.left is None) == (self.tables is None) or (
            self.tables is not None and self.right is not None
        ):
            raise ValueError("expected either left and, perhaps, right, or tables")
        unique = self.unique or []
        if unique and len(self.datasets) < 2:
            raise ValueError(
                "expected two tables or more with unique: within a unique one there are no links"
            )
        if strange := sorted({*unique} - {*self.datasets}):
            raise ValueError(
                f"unique names {strange[0]!r}; expected some of {', '.join(self.datasets)}, as they are called here"
            )
        if self.expected_false_links is not None:
            if len(self.datasets) != 2 or len({*unique}) != 1:
                raise ValueError("expected two tables, one of them unique, with expected_false_links")
            others = ("fpr", "cut", "false_links", "must", "one_to_one", "previous")
            if given := [name for name in others if getattr(self, name)]:
                raise ValueError(f"expected expected_false_links or {given[0]}, not both")
        return self

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        others = [name for name in ("false_links", "cut") if getattr(self, name) is not None]
        if self.fpr is not None and others:
            raise ValueError(f"expected fpr or {others[0]}, not both")
        for name in ("missed_links", "recall"):
            if getattr(self, name) is not None and self.previous is not None:
                raise ValueError(f"expected {name} or previous, not both: only what is new is compared again")
        if self.frequencies and (self.model or self.previous):
            other = "model" if self.model else "previous"
            raise ValueError(
                f"expected frequencies or {other}, not both: a model that is there has its own weights"
            )
        return self


class LinkBlocking(Answer):
    """How candidates were found."""

    rules: list[list[str]] = Field(
        description="columns that a candidate's records have in common, a rule each",
        examples=[[["phone"], ["last", "born"]]],
    )
    left_out: list[list[str]] = Field(
        description="rules that would have made more candidates than `at_most`", examples=[[]]
    )
    at_most: int = Field(
        CANDIDATES_PER_RECORD,
        description="candidates for each record that rules may make together",
        examples=[50],
    )
    candidates_per_record: float = Field(description="candidates for each record", examples=[2.8])
    recall: float | None = Field(
        None,
        description="the share of the true entities whose records candidates connect, where the dataset has "
        "identities; else an estimate of the share of the links that rules find",
        examples=[0.991],
    )
    recall_interval: tuple[float, float] | None = Field(
        None, description="Clopper's and Pearson's, by entity; null: recall is an estimate"
    )
    recall_from: Literal["labels", "overlap"] | None = Field(
        None,
        description="`labels`: measured; `overlap`: estimated from how many links several rules find, which is too "
        "high where records are hard to find by all rules alike",
    )


class LinkColumn(Answer):
    """A column and what it says."""

    name: str = Field(description="its name; of the left table where names differ", examples=["born"])
    kind: str = Field(description="by which its cells are compared", examples=["date"])
    weight: float = Field(
        description="log of how many times likelier it is equal in a match than in strangers; 0: it tells nothing",
        examples=[6.4],
    )
    note: str | None = Field(None, description="why it tells nothing, or what it contradicts")


class LinkPoint(Answer):
    """Where the cut is."""

    fpr: float = Field(description="the rate that was asked for", examples=[0.001])
    threshold: float = Field(description="links score above it", examples=[0.93])
    guarantee: Literal["none"] = Field(
        "none", description="the rate is about pairs drawn at random, and candidates are not"
    )


Interval = tuple[float | None, float, float]
"""A share and both ends of its interval."""


class LinkFigures(Answer):
    """How right links above a cut are."""

    cut: float | None = Field(description="links score above it; null: as they were decided", examples=[0.5])
    joined: int = Field(description="pairs that are joined, of those that count", examples=[440])
    right: int = Field(description="of these, pairs that are the same", examples=[438])
    same: int = Field(description="all pairs that are the same", examples=[445])
    precision: Interval = Field(
        description="share of the joined pairs that are the same, and its interval",
        examples=[[0.995, 0.98, 0.999]],
    )
    recall: Interval = Field(
        description="share of the same pairs that are joined, and its interval", examples=[[0.98, 0.97, 0.99]]
    )
    f1: Interval = Field(description="the harmonic mean of both", examples=[[0.99, 0.98, 0.995]])
    b_cubed: tuple[Interval, Interval, Interval] | None = Field(
        description="precision, recall and F1 by record (B-cubed); null: only pairs are known"
    )


class LinkEvaluation(Answer):
    """Links against what is known to be the same, with intervals by entity."""

    basis: Literal["identities", "pairs"] = Field(description="what is known")
    confidence: float = Field(description="of each interval", examples=[0.95])
    entities: int = Field(description="entities of two records or more that are known", examples=[430])
    decided: LinkFigures = Field(description="of the links as they were decided")
    by_cut: list[LinkFigures] = Field(description="of the links above some cuts, ascending")
    best_cut: float | None = Field(description="where F1 is largest; null: as decided", examples=[0.87])


class LinkCut(Answer):
    """What a higher cut would leave."""

    cut: float = Field(description="links score above it", examples=[0.99])
    links: int = Field(description="how many do", examples=[431])
    estimate: float | None = Field(
        description="the share of these that is false, as the fitted model has it; null: there are none",
        examples=[0.0003],
    )


class LinkSummary(Answer):
    """What was linked."""

    records: int = Field(description="records of all tables", examples=[10_000])
    candidates: int = Field(description="pairs of records that were compared", examples=[27_657])
    links: int = Field(description="pairs that are linked", examples=[5_280])
    conflicts: int = Field(
        description="pairs that look the same and would join records that contradict each other", examples=[0]
    )
    entities: int = Field(description="entities of two records or more", examples=[1_870])
    empty: int = Field(description="records without any cell, which link to nothing", examples=[0])
    blocking: LinkBlocking = Field(description="how candidates were found")
    false_links: FalseLinks | None = Field(
        description="how many of the links are false; null: there are none, and `notes` say of which columns"
    )
    columns: list[LinkColumn] = Field(
        description="what was compared, and what each column says", examples=[[]]
    )
    ids: list[str | None] = Field(
        description="the column that names the rows of each table; null: row numbers", examples=[["id"]]
    )
    notes: list[str] = Field(description="what to know about the tables", examples=[[]])
    cuts: list[LinkCut] = Field(
        description="what higher cuts would leave; none with a trained model", examples=[[]]
    )
    evaluation: LinkEvaluation | None = Field(
        None, description="links against the tables' identities; null: they have none"
    )
    recall: LinkRecall | None = Field(
        None, description="how many of the true links were found, where that was asked and judged"
    )


class LinksOut(Answer, extra="ignore"):
    """A link job and what it found."""

    id: str = Field(description="of the job, too", examples=["6f1ed002ab5595859014ebf0951522d9"])
    left: str = Field(description="the dataset, `name:version`", examples=["customers:1"])
    right: str | None = Field(description="the second dataset; null: there is one", examples=[None])
    tables: list[str] = Field(description="all datasets", examples=[["customers:1"]])
    unique: list[str] = Field([], description="those without duplicates", examples=[[]])
    state: JobState = Field(description="the state of its job", examples=["succeeded"])
    created_at: Moment = Field(description="when it was submitted")
    # What was linked: null until the job has succeeded.
    records: int | None = Field(None, description="records of all tables", examples=[10_000])
    candidates: int | None = Field(None, description="pairs of records that were compared", examples=[27_657])
    links: int | None = Field(None, description="pairs that are linked", examples=[5_280])
    conflicts: int | None = Field(
        None, description="pairs that would join records that contradict each other", examples=[0]
    )
    entities: int | None = Field(None, description="entities of two records or more", examples=[1_870])
    empty: int | None = Field(None, description="records without any cell, which link to none", examples=[0])
    blocking: LinkBlocking | None = Field(None, description="how candidates were found")
    false_links: FalseLinks | None = Field(
        None, description="how many of the links are false; null where there are none"
    )
    columns: list[LinkColumn] | None = Field(None, description="what was compared, and what each column says")
    missed_links: MissedLinks | None = Field(None, description="with `missed_links`, how many are missed")
    recall: LinkRecall | None = Field(
        None,
        description="with `recall`, how many are found; null, too, where no drawn record has another beside it",
    )
    review: str | None = Field(None, description="the review that bounds the share of false links")
    operating_point: LinkPoint | None = Field(None, description="with `fpr`, where the cut is")
    model: str | None = Field(None, description="the model that scores; null: one was fitted on the tables")
    one_to_one: bool = Field(False, description="whether a record is linked to one other at most")
    previous: str | None = Field(None, description="the earlier job that it goes on from")
    request: dict[str, Any] = Field(
        description="what was asked, as `POST /links` takes it", examples=[{"tables": ["customers:1"]}]
    )
    notes: list[str] | None = Field(None, description="what to know about the tables", examples=[[]])
    cuts: list[LinkCut] | None = Field(None, description="what higher cuts would leave", examples=[[]])


class LinkOut(Answer):
    """Two records that are linked, by their ids."""

    left: str = Field(description="id of the left record", examples=["c1"])
    right: str = Field(description="id of the right record", examples=["c17"])
    score: float = Field(description="the chance of a match; with a model, its score", examples=[0.9999])
    decision: str = Field(description="`match`; `different` where the link was cut", examples=["match"])
    entity: str | None = Field(description="the entity's id; null where the link was cut", examples=["c1"])
    left_table: int | None = Field(
        None, description="of three tables and more, which the left record is of, from 1"
    )
    right_table: int | None = Field(None, description="likewise, which the right record is of")
    cells: tuple[dict[str, Any], dict[str, Any]] | None = Field(
        None, description="cells of both records, where they were asked for"
    )


class EntityOut(Answer):
    """Records of one person or thing."""

    id: str = Field(
        description="the id of its first record when it was found; it stays when `previous` says so",
        examples=["c1"],
    )
    records: list[str] = Field(description="ids of its records", examples=[["c1", "c17"]])
    tables: list[int] = Field(description="which table each is of, from 1", examples=[[1, 1]])


class LinkField(Answer):
    """A column of two records."""

    field: str = Field(description="name of the column", examples=["last"])
    left: Any = Field(description="the left record's cell", examples=["Miller"])
    right: Any = Field(description="the right record's cell", examples=["Miler"])
    level: Literal["missing", "different", "weak", "close", "equal"] = Field(
        description="how far they agree", examples=["close"]
    )
    weight: float = Field(
        description="what that adds to the log odds of a match, or to a trained model's score", examples=[4.1]
    )


class LinkExplained(Answer):
    """Why two records are linked, or are not."""

    left: str = Field(description="id of the left record", examples=["c1"])
    right: str = Field(description="id of the right record", examples=["c17"])
    score: float | None = Field(
        description="the chance of a match, or a model's score; null: the pair is not above the cut, or no candidate"
    )
    decision: Literal["match", "different"] = Field(description="what was decided")
    entity: str | None = Field(description="the entity of both; null: they have none in common")
    fields: list[LinkField] = Field(description="column by column")


class EntityChange(Answer):
    """What became of an entity since the job before."""

    entity: str = Field(description="its id; of `split`, that of before", examples=["c1"])
    change: Literal["joined", "merged", "split"] = Field(
        description="`joined`: records that were in none; `merged`: records of several; `split`: records left it"
    )
    records: list[str] = Field(description="ids of the records that came or left", examples=[["c17"]])
    entities: list[str] = Field(
        description="of `merged`, the entities of before; of `split`, where its records are now",
        examples=[[]],
    )


class EntitiesEdit(Request):
    """What a person says of entities: kept for jobs that go on from this one."""

    merge: list[str] | None = Field(
        None,
        min_length=2,
        max_length=500,
        description="ids of entities that are one, or of records that are in none; the first one's id stays",
        examples=[["c1", "c40"]],
    )
    split: str | None = Field(None, description="id of an entity that is two")
    records: list[str] | None = Field(
        None, min_length=1, max_length=500, description="with `split`: ids of the records that leave it"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.merge is None) == (self.split is None) or (self.split is None) != (self.records is None):
            raise ValueError("expected either merge, or split with records")
        return self


_SURROGATE = re.compile("[\ud800-\udfff]")
Cell = str | bool | int | float | list[str] | None


class ResolveRequest(Request):
    """A record whose entity is asked for."""

    record: dict[str, Cell] = Field(
        min_length=1,
        max_length=1_000,
        description="its cells by column; dates as YYYY-MM-DD",
        examples=[{"first": "Ann", "last": "Miler", "born": "1980-02-01"}],
    )
    add: bool = Field(
        False,
        description="keep it: in the entity of the first match, or alone; jobs that go on from this one (`previous`) "
        "keep it, too",
    )
    id: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        description="with `add`, the id that it has from then on, such as `c5001`; without it, one is made",
    )

    @model_validator(mode="after")
    def _texts_are_kept(self) -> Self:
        for name, cell in {
            **{f"record.{each[:100]}": cell for each, cell in self.record.items()},
            "id": self.id,
        }.items():
            text = "".join(cell) if isinstance(cell, list) else cell
            if isinstance(text, str) and ("\x00" in text or (not text.isascii() and _SURROGATE.search(text))):
                raise ValueError(
                    f"{name} holds a character that no database keeps, NUL or half of one; expected text"
                )
        if self.id is not None and not self.id.strip():
            raise ValueError("id is blank; expected text, or none, and one is made")
        return self

    @model_validator(mode="after")
    def _id_of_added(self) -> Self:
        if self.id is not None and not self.add:
            raise ValueError("expected id with add: a record that is not kept has none")
        return self


class ResolvedEntity(Answer):
    """An entity that a record may belong to."""

    entity: str = Field(description="its id; that of a record that is in none", examples=["c1"])
    score: float = Field(
        description="the chance that the record is the same as the likeliest of the entity's",
        examples=[0.9998],
    )
    decision: Literal["match", "different"] = Field(
        description="`match` where the score is above the cut, and all records of the entity together speak for it"
    )
    records: list[str] = Field(description="ids of its records", examples=[["c1", "c17"]])


class LinksResolved(Answer):
    """Which entities a record may belong to."""

    entities: list[ResolvedEntity] = Field(
        description="matches first, then by score: ten at most, of a chance of 1 % or more"
    )
    added: str | None = Field(None, description="with `add`, the id that it has", examples=["c5001"])


class LinkErasure(Request):
    """A record whose links are erased."""

    record: str = Field(min_length=1, max_length=512, description="its id", examples=["c17"])


class LinksErased(Answer):
    """What an erasure removed, and what is left to do."""

    record: str = Field(description="id of the record", examples=["c17"])
    links: int = Field(description="number of links removed", examples=[1])
    review_items: int = Field(
        description="pairs of the review: they stay in the population, and count as wrong if drawn",
        examples=[1],
    )
    pending: list[str] = Field(description="what is still to be done")
