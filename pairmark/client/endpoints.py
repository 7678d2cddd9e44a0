"""The service's endpoints as calls: datasets, jobs, models and reviews beside those of `scoring`."""

import contextlib
import io
import itertools
import json
import os
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel

from pairmark.client.scoring import ScoringCalls
from pairmark.client.transport import (
    Busy,
    JobFailed,
    Progress,
    ProgressReader,
    Unreachable,
    array,
    json_of,
    npz,
    path_part,
    without_none,
)
from pairmark.schemas.base import Answer
from pairmark.schemas.datasets import DatasetOut, DatasetRequest, InspectionOut, ReadingRequest
from pairmark.schemas.jobs import JobOut, JobRequest
from pairmark.schemas.links import LinkOut, LinksOut
from pairmark.schemas.models import AliasOut, CalibrationOut, EvaluationOut, ModelOut, VersionOut
from pairmark.schemas.reviews import ReviewOut

ENDED = ("succeeded", "failed", "cancelled")
_LOOK_S = 0.25
_LOOKS_FOR_A_WORKER = 3
File = str | os.PathLike[str]


class Service(ScoringCalls):
    """All calls; arrays are lists where NumPy is not installed."""

    async def add_dataset(
        self,
        name: str,
        file: File | IO[bytes] | None = None,
        *,
        X: Any = None,
        y: Any = None,
        identity: str | None = None,
        classes: str | None = None,
        label: str | None = None,
        ranking: str | Sequence[str] | None = None,
        group: str | None = None,
        id: str | None = None,
        exclude: Sequence[str] = (),
        keep: Sequence[str] = (),
        header: bool = True,
        format: str | None = None,
        pairs: File | None = None,
        unlabelled: bool = False,
        columns: Mapping[str, str] | None = None,
        right_file: File | None = None,
        progress: Progress | None = None,
    ) -> DatasetOut:
        """Upload a CSV, Parquet, npz or svmlight file, or the arrays ``X`` (n, d) and ``y`` (n,).

        Parameters
        ----------
        identity : column (in npz: array) of people or things that new ones will join: open-set.
        classes : column of classes, where there will be these and no others: closed-set.
        label : column of either, where you do not say which. With fewer than 30 values `train` then wants
            ``evaluation={"protocol": ...}``. Arrays ``y`` are named ``"y"``: ``identity="y"``.
        ranking : the ranking column, or the position columns.
        group, id : column of groups that stay together; column of row ids, which ``pairs`` may refer to.
        exclude : columns to leave out.
        keep : columns that no learner sees, such as a site, which ``evaluation={"groups": ...}`` may name.
        header : whether a CSV's first line holds column names.
        format : csv, parquet, npz or svmlight; default by the file's extension.
        unlabelled : take rows without labels, rankings or pairs.
        pairs : a file of explicit pairs with columns left, right, same and perhaps weight, left_unit and right_unit.
        columns : read the file as a table of records: from column to its type; what it does not name is inferred.
        right_file : a second table of records, whose ids are the ``right`` of ``pairs``.
        progress : called with (fraction sent, "uploading").
        """
        form = members_of(DatasetRequest, locals())
        if (file is None) == (X is None):
            raise ValueError("expected either a file or the arrays X (and y)")
        if file is None:
            # Who sends X alone has said so.
            form["unlabelled"] = unlabelled or (y is None and not pairs)
            form["format"] = format or "npz"
            file = io.BytesIO(npz(X=array(X, None), y=None if y is None else array(y, None)))
            file.name = f"{name}.npz"
        answer = await self._upload(
            "/datasets", form, progress, file=file, pairs=pairs, right_file=right_file
        )
        return DatasetOut.from_json(answer)

    async def inspect_dataset(
        self,
        /,
        file: File,
        *,
        pairs: File | None = None,
        right_file: File | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> InspectionOut:
        """What would be read of a file, without keeping it: columns and roles (inferred where not named), rows,
        identities, and the smallest false positive rate that they could promise; ``options`` are those of
        `add_dataset`."""
        form = members_of(ReadingRequest, options)
        return InspectionOut.from_json(
            await self._upload(
                "/datasets/inspect", form, progress, file=file, pairs=pairs, right_file=right_file
            )
        )

    async def _upload(
        self, path: str, form: Mapping[str, Any], progress: Progress | None, **files: File | IO[bytes] | None
    ) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            parts: dict[str, tuple[str, Any]] = {}
            for field, file in without_none(files).items():
                stream = (
                    stack.enter_context(Path(file).open("rb"))
                    if isinstance(file, (str, os.PathLike))
                    else file
                )
                parts[field] = Path(str(getattr(stream, "name", field))).name, stream
            if progress is not None:
                name, stream = parts["file"]
                parts["file"] = name, ProgressReader(stream, progress)
            return json_of(await self.request("POST", path, data=form_fields(form), files=parts))

    async def datasets(self, *, limit: int | None = None) -> list[DatasetOut]:
        """Datasets, newest first."""
        return [DatasetOut.from_json(dataset) async for dataset in self.pages("/datasets", limit=limit)]

    async def dataset(self, ref: str) -> DatasetOut:
        """One dataset: ``name`` or ``name:version``."""
        return DatasetOut.from_json(await self._get(f"/datasets/{path_part(ref)}"))

    async def delete_dataset(self, ref: str) -> None:
        """Delete a dataset that no waiting or running job uses."""
        await self.request("DELETE", f"/datasets/{path_part(ref)}")

    async def train(
        self,
        learner: str | None = None,
        dataset: str | None = None,
        model: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        evaluation: Mapping[str, Any] | None = None,
        unlabelled: str | None = None,
        promote: bool | str | None = None,
        budget_seconds: float | None = None,
        wait: bool = True,
        progress: Progress | None = None,
        idempotency_key: str | None = None,
    ) -> JobOut:
        """Submit a training job and, unless asked otherwise, wait for it.

        Parameters
        ----------
        learner : kind; by default the service chooses by what the dataset holds.
        dataset, model : reference of the data; name to register the version under.
        evaluation : what is held out and how it is measured, as POST /jobs takes it.
        promote : ``"if-better"`` (default), True, False or an alias.
        budget_seconds : about how long learners that race candidates may search.
        progress : called with (share done, stage).

        Returns
        -------
        The job: succeeded when waited for, as submitted otherwise.

        Raises
        ------
        JobFailed
            When the job that was waited for failed or was cancelled.
        """
        body = members_of(JobRequest, locals())
        if dataset is None or model is None:
            raise TypeError("train() takes a dataset and a model: train(dataset=..., model=...)")
        # With a key, an answer that was lost on the way can be asked for again without training twice.
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        job = JobOut.from_json(await self._send("POST", "/jobs", body, headers=headers))
        return await self.wait(job.id, progress=progress) if wait else job

    async def wait(
        self, job_id: str, *, progress: Progress | None = None, waiting: Callable[[str], object] | None = None
    ) -> JobOut:
        """Ask for a job until it has ended; raises `JobFailed` unless it succeeded.

        Parameters
        ----------
        waiting : called within two seconds with what a queued job waits for, such as a worker; default
            `warnings.warn`.
        """
        failures = 0
        for look in itertools.count():
            try:
                job, failures = await self.job(job_id), 0
            except (Busy, Unreachable):
                # A service that starts again takes some seconds.
                failures += 1
                if failures > self.retries * 5:
                    raise
            else:
                if job.state in ENDED:
                    break
                if look == _LOOKS_FOR_A_WORKER and job.state == "queued" and job.message:
                    (waiting or warnings.warn)(f"job {job_id}: {job.message}")
                if progress is not None:
                    progress(job.progress, job.stage)
            await self._sleep(_LOOK_S * (1 + failures))
        if job.state != "succeeded":
            raise JobFailed(job.json)
        if progress is not None:
            progress(1.0, "done")
        return job

    async def job(self, job_id: str) -> JobOut:
        """One job."""
        return JobOut.from_json(await self._get(f"/jobs/{path_part(job_id)}"))

    async def jobs(self, *, limit: int | None = None) -> list[JobOut]:
        """Jobs, newest first."""
        return [JobOut.from_json(job) async for job in self.pages("/jobs", limit=limit)]

    async def cancel(self, job_id: str) -> JobOut:
        """Cancel a job."""
        return JobOut.from_json(json_of(await self.request("POST", f"/jobs/{path_part(job_id)}/cancel")))

    async def link(
        self,
        /,
        left: str | None = None,
        right: str | None = None,
        *,
        wait: bool = True,
        progress: Progress | None = None,
        **options: Any,
    ) -> LinksOut:
        """Find the duplicates of a dataset of records, or link several (``tables=``), and say what was found.

        Parameters
        ----------
        wait : False returns at once.
        options : members of `pairmark.schemas.links.LinksRequest`, whose descriptions say what each does.
        """
        body = {"left": left, "right": right, **options}
        job = JobOut.from_json(await self._send("POST", "/links", body))
        if wait:
            await self.wait(job.id, progress=progress)
        return LinksOut.from_json(await self._get(f"/links/{job.id}"))

    async def links(self, links: str, *, limit: int | None = None) -> AsyncIterator[LinkOut]:
        """Linked pairs of records: ``left, right, score, decision, entity``."""
        async for pair in self.pages(f"/links/{path_part(links)}/links", limit=limit):
            yield LinkOut.from_json(pair)

    async def models(self, *, limit: int | None = None) -> list[ModelOut]:
        """Models with their aliases."""
        return [ModelOut.from_json(model) async for model in self.pages("/models", limit=limit)]

    async def model(self, name: str) -> ModelOut:
        """One model."""
        return ModelOut.from_json(await self._get(f"/models/{path_part(name)}"))

    async def version(self, name: str, version: int) -> VersionOut:
        """One version: kind, params, metrics with intervals, lineage."""
        return VersionOut.from_json(await self._get(version_path(name, version)))

    async def report(self, name: str, version: int) -> Answer:
        """Everything that is known of a version: promise, error rates and limits."""
        return Answer.from_json(await self._get(f"{version_path(name, version)}/report"))

    async def promote(
        self,
        name: str,
        version: int,
        alias: str = "production",
        *,
        if_match: str | None = None,
        reason: str | None = None,
    ) -> AliasOut:
        """Move an alias to a version.

        Parameters
        ----------
        if_match : the alias's ETag, to move it only if nobody else did.
        reason : why it moves, at most 500 characters; kept in the alias's history and the audit log.
        """
        path = f"/models/{path_part(name)}/aliases/{path_part(alias)}"
        headers = without_none({"If-Match": if_match})
        body = {"version": version, "reason": reason}
        return AliasOut.from_json(await self._send("PUT", path, body, headers=headers))

    async def set_policy(self, /, name: str, **policy: Any) -> Answer:
        """Set what a model may promise and what is kept of its decisions; what is left out stays as it is.

        Parameters
        ----------
        allow_asymptotic : whether ``method="auto"`` may answer by bootstrap (asymptotic); None: the server's setting.
        missing : ``assume-random``, or ``refuse``: records that lack columns never match.
        rates : false positive rates at which keys with ``decide`` alone are answered; None: .1, .03, .01 ... .0001.
        reviews : ``{"share", "per_hour", "days", "sides"}``, all optional: which decisions are kept for
            reviews; None: none.
        """
        # Here None says something.
        answer = await self.request("PUT", f"/models/{path_part(name)}/policy", json=policy)
        return Answer.from_json(json_of(answer))

    async def calibrate(
        self, /, name: str, version: int, dataset: str | None = None, **options: Any
    ) -> CalibrationOut:
        """Calibrate a version on another dataset; ``options`` are ``protocol``, ``n_pairs``, ``listing``, ``strangers``
        (a dataset of rows of one person each, which may stand alone), ``groups`` (a column) and ``default``, which
        makes it the one that answers from now on."""
        path, body = f"{version_path(name, version)}/calibrations", {"dataset": dataset, **options}
        return CalibrationOut.from_json(await self._send("POST", path, body, timeout=None))

    async def calibrate_scores(
        self, /, name: str, scores: Any = None, same: Any = None, *, file: File | None = None, **options: Any
    ) -> CalibrationOut:
        """Calibrate scores of another system; decide further ones with `match(scores=.., calibration=answer["id"])`.

        ``file`` is a CSV or Parquet file with the columns score, same and perhaps left_unit and right_unit, instead of
        the lists.

        ``left_unit`` and ``right_unit`` are the identity (open-set) or the sample (closed-set) on each side;
        ``protocol`` says which, where no same pair has one unit twice. Without units nothing is guaranteed, unless
        pairs are declared ``independent``, or a random sample of a ``population`` of so many pairs. ``listing``
        (``all``, ``drawn``, ``random-people``, ``random-rows``) says how the pairs were listed; a list of unknown
        origin that is not all pairs guarantees nothing.
        """
        if (scores is None) == (file is None):
            raise ValueError("expected either scores and same, or a file")
        if file is not None:
            form = {"name": name, **options}
            return CalibrationOut.from_json(await self._upload("/calibrations", form, None, file=file))
        body = {"name": name, "scores": scores, "same": same, **options}
        return CalibrationOut.from_json(await self._send("POST", "/calibrations", body, timeout=None))

    async def evaluate(self, /, name: str, version: int, dataset: str, **options: Any) -> EvaluationOut:
        """Measure a version on another dataset: metrics, ROC, and what its thresholds do there; ``options`` are
        ``protocol`` and ``n_pairs``."""
        path, body = f"{version_path(name, version)}/evaluations", {"dataset": dataset, **options}
        return EvaluationOut.from_json(await self._send("POST", path, body, timeout=None))

    async def export_version(self, name: str, version: int, file: File) -> None:
        """Write a version with its calibration to one file, whole or not at all; until then it is in memory."""
        response = await self.request("GET", f"{version_path(name, version)}/export", timeout=None)
        target = Path(file)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            part.write_bytes(response.content)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    async def import_version(
        self, file: File, *, name: str | None = None, progress: Progress | None = None
    ) -> VersionOut:
        """Register a version from an exported file, under its own or another name."""
        return VersionOut.from_json(await self._upload("/models", {"name": name}, progress, file=file))

    async def delete_version(self, name: str, version: int) -> None:
        """Delete a version that no alias holds."""
        await self.request("DELETE", version_path(name, version))

    async def create_review(
        self,
        /,
        *,
        model: str | None = None,
        gallery: str | None = None,
        refs: Sequence[Sequence[str]] | None = None,
        scores: Sequence[float] | None = None,
        matches: Sequence[bool] | None = None,
        version: int | None = None,
        since: str | None = None,
        until: str | None = None,
        **options: Any,
    ) -> ReviewOut:
        """Ask how many of a model's, a gallery's or a list's decisions are wrong; ``options`` are ``name``,
        ``question``, ``at_most`` and ``confidence``."""
        source = without_none(
            {
                "model": model,
                "gallery": gallery,
                "refs": refs,
                "scores": scores,
                "matches": matches,
                "version": version,
                "since": since,
                "until": until,
            }
        )
        return ReviewOut.from_json(await self._send("POST", "/reviews", {"source": source, **options}))

    async def review(self, review: str) -> ReviewOut:
        """A review and what it has shown so far."""
        return ReviewOut.from_json(await self._get(f"/reviews/{path_part(review)}"))

    async def pairs_to_judge(self, review: str, n: int = 1, *, by: str | None = None) -> list[dict[str, Any]]:
        """Pairs that are this reviewer's for ten minutes; none when all are drawn or with others."""
        answer = await self._get(f"/reviews/{path_part(review)}/next", n=n, by=by)
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def judge(self, review: str, outcomes: Sequence[Mapping[str, Any]]) -> ReviewOut:
        """Say of items whether they are the same: ``{"item", "same", "by"?}`` each; ``same`` None is "cannot tell"."""
        return ReviewOut.from_json(
            await self._send("POST", f"/reviews/{path_part(review)}/outcomes", {"outcomes": list(outcomes)})
        )

    async def erase_refs(self, model: str, refs: Sequence[str]) -> Answer:
        """Erase what is kept of decisions under these names."""
        return Answer.from_json(
            await self._send("POST", "/reviews/erase", {"model": model, "refs": list(refs)})
        )


def version_path(name: str, version: int) -> str:
    """The address of a version."""
    return f"/models/{path_part(name)}/versions/{path_part(version)}"


def members_of(request: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Of these values, those of members that a request declares."""
    return {member: value for member, value in values.items() if member in request.model_fields}


def form_fields(members: Mapping[str, Any]) -> dict[str, str]:
    """Members of a request as a form has them: lists by commas, objects as JSON; without None and empty lists."""
    fields: dict[str, str | None] = {}
    for name, value in members.items():
        if isinstance(value, bool):
            fields[name] = str(value).lower()
        elif isinstance(value, Mapping):
            fields[name] = json.dumps(dict(value))
        elif isinstance(value, (list, tuple)):
            fields[name] = ",".join(value) or None
        else:
            fields[name] = None if value is None else str(value)
    return without_none(fields)
