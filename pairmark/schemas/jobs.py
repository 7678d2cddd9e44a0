"""Jobs, and what is held out by one that trains."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pairmark.schemas.base import Answer, Moment, Rate, Request

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
AttemptOutcome = Literal["succeeded", "failed", "cancelled", "lost", "released"]
Task = Literal["training", "link"]
EventName = Literal["progress", "log", "done"]
IF_BETTER = "if-better"
Protocol = Literal["auto", "open-set", "closed-set"]
ListOrigin = Annotated[
    Literal["all", "random-people", "random-rows"],
    # Jobs of 0.2.0 say so.
    BeforeValidator(lambda origin: "random-people" if origin == "random" else origin),
]
Listing = Annotated[
    ListOrigin | None,
    Field(
        description="for datasets that list pairs: how the list came about. `all`: every pair of the people; "
        "`random-people`: pairs of people, drawn without looking at what they have; `random-rows`: pairs of rows, "
        "drawn at random, which guarantees nothing; null: unknown, and then nothing is guaranteed unless the list is "
        "all pairs"
    ),
]


class EvaluationRequest(Request):
    """Which data a job holds out, and how many held-out pairs it scores."""

    protocol: Protocol = Field(
        "auto",
        description="`open-set`: the people in use were not seen in training; `closed-set`: the classes in use are "
        "those of training; `auto`: open-set for a dataset with `identity`, closed-set for one with `classes`, "
        "and for a bare `label` open-set from 30 values up; below that the job is refused with `choose-protocol`",
    )
    calibration_fraction: Rate = Field(
        0.25, description="share held out for calibration, and used for nothing else"
    )
    test_fraction: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="share held out for the report's figures; 0, for open-set use of identities: they come from folds "
        "of the people who train",
    )
    listing: Listing = None
    n_pairs: int = Field(
        200_000, ge=2, description="largest number of pairs scored in each of the two held-out parts"
    )
    groups: str | None = Field(
        None,
        max_length=200,
        description="a column (a feature or, of a table, any column) that puts each person into a group, such as a "
        "site: rates then hold for pairs within each group that has enough people, too, all at once",
        examples=["site"],
    )
    strangers: str | None = Field(
        None,
        max_length=200,
        description="`name` or `name:version` of a dataset of rows, each of another person, without labels or with "
        "one row for each label taken: they join the people who calibrate, for the false positive rate alone. They "
        "must not be among the rows of `dataset`. For open-set use of identities",
        examples=["customers"],
    )
    target_fpr: float | None = Field(
        None,
        gt=0.0,
        lt=0.5,
        description="the false positive rate at which you will decide. It sets `calibration_fraction` and, where "
        "people are few, `test_fraction`, unless you give them, and versions are compared near this rate. With "
        "`promote: if-better`, a version whose calibration does not support it is not promoted",
    )


class JobRequest(Request):
    """A training job to queue."""

    learner: str | None = Field(
        None,
        description="a kind listed by `GET /learners`; default: `similarity-auto` for identities and pairs, "
        "`label-ranking-auto` for rankings, which compare several learners",
    )
    dataset: str = Field(description="`name` (its newest version) or `name:version`", examples=["people"])
    model: str = Field(
        description="name of the model; the result is registered as its next version", examples=["people"]
    )
    params: dict[str, Any] = Field(
        default_factory=dict, description="the learner's parameters; see its JSON Schema"
    )
    evaluation: EvaluationRequest = Field(
        default_factory=EvaluationRequest,
        description="how the model is calibrated and measured",
        examples=[{"target_fpr": 0.01}],
    )
    unlabelled: str | None = Field(
        None,
        description="a dataset for learners that use unlabelled rows. It has the same columns as `dataset` (sparse "
        "data may have fewer or more); its labels, if any, are ignored",
    )
    budget_seconds: float | None = Field(
        None,
        gt=0,
        le=7 * 86_400,
        description="about how many seconds of one core a learner that compares candidates spends on that and on "
        "fitting the winner; calibrating, the fits of folds and measuring come on top, often several times as much",
        examples=[20],
    )
    promote: bool | str = Field(
        IF_BETTER,
        description="`if-better`: `production` moves to the new version where the 95 % interval of the difference on "
        "the same held-out data excludes a loss above .01 at the asked rate; true: `production` always moves; another "
        "string: that alias moves; false: no alias moves",
    )


class AttemptOut(Answer):
    """One attempt at a job, and how it ended."""

    attempt: int = Field(description="number of the attempt, from 1", examples=[1])
    worker: str = Field(description="name of the worker", examples=["host-1"])
    started_at: Moment = Field(description="when it started")
    ended_at: Moment | None = Field(
        description="when it ended; null: it is running", examples=["2026-01-31T12:00:24.500Z"]
    )
    outcome: AttemptOutcome | None = Field(
        description="`lost`: its worker stopped responding, or its process was killed; `released`: its worker was "
        "asked to stop; null: still running"
    )
    detail: str = Field(description="what is wrong, for people", examples=[""])


class ErrorOut(Answer):
    """Why a job failed, and how to fix it."""

    type: str = Field(description="/problems/SLUG, a page that says how to fix it")
    title: str = Field(
        description="its title, for people",
        examples=[
            "Automatic: compares cosine, PLDA, forests and others on held-out people, keeps the "
            "simplest of the best"
        ],
    )
    detail: str = Field(description="what is wrong, for people", examples=[""])


class JobOut(Answer):
    """A job. Times are ISO 8601, UTC."""

    id: str = Field(description="its id", examples=["6f1ed002ab5595859014ebf0951522d9"])
    task: Task = Field(description="the kind of job")
    result: dict[str, str] | None = Field(description="the result of a link job: the id of its `links`")
    state: JobState = Field(description="what became of it", examples=["succeeded"])
    progress: float = Field(ge=0.0, le=1.0, description="share that is done, 0 to 1", examples=[1.0])
    stage: str = Field(description="the part of the job that runs", examples=["succeeded"])
    message: str = Field(description="what is being done, or how it ended", examples=[""])
    learner: str = Field(
        description="kind of the learner, as in `GET /learners`", examples=["similarity-auto"]
    )
    dataset: str = Field(description="the dataset, `name:version`", examples=["people:1"])
    unlabelled: str | None = Field(description="the dataset of unlabelled rows, `name:version`")
    model: str = Field(description="the model", examples=["people"])
    params: dict[str, Any] = Field(description="parameters of the learner")
    evaluation: EvaluationRequest = Field(
        description="how the model is calibrated and measured",
        examples=[{"protocol": "auto", "target_fpr": 0.01}],
    )
    promote: str | None = Field(
        description="the alias that moves to the new version; `if-better`: `production` moves unless the new "
        "version is worse",
        examples=["if-better"],
    )
    version: int | None = Field(
        description="number of the version that it registered; null: none yet", examples=[1]
    )
    error: ErrorOut | None = Field(description="why it failed; null: it did not")
    cancel_requested: bool = Field(description="whether somebody asked to cancel it")
    attempts: list[AttemptOut] = Field(description="attempts at the job, in order")
    created_at: Moment = Field(description="when it was created")
    started_at: Moment | None = Field(
        description="when it started; null: it is queued", examples=["2026-01-31T12:00:00.000Z"]
    )
    finished_at: Moment | None = Field(
        description="when it ended; null: it has not ended", examples=["2026-01-31T12:00:24.500Z"]
    )


class JobEventOut(Answer):
    """One entry of a job's event stream; `id` only grows."""

    id: int = Field(description="its id", examples=["6f1ed002ab5595859014ebf0951522d9"])
    event: EventName = Field(description="what happened")
    data: dict[str, Any]


class WorkerOut(Answer):
    """A worker that is alive."""

    name: str = Field(description="`host:pid`", examples=["people"])
    started_at: Moment = Field(description="when it started; null: it is queued")
    seen_at: Moment
    job: str | None = Field(description="the job it runs", examples=["6f1ed002ab5595859014ebf0951522d9"])
