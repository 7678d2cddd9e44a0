"""Datasets and jobs."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import httpx
import numpy as np
from pydantic import BaseModel

from pairmark.client.calls import Calls
from pairmark.client.encoding import Progress, ProgressReader, ServerSent, path_part, without_none
from pairmark.client.errors import Busy, JobFailed, Unreachable, json_of
from pairmark.schemas.base import Answer
from pairmark.schemas.datasets import DatasetOut, DatasetRequest, ReadingRequest
from pairmark.schemas.jobs import JobOut, JobRequest

ENDED = ("succeeded", "failed", "cancelled")
_LOOKS, _LOOK_S = 3, 0.25


class TrainingCalls(Calls):
    """Uploads, and the jobs that learn from them."""

    async def add_dataset(
        self,
        name: str,
        file: str | os.PathLike[str] | IO[bytes] | None = None,
        *,
        X: Any = None,
        y: Any = None,
        identity: str | None = None,
        classes: str | None = None,
        label: str | None = None,
        ranking: str | Sequence[str] | None = None,
        group: str | None = None,
        time: str | None = None,
        id: str | None = None,
        exclude: Sequence[str] = (),
        header: bool = True,
        format: str | None = None,
        pairs: str | os.PathLike[str] | None = None,
        unlabelled: bool = False,
        columns: Mapping[str, str] | None = None,
        right_file: str | os.PathLike[str] | None = None,
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
        time : column of when each row was taken, numbers or dates in ISO 8601.
        group, id : column of groups that stay together; column of row ids, which ``pairs`` may refer to.
        exclude : columns to leave out.
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
        # Who sends X alone has said so.
        form["unlabelled"] = unlabelled or (X is not None and y is None and not pairs)
        files: dict[str, tuple[str, IO[bytes]]]
        with contextlib.ExitStack() as stack:
            if file is None:
                stream = stack.enter_context(tempfile.TemporaryFile())
                np.savez(
                    stream, **without_none({"X": np.asarray(X), "y": None if y is None else np.asarray(y)})
                )
                stream.seek(0)
                form["format"] = format or "npz"
                files = {"file": (f"{name}.npz", stream)}
            elif isinstance(file, (str, os.PathLike)):
                files = _open_files(stack, file=file)
            else:
                files = {"file": (Path(str(getattr(file, "name", name))).name, file)}
            files |= _open_files(stack, pairs=pairs, right_file=right_file)
            return DatasetOut.from_json(
                await self._upload("/datasets", {"name": name, **form}, files, progress)
            )

    async def inspect_dataset(
        self,
        file: str | os.PathLike[str],
        *,
        identity: str | None = None,
        classes: str | None = None,
        label: str | None = None,
        ranking: str | Sequence[str] | None = None,
        group: str | None = None,
        time: str | None = None,
        id: str | None = None,
        exclude: Sequence[str] = (),
        header: bool = True,
        format: str | None = None,
        pairs: str | os.PathLike[str] | None = None,
        columns: Mapping[str, str] | None = None,
        right_file: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> Answer:
        """What would be read of a file, without keeping it: columns and roles (inferred where not named), rows,
        identities, and the smallest false positive rate that they could promise. Parameters as `add_dataset`."""
        form = members_of(ReadingRequest, locals())
        with contextlib.ExitStack() as stack:
            files = _open_files(stack, file=file, pairs=pairs, right_file=right_file)
            return Answer.from_json(await self._upload("/datasets/inspect", form, files, progress))

    async def _upload(
        self, path: str, form: dict[str, Any], files: dict[str, Any], progress: Progress | None
    ) -> dict[str, Any]:
        if progress is not None:
            name, stream = files["file"]
            files["file"] = (name, ProgressReader(stream, progress))
        return json_of(await self.request("POST", path, data=form_fields(form), files=files))

    async def ledger(self, ref: str) -> Answer:
        """Every version calibrated on a dataset version, and the rates its operating points were asked for at."""
        return Answer.from_json(await self._get(f"/datasets/{path_part(ref)}/ledger"))

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
        """Follow a job to its end; raises `JobFailed` unless it succeeded.

        Parameters
        ----------
        waiting : called within two seconds with what a queued job waits for, such as a worker; default
            `warnings.warn`.
        """
        await self._tell_wait(job_id, waiting or warnings.warn)
        async for event, data in self.events(job_id):
            if event == "progress" and progress is not None:
                progress(float(data.get("progress", 0.0)), str(data.get("stage", "")))
        job = await self.job(job_id)
        if job.state != "succeeded":
            raise JobFailed(job.json)
        if progress is not None:
            progress(1.0, "done")
        return job

    async def _tell_wait(self, job_id: str, tell: Callable[[str], object]) -> None:
        """Give a worker a moment to take the job, then tell what it waits for."""
        for _ in range(_LOOKS):
            job = await self.job(job_id)
            if job.state != "queued":
                return
            await self._http.sleep(_LOOK_S)
        if job.message:
            tell(f"job {job_id}: {job.message}")

    async def events(self, job_id: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """A job's events until it is done: (``progress`` | ``log`` | ``done``, data). A cut stream is resumed."""
        path, last, failures = f"/jobs/{path_part(job_id)}/events", None, 0
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
            events = ServerSent()
            try:
                async with contextlib.aclosing(
                    self._http.streamed(path, lines=True, headers=headers)
                ) as lines:
                    async for line in lines:
                        message = events.read(line)
                        if message is None:
                            continue
                        last, failures = message[0] or last, 0
                        yield message[1:]
                        if message[1] == "done":
                            return
            except (httpx.TransportError, Busy) as error:
                failures += 1
                if failures > max(self.retries, 1) * 5:
                    raise Unreachable(f"{self.url} stopped answering about job {job_id}") from error
            if (await self.job(job_id)).state in ENDED and failures == 0:
                return
            await self._http.sleep(min(0.2 * 2**failures, 5.0))

    async def job(self, job_id: str) -> JobOut:
        """One job."""
        return JobOut.from_json(await self._get(f"/jobs/{path_part(job_id)}"))

    async def jobs(self, *, limit: int | None = None) -> list[JobOut]:
        """Jobs, newest first."""
        return [JobOut.from_json(job) async for job in self.pages("/jobs", limit=limit)]

    async def cancel(self, job_id: str) -> JobOut:
        """Cancel a job."""
        return JobOut.from_json(json_of(await self.request("POST", f"/jobs/{path_part(job_id)}/cancel")))


def members_of(request: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Of these values, those of members that a request declares."""
    names = request.model_fields
    return {name: value for name, value in values.items() if name in names}


def _open_files(
    stack: contextlib.ExitStack, **paths: str | os.PathLike[str] | None
) -> dict[str, tuple[str, IO[bytes]]]:
    """The files of an upload, by field."""
    return {
        field: (Path(path).name, stack.enter_context(Path(path).open("rb")))
        for field, path in paths.items()
        if path is not None
    }


def form_fields(members: Mapping[str, Any]) -> dict[str, str]:
    """Members of a request as a form has them: lists by commas, objects as JSON; without None and empty lists."""
    fields: dict[str, str | None] = {}
    for name, value in members.items():
        if isinstance(value, bool):
            fields[name] = str(value).lower()
        elif isinstance(value, Mapping):
            fields[name] = json.dumps(dict(value))
        elif value is not None and not isinstance(value, str):
            fields[name] = ",".join(value) or None
        else:
            fields[name] = value
    return without_none(fields)
