"""Every table. Times are seconds since the epoch on the database's own clock."""

from enum import IntEnum
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, mapped_column

Json = JSON().with_variant(JSONB(), "postgresql")
Serial = BigInteger().with_variant(Integer(), "sqlite")
ByteText = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that both databases order by its UTF-8 bytes, as Python orders strings."""


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: Json, list[Any]: Json}  # noqa: RUF012

    def __init_subclass__(cls, table: str) -> None:
        cls.__tablename__ = table
        super().__init_subclass__()

    def values(self) -> dict[str, Any]:
        return {column.key: getattr(self, column.key) for column in self.__mapper__.column_attrs}


class HexId:
    """For tables whose rows have random ids."""

    id: Mapped[str] = mapped_column(String(32), primary_key=True)


class SerialId:
    """For tables whose rows are numbered as they come."""

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)


class Created:
    """For tables whose rows say when they were made."""

    created_at: Mapped[float]


class Revision(Base, table="revision"):
    """One row: counts every change to aliases, versions, calibrations and keys, so that workers can see one cheaply."""

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[int] = mapped_column(BigInteger, default=0)


class ApiKey(HexId, Created, Base, table="api_keys"):
    """A key's hash; the key itself is shown once and never stored."""

    name: Mapped[str] = mapped_column(String(200))
    sha256: Mapped[str] = mapped_column(String(64))
    scopes: Mapped[list[Any]]
    tenant: Mapped[str | None] = mapped_column(String(50))
    revoked_at: Mapped[float | None]
    expires_at: Mapped[float | None]
    last_used_at: Mapped[float | None]
    rate: Mapped[float | None]
    replaces: Mapped[str | None] = mapped_column(String(32))


class SessionRow(Created, Base, table="sessions"):
    """A console session: the hash of its word, and the key it stands for."""

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(String(32), ForeignKey("api_keys.id", ondelete="CASCADE"), index=True)
    csrf: Mapped[str] = mapped_column(String(64))
    expires_at: Mapped[float]


class DatasetName(Base, table="dataset_names"):
    """Counts a dataset's versions. `next_version` never goes back, so numbers are not reused after a deletion."""

    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    next_version: Mapped[int]


class DatasetRow(HexId, Created, Base, table="datasets"):
    """An immutable upload. The blob holds its arrays; `summary` what people see."""

    __table_args__ = (UniqueConstraint("name", "version"),)
    name: Mapped[str] = mapped_column(String(200), index=True)
    version: Mapped[int]
    sha256: Mapped[str] = mapped_column(String(64))
    blob: Mapped[str] = mapped_column(String(200))
    rows: Mapped[int] = mapped_column(BigInteger)
    features: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    summary: Mapped[dict[str, Any]]


class JobRow(HexId, Created, Base, table="jobs"):
    """A job: training, or linking. Only the holder of (`attempt`, unexpired lease) may write to a running
    one."""

    __table_args__ = (
        Index("ix_jobs_state_created_at", "state", "created_at"),
        Index("ix_jobs_owner_started_at", "owner", "started_at"),
    )
    learner: Mapped[str] = mapped_column(String(64))
    dataset_id: Mapped[str] = mapped_column(String(32))
    dataset: Mapped[str] = mapped_column(String(200))
    unlabelled_id: Mapped[str | None] = mapped_column(String(32))
    unlabelled: Mapped[str | None] = mapped_column(String(200))
    model: Mapped[str] = mapped_column(String(200))
    params: Mapped[dict[str, Any]]
    evaluation: Mapped[dict[str, Any]]
    promote: Mapped[str | None] = mapped_column(String(64))
    task: Mapped[str] = mapped_column(String(32), default="training", server_default="training")
    result: Mapped[dict[str, Any] | None] = mapped_column(Json)
    state: Mapped[str] = mapped_column(String(16))
    progress: Mapped[float] = mapped_column(default=0.0)
    stage: Mapped[str] = mapped_column(String(200), default="queued")
    message: Mapped[str] = mapped_column(Text, default="")
    error: Mapped[dict[str, Any] | None] = mapped_column(Json)
    version: Mapped[int | None]
    attempt: Mapped[int] = mapped_column(default=0)
    worker: Mapped[str | None] = mapped_column(String(200))
    lease_until: Mapped[float | None]
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    owner: Mapped[str] = mapped_column(String(64), default="", server_default=text("''"))
    idempotency_key: Mapped[str | None] = mapped_column(String(200), unique=True)
    request_sha256: Mapped[str | None] = mapped_column(String(64))
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]


class JobAttempt(Base, table="job_attempts"):
    """The history of a job: one row a try, with how it ended."""

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    worker: Mapped[str] = mapped_column(String(200))
    started_at: Mapped[float]
    ended_at: Mapped[float | None]
    outcome: Mapped[str | None] = mapped_column(String(32))
    detail: Mapped[str] = mapped_column(Text, default="")


class JobEvent(SerialId, Base, table="job_events"):
    """What the event stream replays: progress, log and done, in order of `id`."""

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    at: Mapped[float]
    event: Mapped[str] = mapped_column(String(16))
    data: Mapped[dict[str, Any]]


class WorkerRow(Base, table="workers"):
    """A worker and when it was last heard of. One that stops in order removes its row."""

    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    started_at: Mapped[float]
    seen_at: Mapped[float]
    job_id: Mapped[str | None] = mapped_column(String(32))


class BackupRow(HexId, Base, table="backups"):
    """The last backup."""

    finished_at: Mapped[float]


class AuditRow(SerialId, Base, table="audit"):
    """An entry of the audit log; a trigger refuses to change one. Names and numbers only: nothing of what must stay
    erasable is kept."""

    # Numbers are not reused: a cursor stays where it was when old entries are removed.
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012
    at: Mapped[float] = mapped_column(index=True)
    actor: Mapped[str] = mapped_column(String(200))
    tenant: Mapped[str | None] = mapped_column(String(50), index=True)
    action: Mapped[str] = mapped_column(String(64))
    resource: Mapped[str] = mapped_column(String(400))
    before: Mapped[dict[str, Any] | None] = mapped_column(Json)
    after: Mapped[dict[str, Any] | None] = mapped_column(Json)
    request_id: Mapped[str | None] = mapped_column(String(128))


class ModelRow(HexId, Created, Base, table="models"):
    """A name under which versions are registered. `next_version` never goes back, so numbers are not reused."""

    name: Mapped[str] = mapped_column(String(200), unique=True)
    next_version: Mapped[int] = mapped_column(default=1)
    allow_asymptotic: Mapped[bool | None] = mapped_column(default=None)
    reviews: Mapped[dict[str, Any] | None] = mapped_column(Json)
    rates: Mapped[list[float] | None] = mapped_column(Json)
    missing: Mapped[str] = mapped_column(String(20), default="assume-random", server_default="assume-random")


class ModelVersion(Created, Base, table="model_versions"):
    """An immutable version and where it came from."""

    model_id: Mapped[str] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(64))
    capabilities: Mapped[list[Any]]
    params: Mapped[dict[str, Any]]
    metrics: Mapped[dict[str, Any]]
    lineage: Mapped[dict[str, Any]]
    facts: Mapped[dict[str, Any]]
    artefact_sha256: Mapped[str] = mapped_column(String(64))
    artefact: Mapped[str] = mapped_column(String(200))
    report: Mapped[str | None] = mapped_column(String(200))
    calibration_id: Mapped[str | None] = mapped_column(String(32))
    job_id: Mapped[str | None] = mapped_column(String(32), unique=True)


class AliasRow(Base, table="aliases"):
    """A moving name for a version; `revision` is its ETag."""

    model_id: Mapped[str] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), primary_key=True)
    alias: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int]
    revision: Mapped[int]
    updated_at: Mapped[float]


class AliasChange(SerialId, Base, table="alias_changes"):
    """Every move of an alias."""

    model_id: Mapped[str] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), index=True)
    alias: Mapped[str] = mapped_column(String(64))
    version: Mapped[int]
    previous: Mapped[int | None]
    by: Mapped[str] = mapped_column(String(200))
    at: Mapped[float]
    reason: Mapped[str | None] = mapped_column(String(500))


class CalibrationRow(HexId, Created, Base, table="calibrations"):
    """A calibration of one version, or (without one) of scores made elsewhere. The blob holds its arrays. One of
    `subjects`, numbers of samples and an aggregation, is drawn from the same people as `parent_id`."""

    __table_args__ = (Index("ix_calibrations_parent_id_subjects", "parent_id", "subjects", unique=True),)
    name: Mapped[str] = mapped_column(String(200))
    model_id: Mapped[str | None] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), index=True)
    version: Mapped[int | None]
    dataset_id: Mapped[str | None] = mapped_column(String(32))
    dataset_sha256: Mapped[str | None] = mapped_column(String(64))
    protocol: Mapped[str] = mapped_column(String(16))
    blob: Mapped[str] = mapped_column(String(200))
    summary: Mapped[dict[str, Any]]
    parent_id: Mapped[str | None] = mapped_column(String(32))
    subjects: Mapped[str | None] = mapped_column(String(64))
    moved: Mapped[str | None] = mapped_column(Text)


class ColumnChoice(Base, table="column_choices"):
    """A choice of columns that pairs of records lacked, as `pattern_codes` writes it: worked out again when the service
    starts. The `request` is a `PointRequest` but for its calibration."""

    calibration_id: Mapped[str] = mapped_column(
        ForeignKey("calibrations.id", ondelete="CASCADE"), primary_key=True
    )
    code: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    request: Mapped[list[Any]]
    owner: Mapped[str] = mapped_column(String(64))
    asked_at: Mapped[float]


class CalibrationLedger(Created, Base, table="calibration_ledger"):
    """The versions that were calibrated on a dataset version, numbered as they were made. Outlives the versions."""

    calibration_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    number: Mapped[int]
    dataset_sha256: Mapped[str] = mapped_column(String(64), index=True)
    model: Mapped[str] = mapped_column(String(200))
    version: Mapped[int]


class ServiceSecret(Base, table="service_secret"):
    """One row: the service's secret; see `pairmark.service.webhooks.webhooks.service_secret`."""

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[bytes] = mapped_column(LargeBinary)


class WebhookRow(HexId, Created, Base, table="webhooks"):
    """An address that is told of events. Its secret follows from the service's and its id."""

    url: Mapped[str] = mapped_column(Text)
    events: Mapped[list[Any]]


class WebhookDelivery(HexId, Base, table="webhook_deliveries"):
    """A message to a webhook that waits for ``next_at``; the row goes when it is delivered or given up."""

    webhook_id: Mapped[str] = mapped_column(
        String(32), ForeignKey("webhooks.id", ondelete="CASCADE"), index=True
    )
    event: Mapped[str] = mapped_column(String(64))
    body: Mapped[dict[str, Any]]
    created_at: Mapped[float] = mapped_column(index=True)
    attempts: Mapped[int]
    next_at: Mapped[float | None] = mapped_column(index=True)


class GalleryRow(SerialId, Created, Base, table="galleries"):
    """A gallery and the version that serves it.

    `key` names its folder on each machine. `seq` is the number of the last write, and never goes back; every item has
    that of its own write. Removals up to `floor` are no longer listed: whoever has seen less reads everything anew.
    `columns` are those of records, None where the gallery holds vectors. `fields` are the names of metadata that
    searches filter by. `kind` is None where the version is gone.
    """

    # Numbers are not reused: rows of a gallery whose deletion was cut short must not turn up in a later one.
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012
    key: Mapped[str] = mapped_column(String(32))
    name: Mapped[str] = mapped_column(String(200), unique=True)
    model_id: Mapped[str] = mapped_column(String(32))
    version: Mapped[int] = mapped_column()
    model: Mapped[str] = column_property(
        select(ModelRow.name).where(ModelRow.id == model_id).correlate_except(ModelRow).scalar_subquery()
    )
    kind: Mapped[str] = column_property(
        select(ModelVersion.kind)
        .where(ModelVersion.model_id == model_id, ModelVersion.version == version)
        .correlate_except(ModelVersion)
        .scalar_subquery()
    )
    dimension: Mapped[int]
    columns: Mapped[list[Any] | None] = mapped_column(
        JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
    )
    items: Mapped[int] = mapped_column(BigInteger, default=0)
    seq: Mapped[int] = mapped_column(BigInteger, default=0)
    floor: Mapped[int] = mapped_column(BigInteger, default=0)
    fields: Mapped[list[Any]] = mapped_column(default=list)
    updated_at: Mapped[float]


class GalleryItem(Base, table="gallery_items"):
    """An enrolled vector, or record as JSON: the truth that every index is made from. `seq` is unique in the gallery
    and new with every write of the item."""

    __table_args__ = (
        Index("ix_gallery_items_seq", "gallery_id", "seq", unique=True),
        Index("ix_gallery_items_subject", "gallery_id", "subject"),
    )
    gallery_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    id: Mapped[str] = mapped_column(ByteText, primary_key=True)
    subject: Mapped[str | None] = mapped_column(ByteText)
    vector: Mapped[bytes] = mapped_column(LargeBinary)
    facts: Mapped[str | None] = mapped_column("metadata", Text)
    seq: Mapped[int] = mapped_column(BigInteger)


class GalleryRemoval(Base, table="gallery_removals"):
    """At `seq` the row that was written as `removed` was replaced or (`erased`) deleted. Numbers only: nothing of what
    was removed is kept."""

    gallery_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    removed: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    erased: Mapped[bool]


class GalleryCalibrationRow(HexId, Created, Base, table="gallery_calibrations"):
    """What searches with strangers scored in a gallery at `seq`: float32 arrays, no identities.

    `kept` holds one record a probe of `gallery_probes`, in their order (None: a newer calibration replaced it);
    `revision` counts erasures of probes.
    """

    gallery_id: Mapped[int] = mapped_column(
        Serial, ForeignKey("galleries.id", ondelete="CASCADE"), index=True
    )
    model_id: Mapped[str] = mapped_column(String(32))
    version: Mapped[int]
    seq: Mapped[int] = mapped_column(BigInteger)
    best: Mapped[bytes] = mapped_column(LargeBinary)
    mated: Mapped[bytes] = mapped_column(LargeBinary)
    kept: Mapped[bytes | None] = mapped_column(LargeBinary)
    revision: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    summary: Mapped[dict[str, Any]]


class GalleryProbe(Base, table="gallery_probes"):
    """A probe of a calibration that is kept, so that its scores follow what is written and erased. Never shown."""

    __table_args__ = (Index("ix_gallery_probes_subject", "gallery_id", "subject"),)
    calibration_id: Mapped[str] = mapped_column(
        String(32), ForeignKey("gallery_calibrations.id", ondelete="CASCADE"), primary_key=True
    )
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    gallery_id: Mapped[int] = mapped_column(BigInteger)
    subject: Mapped[str] = mapped_column(ByteText)
    vector: Mapped[bytes] = mapped_column(LargeBinary)


class LinkRow(HexId, Created, Base, table="links"):
    """Links of a table or between two, made by the job of the same id; ``name`` is that of the left dataset."""

    name: Mapped[str] = mapped_column(String(200), index=True)
    request: Mapped[dict[str, Any]]
    summary: Mapped[dict[str, Any] | None] = mapped_column(Json)
    blob: Mapped[str | None] = mapped_column(String(64))


class LinkAddition(Base, table="link_additions"):
    """A record that was put into links, and is not in their blob yet; ``number`` counts from 0."""

    link_id: Mapped[str] = mapped_column(ForeignKey("links.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    record: Mapped[dict[str, Any]]


class DecisionCode(IntEnum):
    """What was decided of a pair; the name in lower case is that of answers."""

    DIFFERENT = 0
    MATCH = 1
    REVIEW = 2


DECISIONS: Final = tuple(code.name.lower() for code in DecisionCode)
"""Names of the codes, in their order."""
RAW_UNLIKE: Final = 3
"""Of a pair with a row unlike those of the calibration, in raw answers."""
RAW_TOO_LITTLE: Final = 4
"""Of a pair of records that nothing can be said of by the columns that both have."""


class KeptDecision(SerialId, Base, table="kept_decisions"):
    """A decision kept for reviews. It is there because ``key``, uniform on (0, 1), was below the chance of its hour."""

    __table_args__ = (
        Index("ix_kept_decisions_model_hour", "model_id", "hour"),
        Index("ix_kept_decisions_left_ref", "left_ref"),
        Index("ix_kept_decisions_right_ref", "right_ref"),
        Index("ix_kept_decisions_gallery_subject", "gallery", "subject"),
    )
    model_id: Mapped[str] = mapped_column(String(32), ForeignKey("models.id", ondelete="CASCADE"))
    version: Mapped[int]
    gallery: Mapped[str] = mapped_column(String(200), default="")
    hour: Mapped[int]
    at: Mapped[float]
    key: Mapped[float]
    decision: Mapped[int]
    score: Mapped[float]
    threshold: Mapped[float]
    left_ref: Mapped[str | None] = mapped_column(ByteText)
    right_ref: Mapped[str | None] = mapped_column(ByteText)
    subject: Mapped[str | None] = mapped_column(ByteText)
    sides: Mapped[dict[str, Any] | None] = mapped_column(Json)
    erased: Mapped[bool] = mapped_column(default=False)


class DecisionCount(Base, table="decision_counts"):
    """How many decisions of a kind an hour had, and the chance with which each was kept."""

    model_id: Mapped[str] = mapped_column(
        String(32), ForeignKey("models.id", ondelete="CASCADE"), primary_key=True
    )
    hour: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    gallery: Mapped[str] = mapped_column(String(200), primary_key=True)
    decision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    count: Mapped[int] = mapped_column(BigInteger)
    chance: Mapped[float]


class ReviewRow(HexId, Created, Base, table="reviews"):
    """A review: its question, the sizes of its population by kind of decision (``strata``), and how far it is."""

    name: Mapped[str] = mapped_column(String(200))
    model: Mapped[str | None] = mapped_column(String(100), index=True)
    gallery: Mapped[str | None] = mapped_column(String(200))
    source: Mapped[dict[str, Any]]
    question: Mapped[str] = mapped_column(String(32))
    at_most: Mapped[float]
    confidence: Mapped[float]
    strata: Mapped[list[Any]]
    drawn: Mapped[int] = mapped_column(default=0)
    progress: Mapped[dict[str, Any]]
    enough_at: Mapped[float | None]
    alarm_at: Mapped[float | None]


class ReviewItem(HexId, Base, table="review_items"):
    """A pair that a review may hand out: the ``place``-th of its kind (``stratum``) in random order, the ``draw``-th of
    the review."""

    __table_args__ = (Index("ix_review_items_review_draw", "review_id", "draw"),)
    review_id: Mapped[str] = mapped_column(String(32), ForeignKey("reviews.id", ondelete="CASCADE"))
    stratum: Mapped[int]
    place: Mapped[int]
    draw: Mapped[int | None]
    decision: Mapped[int | None]
    score: Mapped[float | None]
    version: Mapped[int | None]
    gallery: Mapped[str] = mapped_column(String(200), default="")
    left_ref: Mapped[str | None] = mapped_column(ByteText, index=True)
    right_ref: Mapped[str | None] = mapped_column(ByteText, index=True)
    subject: Mapped[str | None] = mapped_column(ByteText)
    sides: Mapped[dict[str, Any] | None] = mapped_column(Json)
    erased: Mapped[bool] = mapped_column(default=False)
    holder: Mapped[str | None] = mapped_column(String(200))
    held_until: Mapped[float | None]


class ReviewJudgement(Base, table="review_judgements"):
    """What one reviewer said of one item; ``number`` 1 counts."""

    item_id: Mapped[str] = mapped_column(
        String(32), ForeignKey("review_items.id", ondelete="CASCADE"), primary_key=True
    )
    reviewer: Mapped[str] = mapped_column(String(200), primary_key=True)
    review_id: Mapped[str] = mapped_column(String(32), index=True)
    number: Mapped[int]
    same: Mapped[bool | None]
    at: Mapped[float]


class OutcomeRow(SerialId, Base, table="outcomes"):
    """An outcome that nobody drew: what became of a pair, as the caller learned it elsewhere."""

    model: Mapped[str] = mapped_column(String(100), index=True)
    left_ref: Mapped[str] = mapped_column(ByteText, index=True)
    right_ref: Mapped[str] = mapped_column(ByteText, index=True)
    same: Mapped[bool]
    reporter: Mapped[str] = mapped_column(String(200))
    at: Mapped[float]
