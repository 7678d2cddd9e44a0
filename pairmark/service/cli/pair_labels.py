"""The command that asks which pairs of records are the same: chosen pairs to learn from, drawn ones to calibrate on."""

from __future__ import annotations

import csv
import math
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pairmark.service.cli import output
from pairmark.service.cli.points import ColumnTypes, Confidence, RightFile, TableFile, column_types, rate

if TYPE_CHECKING:
    from pairmark.models.records.schema import Records, Schema
    from pairmark.service.datasets.labelling import LabelledPair, Labelling

_COLUMNS = ("left", "right", "same", "drawn_from")
CHOSEN = 200
"""Pairs to choose by default; the benchmark `records` measures what more of them bring."""
_KEYS = {"s": True, "d": False, "?": None}


class RecordFiles(NamedTuple):
    """One table or two, their rows one after the other.

    Attributes
    ----------
    ids : of every row, as a pairs file names it. row_of : id -> row of the left and of the right side.
    n_left : rows of the left table; None where there is one.
    """

    schema: Schema
    records: Records
    ids: list[str]
    row_of: tuple[dict[str, int], dict[str, int]]
    n_left: int | None


class LabelFile:
    """A CSV of the answers so far, that `pairmark datasets add --pairs` takes."""

    def __init__(self, path: Path, files: RecordFiles) -> None:
        self._path, self._files = path, files

    def read(self) -> list[LabelledPair]:
        """What was answered before."""
        from pairmark.service.datasets.labelling import LabelledPair

        pairs: list[LabelledPair] = []
        if not self._path.exists():
            return pairs
        with self._path.open(newline="", encoding="utf-8") as stream:
            lines = csv.DictReader(stream)
            if not {"left", "right", "same"} <= set(lines.fieldnames or ()):
                raise typer.BadParameter(f"{self._path}: expected the columns {', '.join(_COLUMNS)}")
            for number, line in enumerate(lines, 1):
                sides = [
                    of.get(line[side]) for of, side in zip(self._files.row_of, ("left", "right"), strict=True)
                ]
                drawn_from = line.get("drawn_from") or "0"
                if None in sides or line["same"] not in ("0", "1") or not drawn_from.isdecimal():
                    raise typer.BadParameter(
                        f"{self._path}, row {number}: expected two rows of the table, same as 0 or 1 and drawn_from "
                        f"as a whole number, not {line['left']!r}, {line['right']!r}, {line['same']!r}, {drawn_from!r}"
                    )
                left, right = (int(row) for row in sides if row is not None)
                if self._files.n_left is None:
                    left, right = min(left, right), max(left, right)
                pairs.append(LabelledPair(left, right, line["same"] == "1", int(drawn_from)))
        return pairs

    def write(self, pairs: list[LabelledPair]) -> None:
        """All answers, in place of what the file held: a crash leaves the old file or the new one."""
        handle, name = tempfile.mkstemp(dir=self._path.parent or Path(), prefix=self._path.name)
        with os.fdopen(handle, "w", newline="", encoding="utf-8") as stream:
            lines = csv.writer(stream)
            lines.writerow(_COLUMNS)
            ids = self._files.ids
            lines.writerows((ids[p.left], ids[p.right], int(p.same), p.drawn_from) for p in pairs)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, self._path)


def label(
    file: TableFile,
    pairs: Annotated[
        Path,
        typer.Option(help="CSV that answers are added to; an earlier one is taken up again.", dir_okay=False),
    ],
    right_file: RightFile = None,
    column: ColumnTypes = None,
    choose: Annotated[
        int, typer.Option(help="Pairs to choose, which train the model.", min=0, max=100_000)
    ] = CHOSEN,
    fpr: Annotated[
        float,
        typer.Option(
            parser=rate, metavar="RATE", help="False positive rate that the drawn pairs are to support."
        ),
    ] = 0.05,
    confidence: Confidence = 0.95,
) -> None:
    """Judge pairs of records: the most telling ones to train on, then a random draw to calibrate on.

    With --json nothing is asked: it prints the state and the next pair.
    """
    from pairmark.models.records.labelling import LabellingPool
    from pairmark.service.datasets.labelling import Labelling, Labels, drawn_different

    output.say(f"reading {file.name}, and looking for candidates")
    files = read_files(file, right_file, column_types(column) or {})
    pool = LabellingPool(files.schema, files.records, files.n_left)
    if not len(pool):
        raise typer.BadParameter(
            f"{file.name}: no two rows share a rare word or cell, so no pair may be the same"
        )
    label_file = LabelFile(pairs, files)
    labels = Labels(label_file.read(), label_file.write)
    labelling = Labelling(pool, labels, choose, drawn_different(fpr, confidence))
    if labelling.stale:
        output.say(
            f"{labelling.stale} pairs were drawn from another list: they train from now on, and a new draw begins"
        )
    if not output.wants_json():
        output.say(_outlook(labelling, fpr))
        _ask(labelling, files)
    output.show(_state(labelling, files, fpr), _closing(labelling, file, right_file, pairs))


def read_files(file: Path, right: Path | None, columns: dict[str, str]) -> RecordFiles:
    """One table or two as a dataset reads them, or `InvalidInput`."""
    import numpy as np

    from pairmark.schemas.datasets import DatasetRequest
    from pairmark.service.datasets.limits import FileLimits, Upload
    from pairmark.service.datasets.reader import format_of
    from pairmark.service.datasets.records import read_records
    from pairmark.service.settings import Settings

    paths = [path for path in (file, right) if path is not None]
    limits = FileLimits.of(Settings(), sum(path.stat().st_size for path in paths))
    request = DatasetRequest.model_validate({"name": "labelling", "columns": columns, "unlabelled": True})
    (path, kind), *others = [(path.absolute(), format_of(None, path.name)) for path in paths]
    upload = Upload(file=path, kind=kind, request=request, limits=limits, right=others[0] if others else None)
    with tempfile.TemporaryDirectory() as scratch:
        table = read_records(upload, Path(scratch))
    records, ids = np.asarray(table.block.X), table.block.ids
    names = [str(row) for row in range(len(records))] if ids is None else [str(row_id) for row_id in ids]
    if table.row_of is None:
        row_of = {name: row for row, name in enumerate(names)}
        if len(row_of) < len(names):
            raise typer.BadParameter(f"{file.name}: row ids repeat; expected a different one in every row")
        return RecordFiles(table.inference.schema, records, names, (row_of, row_of), None)
    left_of, right_of = table.row_of
    names = [*left_of, *right_of]
    return RecordFiles(table.inference.schema, records, names, (left_of, right_of), len(left_of))


def _ask(labelling: Labelling, files: RecordFiles) -> None:
    """Ask about pairs until all is asked, or the person stops."""
    while (pair := labelling.next()) is not None:
        left, right, drawn_from = pair
        _show_pair(files, left, right)
        n, n_same = labelling.labels.count(drawn=drawn_from > 0)
        where = (
            f"drawn {n + 1}; {n - n_same} of {labelling.different} different ones so far"
            if drawn_from
            else f"chosen {n + 1} of {labelling.choose}"
        )
        key = typer.prompt(f"{where}: same (s), different (d), cannot tell (?), undo (u), stop (q)", err=True)
        key = key.strip().lower()
        if key == "q":
            return
        if key == "u":
            output.say(
                "the last answer is taken back" if labelling.undo() else "there is no answer to take back"
            )
        elif key in _KEYS:
            if drawn_from and _KEYS[key] is None:
                output.say("a drawn pair that nobody can tell counts as different: that is the safe side")
            labelling.answer(left, right, drawn_from, _KEYS[key])
        else:
            output.say("expected s, d, ?, u or q")


def _show_pair(files: RecordFiles, left: int, right: int) -> None:
    import sys

    from rich.console import Console

    sides = list(files.schema.values(files.records[[left, right]]))
    rows = [
        (
            name if sides[0].get(name) == sides[1].get(name) else f"* {name}",
            sides[0].get(name),
            sides[1].get(name),
        )
        for name in (field.name for field in files.schema.fields)
        if name in sides[0] or name in sides[1]
    ]
    output.say("")
    output.table(["", files.ids[left], files.ids[right]], rows, empty="both records are empty")(
        Console(file=sys.stderr, soft_wrap=False, highlight=False)
    )


def _outlook(labelling: Labelling, fpr: float) -> str:
    share = min(labelling.pool.expected_same(), 0.95)
    chosen, drawn = (labelling.labels.count(drawn=drawn)[0] for drawn in (False, True))
    total = math.ceil(labelling.different / (1 - share))
    return (
        f"{len(labelling.pool):,} candidate pairs, about {100 * share:.0f} % of them the same by a model without "
        f"labels. {chosen} chosen pairs and {drawn} drawn ones are labelled. To ask: "
        f"{max(0, labelling.choose - chosen)} chosen, then about {max(0, total - drawn)} drawn, which support a false "
        f"positive rate of {100 * fpr:g} % among the candidates"
    )


def _state(labelling: Labelling, files: RecordFiles, fpr: float) -> dict[str, Any]:
    pair = labelling.next()
    proposal = None
    if pair is not None:
        left, right, drawn_from = pair
        records = list(files.schema.values(files.records[[left, right]]))
        ends = {"left": files.ids[left], "right": files.ids[right]}
        proposal = {**ends, "drawn_from": drawn_from, "records": records}
    return {
        "expected_same": labelling.pool.expected_same(),
        **labelling.counts(),
        "fpr": fpr,
        "next": proposal,
    }


def _closing(labelling: Labelling, file: Path, right: Path | None, pairs: Path) -> str:
    chosen, drawn = (labelling.labels.count(drawn=drawn) for drawn in (False, True))
    how = "go on with the same command"
    if labelling.next() is None:
        files = [*([] if right is None else ["--right-file", str(right)]), "--pairs", str(pairs)]
        command = shlex.join(["pairmark", "datasets", "add", "NAME", str(file), *files])
        how = f"train on it: {command}, then pairmark train --dataset NAME --model MODEL"
    return (
        f"{pairs}: {chosen[0]} chosen pairs, {chosen[1]} of them the same, and {drawn[0]} drawn ones, {drawn[1]} "
        f"of them the same; {how}"
    )
