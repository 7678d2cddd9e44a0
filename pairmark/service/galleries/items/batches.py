"""Batches of rows between the process that reads a bulk body and the one that stores them."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from pairmark.schemas.galleries import ImportOptions
from pairmark.service.datasets.confined import Gone, reading
from pairmark.service.datasets.limits import FileLimits
from pairmark.service.galleries.items.imports import file_batches
from pairmark.service.galleries.items.item_forms import ItemForm, RecordForm, form_of_task
from pairmark.service.galleries.items.rows import ERRORS_SHOWN, RowErrors, Rows


def confined_batches(
    kind: str,
    path: Path,
    scratch: Path,
    form: ItemForm,
    errors: RowErrors,
    options: ImportOptions,
    limits: FileLimits,
    has_left: Gone,
) -> Generator[Rows, None, None]:
    """Batches as `file_batches` makes them, read by a process of its own; `CallerGone` when the client has left."""
    if kind == "raw":
        # Such a body is as large as what it holds.
        yield from file_batches(kind, path, scratch, form, errors, options, limits)
        return
    task = {
        "function": "items",
        "kind": kind,
        "path": str(path),
        "scratch": str(scratch),
        "form": form.task(),
        "options": ImportOptions.model_validate(options, from_attributes=True).model_dump(),
    }
    with reading(task, limits, has_left) as reader:
        while "batch" in (message := reader.answer()):
            _note(errors, message)
            rows = _read_batch(scratch, message["batch"], form)
            # The next one is read while this one is stored.
            reader.tell({})
            yield rows
        _note(errors, message["result"])


def send_batches(
    stream: TextIO,
    send: Callable[[Mapping[str, Any]], None],
    limits: FileLimits,
    *,
    kind: str,
    path: str,
    scratch: str,
    form: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """What a reader does for `confined_batches`: each batch goes through files, and the next waits to be wanted."""
    errors, n_sent = RowErrors(), 0

    def news() -> dict[str, Any]:
        nonlocal n_sent
        count, n_sent = errors.count - n_sent, errors.count
        return {"errors": errors.items[max(0, n_sent - count) :], "n_errors": count}

    folder = Path(scratch)
    batches = file_batches(
        kind, Path(path), folder, form_of_task(form), errors, ImportOptions.model_validate(options), limits
    )
    for number, rows in enumerate(batches):
        texts: dict[str, Any] = {
            "ids": rows.ids,
            "subjects": rows.subjects,
            "metadata": rows.metadata,
            "places": rows.places,
        }
        if isinstance(rows.form, RecordForm):
            texts["records"] = list(rows.form.schema.values(rows.vectors))
        else:
            np.save(_vectors(folder, number), rows.vectors, allow_pickle=False)
        _texts(folder, number).write_text(json.dumps(texts))
        send({"batch": number, **news()})
        if not stream.readline():
            break
    return news()


def _read_batch(folder: Path, number: int, form: ItemForm) -> Rows:
    vectors, texts = _vectors(folder, number), _texts(folder, number)
    facts = json.loads(texts.read_text())
    if isinstance(form, RecordForm):
        rows = Rows(vectors=form.read_json(facts.pop("records"))[0], form=form, **facts)
    else:
        rows = Rows(vectors=np.load(vectors, allow_pickle=False), form=form, **facts)
        vectors.unlink()
    texts.unlink()
    return rows


def _vectors(folder: Path, number: int) -> Path:
    return folder / f"batch{number}.npy"


def _texts(folder: Path, number: int) -> Path:
    return folder / f"batch{number}.json"


def _note(errors: RowErrors, message: Mapping[str, Any]) -> None:
    errors.count += message["n_errors"]
    errors.items += message["errors"][: max(0, ERRORS_SHOWN - len(errors.items))]
