"""Requests and answers about jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pairmark.wire.base import Fields, Limits, Moment, Parameters, Rate, Text

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
AttemptOutcome = Literal["succeeded", "failed", "cancelled", "lost", "released"]
Task = Literal["training", "gallery-calibration", "gallery-evaluation"]


class AttemptFields(Fields):
    attempt: int
    worker: str
    started_at: Moment
    ended_at: Moment | None
    outcome: Annotated[
        AttemptOutcome | None,
        Text(
            "`lost`: its worker stopped responding, or its process was killed; `released`: its worker was "
            "asked to stop; null: still running"
        ),
    ]
    detail: str


class JobErrorFields(Fields):
    type: Annotated[str, Text("/problems/SLUG, a page that says how to fix it")]
    title: str
    detail: str


class JobFields(Fields):
    id: str
    task: Annotated[
        Task,
        Text("the kind of job; for gallery jobs, `learner` and `model` are those of the gallery's version"),
    ]
    gallery: Annotated[str | None, Text("the gallery that is calibrated or measured")]
    result: Annotated[
        dict[str, str] | None, Text("the result of a gallery job: the id of a `calibration` or `evaluation`")
    ]
    state: JobState
    progress: Annotated[float, Limits(minimum=0.0, maximum=1.0)]
    stage: str
    message: str
    learner: str
    dataset: str
    unlabelled: Annotated[str | None, Text("the dataset of unlabelled rows, `name:version`")]
    model: str
    params: dict[str, Any]
    evaluation: Any
    promote: Annotated[
        str | None,
        Text(
            "the alias that moves to the new version; `if-better`: `production` moves unless the new version is worse"
        ),
    ]
    version: int | None
    error: JobErrorFields | None
    cancel_requested: bool
    attempts: list[AttemptFields]
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None


IF_BETTER = "if-better"
Protocol = Literal["auto", "open-set", "closed-set"]
GroupRole = Literal["together", "compare"]
ListOrigin = Literal["all", "random", "blocks"]

Groups = Annotated[
    GroupRole,
    Text(
        "the meaning of the dataset's group column. `together`: rows of one group depend on each other (for "
        "example, recordings of one person) and are never split; `compare`: groups are populations whose error "
        "rates are compared",
        help="What the group column means: together (a split keeps these rows together) or compare "
        "(populations to compare).",
    ),
]
Listing = Annotated[
    ListOrigin | None,
    Text(
        "for datasets that list pairs: how the list came about. `all`: every pair of the people; `random`: drawn "
        "without looking at people; `blocks`: all inside of blocks that share nobody, the connected parts of the "
        "list, which become the units; null: unknown, and then nothing is guaranteed unless the list is all pairs",
        help="For a dataset that lists pairs, how the list came about: all, random or blocks. Without it a list "
        "that is not all pairs guarantees nothing.",
    ),
]


class EvaluationParameters(Parameters):
    protocol: Annotated[
        Protocol,
        Text(
            "`open-set`: the people in use were not seen in training; `closed-set`: the classes in use are "
            "those of training; `auto`: open-set for a dataset with `identity`, closed-set for one with `classes`, "
            "and for a bare `label` open-set from 30 values up; below that the job is refused with `choose-protocol`",
            help="open-set: new people or things will join; closed-set: these classes and no others; auto: as the "
            "dataset says.",
        ),
    ] = "auto"
    calibration_fraction: Annotated[
        Rate,
        Text(
            "share held out for calibration, and used for nothing else",
            help="Share held out to calibrate on.",
        ),
    ] = 0.25
    test_fraction: Annotated[
        Rate, Text("share held out for the report's figures", help="Share held out to test on.")
    ] = 0.2
    groups: Groups = "together"
    listing: Listing = None
    n_pairs: Annotated[
        int,
        Limits(minimum=2),
        Text(
            "largest number of pairs scored in each of the two held-out parts",
            help="Maximum number of pairs scored in each held-out part.",
        ),
    ] = 200_000
    target_fpr: Annotated[
        float | None,
        Limits(above=0.0, below=0.5),
        Text(
            "the false positive rate at which you will decide. It sets `calibration_fraction` and, where "
            "people are few, `test_fraction`, unless you give them, and versions are compared near this rate",
            help="The false positive rate that you will ask for. It sets the share that calibrates, and versions are "
            "compared near it.",
        ),
    ] = None


class JobParameters(Parameters):
    learner: Annotated[
        str | None,
        Text(
            "a kind listed by `GET /learners`; default: `similarity-auto` for identities and pairs, "
            "`label-ranking-auto` for rankings, which compare several learners",
            help="Learner. Default: similarity-auto, or label-ranking-auto for rankings.",
        ),
    ] = None
    dataset: Annotated[
        str, Text("`name` (its newest version) or `name:version`", help="NAME or NAME:VERSION of a dataset.")
    ]
    model: Annotated[
        str,
        Text(
            "name of the model; the result is registered as its next version",
            help="Name to register the version under.",
        ),
    ]
    params: Any
    evaluation: Any
    unlabelled: Annotated[
        str | None,
        Text(
            "a dataset for learners that use unlabelled rows. It has the same columns as `dataset` (sparse "
            "data may have fewer or more); its labels, if any, are ignored",
            help="A dataset of unlabelled rows, for learners that use them.",
        ),
    ] = None
    budget_seconds: Annotated[
        float | None,
        Limits(above=0, maximum=7 * 86_400),
        Text(
            "approximate time limit, in seconds, for learners that compare several candidates",
            help="About how many seconds an automatic learner may spend on comparing candidates.",
        ),
    ] = None
    promote: Annotated[
        bool | str,
        Text(
            "`if-better`: `production` moves to the new version unless it is worse than the current one on the same "
            "held-out data; true: `production` always moves; another string: that alias moves; false: no alias moves"
        ),
    ] = IF_BETTER
