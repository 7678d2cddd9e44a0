"""Validates a job before it is queued."""

import hashlib
import json
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from pairmark.models.calibration.operating_point import nothing_guaranteed
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.registry import KINDS, learner_specs, spec_of
from pairmark.schemas.datasets import DatasetOut
from pairmark.schemas.jobs import IF_BETTER, EvaluationRequest, JobOut, JobRequest
from pairmark.service.datasets.guarantees import (
    FEWEST_TESTED,
    fewest_units,
    guarantee_under,
    possible_instead,
    protocol_of,
    shares_for,
    units_of,
)
from pairmark.service.datasets.ingest import dataset_of, dataset_out
from pairmark.service.errors import ChooseProtocol, InvalidInput, UnknownLearner
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.names import EVERY_NAME, PRODUCTION, VisibleNames, checked_alias, checked_name
from pairmark.service.settings import Settings
from pairmark.service.tables import JobRow

_DEFAULT_PAIRS = ("similarity-auto", "similarity-forest")
_DEFAULT_RECORDS = "record-trees"
_DEFAULT_RANKINGS = "label-ranking-auto"


def checked_request(
    request: JobRequest,
    dataset: DatasetOut,
    settings: Settings,
    unlabelled: DatasetOut | None,
    strangers: DatasetOut | None = None,
) -> JobRow:
    """The job that a request asks for, checked against the learner and the datasets' summaries; `UnknownLearner` or
    `InvalidInput` name the field and what was expected, `ChooseProtocol` what the labels may be."""
    spec = known_learner(request.learner or default_learner(dataset))
    checked_name(request.model, "model")
    if unlabelled is not None:
        _check_unlabelled(spec, dataset, unlabelled)
    _check_dataset(spec, dataset)
    request = _with_protocol(spec, request, dataset)
    params = checked_params(spec, _data_params(spec, request, dataset))
    # Of a table an encoder learns, whatever the learner does.
    learns = dataset.columns is not None or spec.learns(params)
    evaluation = _with_shares(
        request.evaluation, dataset, learns=learns, n_strangers=0 if strangers is None else strangers.rows
    )
    _check_people(evaluation, dataset)
    if strangers is not None:
        evaluation = evaluation.model_copy(update={"strangers": f"{strangers.name}:{strangers.version}"})
    _check_evaluation(evaluation, dataset, settings, learns=learns)
    return JobRow(
        learner=spec.kind,
        dataset_id=dataset.id,
        dataset=f"{dataset.name}:{dataset.version}",
        unlabelled_id=None if unlabelled is None else unlabelled.id,
        unlabelled=None if unlabelled is None else f"{unlabelled.name}:{unlabelled.version}",
        model=request.model,
        params=params,
        evaluation=evaluation.model_dump(),
        promote=_promotion(request.promote),
        message=_outlook(evaluation, dataset),
    )


def default_learner(dataset: DatasetOut) -> str:
    """The kind that a job trains when it names none, or `InvalidInput` when the dataset could train two different
    things."""
    if dataset.ranking_labels and (dataset.label is not None or dataset.n_pairs > 0):
        raise InvalidInput(
            f"dataset {dataset.name}:{dataset.version} has identities and rankings: name the learner, e.g. "
            f"{_DEFAULT_PAIRS[0]} or {_DEFAULT_RANKINGS}",
            field="learner",
        )
    if dataset.ranking_labels:
        return _DEFAULT_RANKINGS
    if dataset.columns is not None:
        return _DEFAULT_RECORDS
    return next(kind for kind in _DEFAULT_PAIRS if kind in KINDS)


def known_learner(kind: str) -> LearnerSpec:
    """The learner of that kind, or `UnknownLearner`."""
    try:
        return spec_of(kind)
    except KeyError:
        raise UnknownLearner(
            f"there is no learner {kind[:100]!r}; known: {', '.join(KINDS)}",
            field="learner",
            learners=[*KINDS],
        ) from None


def checked_params(spec: LearnerSpec, params: dict[str, Any]) -> dict[str, Any]:
    """All parameters as they will be used, the seed included: a job that is tried again gives the same model."""
    try:
        model = spec.params.model_validate(params)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(["params", *(str(part) for part in first["loc"])])
        allowed = ", ".join(spec.params.model_fields)
        raise InvalidInput(f"{field}: {first['msg']} ({spec.kind} takes: {allowed})", field=field) from None
    values = model.model_dump(mode="json")
    if "random_state" in values and values["random_state"] is None:
        values["random_state"] = 0
    return values


def _data_params(spec: LearnerSpec, request: JobRequest, dataset: DatasetOut) -> dict[str, Any]:
    """The parameters, and what the job says that the learner wants to know: budget, rate and protocol of its race."""
    takes_budget = "budget_seconds" in spec.params.model_fields
    # Who leaves the learner to us does not know whether it compares candidates.
    if request.budget_seconds is not None and request.learner is not None and not takes_budget:
        racing = [
            learner.kind for learner in learner_specs() if "budget_seconds" in learner.params.model_fields
        ]
        raise InvalidInput(
            f"budget_seconds: {spec.kind} takes no budget; leave it out, or choose a learner that does "
            f"({', '.join(racing)})",
            field="budget_seconds",
        )
    if dataset.columns is not None and request.params.get("columns") is not None:
        raise InvalidInput(
            "params.columns: the dataset has its columns' types; upload it with other ones instead",
            field="params.columns",
        )
    job = {
        "budget_seconds": request.budget_seconds,
        "target_fpr": request.evaluation.target_fpr,
        "protocol": request.evaluation.protocol,
    }
    of_job = {
        name: value for name, value in job.items() if value is not None and name in spec.params.model_fields
    }
    return {**of_job, **request.params}


def _with_protocol(spec: LearnerSpec, request: JobRequest, dataset: DatasetOut) -> JobRequest:
    """The request with what ``auto`` means for the dataset's labels; `ChooseProtocol` where that has to be asked."""
    if spec.needs == "rankings" or dataset.label is None or request.evaluation.protocol != "auto":
        return request
    protocol = protocol_of(dataset.label_role, dataset.n_labels)
    if protocol is None:
        options = [
            f"`{choice.protocol}` if {choice.meaning}"
            + (f" ({choice.promise.text})" if choice.promise else "")
            for choice in dataset.choices
        ]
        raise ChooseProtocol(
            f"dataset {dataset.name}:{dataset.version} has {dataset.n_labels} values in {dataset.label!r} and does not "
            f"say whether new ones will join. Send evaluation.protocol: {'; or '.join(options)}",
            field="evaluation.protocol",
            choices=[choice.model_dump() for choice in dataset.choices],
        )
    evaluation = request.evaluation.model_copy(update={"protocol": protocol})
    return request.model_copy(update={"evaluation": evaluation})


def _check_unlabelled(spec: LearnerSpec, dataset: DatasetOut, unlabelled: DatasetOut) -> None:
    if not spec.takes_unlabelled:
        raise InvalidInput(
            f"unlabelled: {spec.kind} learns from labelled rows only; leave it out", field="unlabelled"
        )
    if (unlabelled.columns is None) != (dataset.columns is None) or unlabelled.columns is not None:
        raise InvalidInput(
            "unlabelled: rows of tables cannot be used without labels yet; leave it out", field="unlabelled"
        )
    if unlabelled.features != dataset.features and not (unlabelled.sparse and dataset.sparse):
        raise InvalidInput(
            f"unlabelled: dataset {unlabelled.name}:{unlabelled.version} has {unlabelled.features} features and "
            f"{dataset.name}:{dataset.version} has {dataset.features}; expected the same columns",
            field="unlabelled",
        )


def _check_dataset(spec: LearnerSpec, dataset: DatasetOut) -> None:
    """Refuse a dataset without what the learner learns from; what there is was checked as it was read."""
    name = f"{dataset.name}:{dataset.version}"
    if spec.needs == "rankings" and not dataset.ranking_labels:
        raise InvalidInput(
            f"{spec.kind} learns from rankings and dataset {name} has none: upload it with `ranking`",
            field="dataset",
        )
    if spec.needs != "rankings" and dataset.label is None and not dataset.n_pairs:
        raise InvalidInput(
            f"{spec.kind} learns from identities and dataset {name} has none: upload it with `identity`, or with a "
            "file of `pairs`",
            field="dataset",
        )


def _check_evaluation(
    evaluation: EvaluationRequest, dataset: DatasetOut, settings: Settings, *, learns: bool
) -> None:
    if learns and evaluation.calibration_fraction + evaluation.test_fraction >= 1:
        raise InvalidInput(
            f"evaluation: calibration_fraction and test_fraction sum to "
            f"{evaluation.calibration_fraction + evaluation.test_fraction:g}; expected below 1, to leave "
            "something to train on",
            field="evaluation.calibration_fraction",
        )
    foldable = learns and evaluation.protocol == "open-set" and not dataset.n_pairs
    if not evaluation.test_fraction and not foldable:
        raise InvalidInput(
            "evaluation.test_fraction is 0; expected above 0: figures come from folds only for identities in open-set "
            "use, with a learner that learns from them",
            field="evaluation.test_fraction",
        )
    if evaluation.n_pairs > settings.max_calibration_pairs:
        raise InvalidInput(
            f"evaluation.n_pairs is {evaluation.n_pairs}; expected at most {settings.max_calibration_pairs} "
            "(PAIRMARK_MAX_CALIBRATION_PAIRS)",
            field="evaluation.n_pairs",
        )


def _check_people(evaluation: EvaluationRequest, dataset: DatasetOut) -> None:
    """Groups and strangers are of people who are known by name, in open-set use."""
    for field in ("groups", "strangers"):
        if getattr(evaluation, field) is not None and (
            evaluation.protocol != "open-set" or dataset.n_pairs or dataset.label is None
        ):
            raise InvalidInput(
                f"evaluation.{field} goes with identities in open-set use, not with classes, rankings or a list of "
                "pairs: leave it out, or upload the dataset with `identity`",
                field=f"evaluation.{field}",
            )


def _promotion(promote: bool | str) -> str | None:
    if isinstance(promote, bool):
        return PRODUCTION if promote else None
    return promote if promote == IF_BETTER else checked_alias(promote, "promote")


def _with_shares(
    evaluation: EvaluationRequest, dataset: DatasetOut, *, learns: bool, n_strangers: int
) -> EvaluationRequest:
    """The request with its shares: as asked, or what ``target_fpr`` takes. A learner that learns nothing leaves
    everybody outside the test part to calibrate on."""
    units = units_of(vars(dataset), dataset.rows, evaluation.protocol)
    if (
        evaluation.target_fpr is None
        or units is None
        or (learns and "calibration_fraction" in evaluation.model_fields_set)
    ):
        whole = {"calibration_fraction": round(1 - evaluation.test_fraction, 6)}
        return evaluation if learns else evaluation.model_copy(update=whole)
    (count, different), protocol = units, evaluation.protocol
    fixed_test = "test_fraction" in evaluation.model_fields_set
    calibration, test = shares_for(
        count,
        evaluation.target_fpr,
        test_fraction=evaluation.test_fraction,
        different_share=different,
        fewest=fewest_units(vars(dataset), protocol),
        learns=learns,
        fixed_test=fixed_test,
        n_strangers=n_strangers,
    )
    if learns and protocol == "open-set" and not fixed_test and round(count * test) < FEWEST_TESTED:
        # The people who would have been tested train, and folds test more of them.
        test = 0.0
    return evaluation.model_copy(update={"calibration_fraction": calibration, "test_fraction": test})


def _outlook(evaluation: EvaluationRequest, dataset: DatasetOut) -> str:
    """What the job will be able to guarantee, a sentence for its owner; empty where the size does not say."""
    facts, protocol, target = vars(dataset), evaluation.protocol, evaluation.target_fpr
    outlook = guarantee_under(protocol, facts, dataset.rows, evaluation.calibration_fraction)
    if outlook is None:
        text = "" if dataset.promise is None else dataset.promise.text
        if evaluation.listing is None or text != nothing_guaranteed("unknown"):
            return text
        # What a list of named people supports, once its origin is declared, its scores say.
        return nothing_guaranteed(evaluation.listing) or ""
    if target is None or (outlook.smallest_fpr or 1.0) <= target:
        return outlook.text
    ways = possible_instead(facts, dataset.rows, target, protocol)
    return (
        f"{outlook.text}. The target rate {100 * target:g} % cannot be guaranteed from this dataset. What can, the "
        f"easiest first: {'; '.join(f'({number}) {way}' for number, way in enumerate(ways, 1))}"
    )


class TrainingQueue(JobQueue):
    """The job queue, with training jobs checked before they enter it."""

    def submit(
        self, request: JobRequest, idempotency_key: str | None = None, names: VisibleNames = EVERY_NAME
    ) -> JobOut:
        """Validate a request and queue it; the same ``idempotency_key`` with the same request gives the job it made
        before, with another request a `Conflict`. Those who see other ``names`` have other keys."""
        if idempotency_key is not None and not (
            idempotency_key.isprintable() and 1 <= len(idempotency_key) <= 200
        ):
            raise InvalidInput(
                "Idempotency-Key: expected 1 to 200 printable characters", field="Idempotency-Key"
            )
        once = None if idempotency_key is None else (_tenant_key(idempotency_key, names), _digest(request))

        def prepare(session: Session) -> JobRow:
            dataset, unlabelled, strangers = (
                None if ref is None else dataset_out(dataset_of(session, ref, lock="shared"))
                for ref in (request.dataset, request.unlabelled, request.evaluation.strangers)
            )
            assert dataset is not None
            return checked_request(request, dataset, self._settings, unlabelled, strangers)

        return self.enqueue(prepare, once)


def _tenant_key(key: str, names: VisibleNames) -> str:
    """The key as it is stored: no other names give the same, and no key has a space."""
    if names.everything:
        return key
    visible = json.dumps([names.prefix, sorted(names.members) if names.members is not None else None])
    return f"{hashlib.sha256(visible.encode()).hexdigest()[:32]} {hashlib.sha256(key.encode()).hexdigest()}"


def _digest(request: JobRequest) -> str:
    body = json.dumps(request.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()
