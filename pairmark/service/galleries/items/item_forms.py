"""What a gallery holds, vectors of one width or records of a table: how items come, are stored, read and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pairmark.models.core.arrays import Bool, Float32
from pairmark.models.records.schema import RecordError, Records, Schema, is_plain
from pairmark.service.errors import InvalidInput

Matrix = Any
"""(n, d): float32, or the cells of records."""


class VectorForm:
    """Vectors of ``width`` numbers, stored as float32."""

    columns: None = None

    def __init__(self, width: int) -> None:
        self.width = width

    def bodies(self, rows: Float32) -> list[bytes]:
        body, size = np.asarray(rows, dtype="<f4").tobytes(), 4 * self.width
        return [body[at : at + size] for at in range(0, len(body), size)]

    def rows(self, bodies: Sequence[Any]) -> tuple[Float32, Bool]:
        """Stored rows as models take them, those that are whole, and which those are."""
        size = 4 * self.width
        sound = np.array([isinstance(body, bytes) and len(body) == size for body in bodies], dtype=np.bool_)
        whole = bodies if sound.all() else [body for body, good in zip(bodies, sound, strict=True) if good]
        vectors = np.frombuffer(b"".join(whole), dtype="<f4").reshape(-1, self.width)
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            sound[np.flatnonzero(sound)[~finite]] = False
            vectors = vectors[finite]
        return vectors.astype(np.float32, copy=False), sound

    def read_json(self, values: Sequence[Any]) -> tuple[Float32, list[str | None]]:
        """Rows of a request, and what is wrong with each, where something is."""
        vectors = np.zeros((len(values), self.width), dtype=np.float32)
        return vectors, [self._fill(vectors, at, value) for at, value in enumerate(values)]

    def _fill(self, vectors: Float32, at: int, vector: Any) -> str | None:
        if isinstance(vector, dict):
            return self._fill_sparse(vectors, at, vector)
        if not isinstance(vector, list):
            return (
                "vector is missing; expected a list of numbers"
                if vector is None
                else "vector is not a list of numbers"
            )
        if len(vector) != self.width:
            return f"vector has {len(vector)} numbers; the gallery's have {self.width}"
        if not all(type(number) is float or type(number) is int for number in vector):
            return "vector holds something that is not a number"
        with np.errstate(over="ignore"):
            try:
                vectors[at] = vector
            except OverflowError:
                vectors[at] = np.inf
        return None

    def _fill_sparse(self, vectors: Float32, at: int, vector: dict[str, Any]) -> str | None:
        indices, values = vector.get("indices"), vector.get("values")
        if (
            set(vector) != {"indices", "values"}
            or not isinstance(indices, list)
            or not isinstance(values, list)
        ):
            return "a sparse vector has lists indices and values, and nothing else"
        if len(indices) != len(values) or len(set(map(repr, indices))) != len(indices):
            return "a sparse vector has one value for each of its indices, which are all different"
        if not all(type(column) is int and 0 <= column < self.width for column in indices):
            return f"indices of a sparse vector are whole numbers from 0 to {self.width - 1}"
        dense = [0.0] * self.width
        for column, value in zip(indices, values, strict=True):
            dense[column] = value
        return self._fill(vectors, at, dense)

    def task(self) -> dict[str, Any]:
        """JSON from which `form_of_task` makes the form again."""
        return {"width": self.width}


class RecordForm:
    """Records of a table, stored as JSON from column to value and encoded for models that take numbers.

    Parameters
    ----------
    schema : of the model that searches them. encoder : its own, of a model that takes numbers.
    """

    def __init__(self, schema: Schema, encoder: Any = None) -> None:
        self.schema, self._encoder = schema, encoder

    @property
    def compares_cells(self) -> bool:
        """Whether the model compares cells, without numbers made of them."""
        return self._encoder is None

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The schema as the gallery's row keeps it."""
        return [column.model_dump(mode="json") for column in self.schema.columns]

    def bodies(self, cells: Records) -> list[bytes]:
        return [
            json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
            for record in self.schema.values(cells)
        ]

    def rows(self, bodies: Sequence[Any]) -> tuple[Matrix, Bool]:
        cells, problems = self.read_json([_parsed(body) for body in bodies])
        sound = np.array([problem is None for problem in problems], dtype=np.bool_)
        return self.model_rows(cells if sound.all() else cells[sound]), sound

    def model_rows(self, cells: Records) -> Matrix:
        if self._encoder is None:
            return cells
        rows = self._encoder.transform(cells)
        return np.ascontiguousarray(rows if isinstance(rows, np.ndarray) else rows.toarray())

    def read_json(self, values: Sequence[Any]) -> tuple[Records, list[str | None]]:
        cells = np.empty((len(values), len(self.schema.fields)), dtype=object)
        problems: list[str | None] = [None] * len(values)
        try:
            cells = self.schema.records(values, "vector")
        except RecordError:
            for at, value in enumerate(values):
                try:
                    cells[at] = self.schema.records([value], "vector")[0]
                except RecordError as error:
                    problems[at] = _problem(error.problems[0])
        return cells, self._with_empty(cells, problems)

    def read_table(self, table: Mapping[str, list[Any]]) -> tuple[Records, list[str | None]]:
        """Rows of a file by column, strings or typed values, and what is wrong with each."""
        n = len(next(iter(table.values())))
        problems: list[str | None] = [None] * n
        try:
            cells = self.schema.read(table)
        except RecordError as error:
            for problem in error.problems:
                problems[problem["row"] - 1] = problems[problem["row"] - 1] or _problem(problem)
            cells = self.schema.read(
                {
                    name: [None if bad else value for value, bad in zip(values, problems, strict=True)]
                    for name, values in table.items()
                }
            )
        return cells, self._with_empty(cells, problems)

    def _with_empty(self, cells: Records, problems: list[str | None]) -> list[str | None]:
        for at in self.schema.empty_rows(cells):
            problems[at] = problems[at] or f"the record {self.schema.no_cell}"
        return problems

    def task(self) -> dict[str, Any]:
        return {"columns": self.columns}


ItemForm = VectorForm | RecordForm


def form_of(estimator: Any, width: int) -> ItemForm:
    """What the galleries of a fitted model hold."""
    # Whoever reads uploads has no model, and need not import all kinds of them.
    from pairmark.models.registry import schema_of_model

    schema = schema_of_model(estimator)
    if schema is None or is_plain(schema):
        return VectorForm(width)
    return RecordForm(schema, getattr(estimator, "encoder_", None))


def form_of_task(task: Mapping[str, Any]) -> ItemForm:
    """The form that `VectorForm.task` or `RecordForm.task` told, without an encoder."""
    if "columns" in task:
        return RecordForm(Schema.model_validate({"columns": task["columns"]}))
    return VectorForm(task["width"])


def same_columns(columns: Sequence[Mapping[str, Any]], form: RecordForm) -> bool:
    """Whether records of stored columns are records of a form: the same compared columns, of the same types."""
    fields = Schema.model_validate({"columns": columns}).fields
    return {column.name: column.type for column in fields} == {
        column.name: column.type for column in form.schema.fields
    }


def body_json(body: Any, columns: Sequence[Any] | None) -> Any:
    """A stored row as JSON shows it; `ValueError` where it is damaged."""
    if columns is not None:
        record = _parsed(body)
        if not isinstance(record, dict):
            raise ValueError("no record")
        return record
    numbers = np.frombuffer(body, dtype="<f4")
    if not np.isfinite(numbers).all():
        raise ValueError("a number that is not finite")
    return numbers.tolist()


def refuse_wholes(form: ItemForm) -> None:
    """Refuse to compare subjects of records as wholes: their galleries keep what single records are compared by."""
    if isinstance(form, RecordForm) and form.compares_cells:
        raise InvalidInput(
            "a gallery of records compares single items; leave out aggregation: group_by alone returns each subject "
            "by its best item",
            field="aggregation",
        )


def _parsed(body: Any) -> Any:
    try:
        return json.loads(body)
    except (TypeError, ValueError):
        return None


def _problem(problem: Mapping[str, Any]) -> str:
    return f"column {problem['column']!r} {problem['detail']}"
