"""Rows of a dataset as a fitted model takes them: vectors, or the cells of records, encoded where it needs numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.records.schema import Records, Schema
from pairmark.models.registry import schema_of_model
from pairmark.service.datasets.data import LabelledData
from pairmark.service.errors import InvalidInput
from pairmark.service.heldout.scoring import taken_by


def rows_for(estimator: Any, spec: LearnerSpec, data: LabelledData, max_dense_bytes: int) -> Any:
    """The dataset's rows for a fitted learner, or `InvalidInput`: its columns are not those that the model learned."""
    schema = schema_of_model(estimator)
    name = f"dataset {data.name}:{data.version}"
    if schema is None and data.schema is None:
        return taken_by(spec, data.X, max_dense_bytes)
    if data.schema is None:
        if spec.takes_records and int(estimator.n_features_in_) == data.n_features:
            return data.X
        raise InvalidInput(
            f"{name} holds vectors; the model takes records: {_column_names(schema)}", field="dataset"
        )
    if schema is None:
        raise InvalidInput(f"{name} is a table of records; the model takes vectors", field="dataset")
    cells = _aligned(data.schema, np.asarray(data.X), schema, name)
    encoder = getattr(estimator, "encoder_", None)
    return cells if encoder is None else encoder.transform(cells)


def _aligned(own_schema: Schema, cells: Records, schema: Schema, name: str) -> Records:
    """The wanted columns in their order."""
    there = {column.name: (at, column) for at, column in enumerate(own_schema.fields)}
    order = []
    for column in schema.fields:
        at, own = there.get(column.name, (-1, None))
        if own is None or own.type != column.type:
            problem = "is missing" if own is None else f"is of type {own.type}"
            raise InvalidInput(
                f"{name}: column {column.name!r} {problem}; the model takes it as {column.type}: upload it with "
                f'columns={{"{column.name}": "{column.type}"}}',
                field="dataset",
                column=column.name,
            )
        order.append(at)
    return cells[:, order]


def _column_names(schema: Schema | None) -> str:
    return "" if schema is None else ", ".join(column.name for column in schema.fields[:20])
