"""Requests and answers about datasets."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pairmark.models.records.cells import DateFormat
from pairmark.models.records.schema import TYPES, FieldType
from pairmark.service.datasets.promises import LABEL_ROLES, LabelRole, Promise, ProtocolChoice
from pairmark.service.pagination import Page
from pairmark.wire.datasets import DatasetFields, RecordColumnFields

Format = Literal["csv", "parquet", "npz", "svmlight"]


def _as_list(value: Any) -> Any:
    """Forms send lists as JSON or as names joined by commas."""
    if value is None:
        return []
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                return json.loads(value)
            except (ValueError, RecursionError):
                pass
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _blank_is_none(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


def _as_types(value: Any) -> Any:
    """Forms send JSON."""
    if isinstance(value, str):
        if not value.strip():
            return None
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError('expected JSON from column to type, such as {"street": "text"}') from error
    return value


ColumnTypes = Annotated[dict[str, str] | None, BeforeValidator(_as_types)]
ROLE_TEXT = "`identity` (new ones will join), `classes` (these and no others) or `label` (not said)"
ColumnName = Annotated[str | None, BeforeValidator(_blank_is_none)]
ColumnNames = Annotated[list[str], BeforeValidator(_as_list)]


class DatasetRequest(BaseModel):
    """The roles of an upload's columns. Every column that is not named here is a feature."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        description="name of the dataset; another upload under the same name becomes its next version"
    )
    format: Annotated[Format | None, BeforeValidator(_blank_is_none)] = Field(
        None,
        description="csv, parquet, npz or svmlight; default: by the file's extension (.csv, .tsv, .parquet, .npz, "
        ".svm; .gz too)",
    )
    identity: ColumnName = Field(
        None,
        description="column of the people or things that the rows are of, where new ones will join: open-set, "
        "whatever their number (npz: an array such as `y`; svmlight: `target`)",
    )
    classes: ColumnName = Field(
        None,
        description="column of the classes of the rows, where there will be these and no others: closed-set "
        "(npz: an array such as `y`; svmlight: `target`)",
    )
    label: ColumnName = Field(
        None,
        description="column of the identity or class, where you do not say which: jobs then take 30 values or more "
        "for identities, and ask below that. Never guessed in CSV and Parquet; npz: the array `y` "
        "if there is one; svmlight: the target (0 in "
        "front of every line: the rows are unlabelled)",
    )
    ranking: ColumnNames = Field(
        default_factory=list,
        description="one column of rankings such as `b>a>c`, `b>a=c` or `b>c`; or several position columns "
        "(in forms joined by commas), one a label, smaller is better, empty = absent; npz: a (rows, labels) array of "
        "positions",
    )
    group: ColumnName = Field(
        None, description="column of groups that are never split between training and held-out data"
    )
    time: ColumnName = Field(
        None,
        description="column with the time of each row, as numbers or ISO 8601 dates; reports then state missed "
        "matches by the time between two samples",
    )
    id: ColumnName = Field(None, description="column of row ids, which a pairs file may refer to")
    exclude: ColumnNames = Field(
        default_factory=list, description="columns to leave out (in forms joined by commas)"
    )
    columns: ColumnTypes = Field(
        None,
        description="read CSV and Parquet as a table of records: JSON from column to its type ("
        + ", ".join(TYPES)
        + "; of dates perhaps `date:DD/MM/YYYY`). Types that it does not name are inferred, so `{}` is "
        "enough. Cells may be missing; default: every column without a role holds numbers",
    )
    header: bool = Field(True, description="CSV: whether the first line contains column names")
    points: ColumnName = Field(None, description="npz: the array of points, (rows, features); default `X`")
    unlabelled: bool = Field(
        False,
        description="accept rows without labels, rankings or pairs, for learners that also use unlabelled rows; "
        "labels in the file are ignored",
    )

    drop_contradictions: bool = Field(
        False,
        description="pairs file: leave out pairs marked different although same pairs, or units, make their rows one "
        "person's; without it they are listed in `warnings`",
    )

    @model_validator(mode="before")
    @classmethod
    def _label_by_role(cls, values: Any) -> Any:
        """``label`` is the column, whichever role names it."""
        columns = {
            role: name for role in LABEL_ROLES if (name := _blank_is_none(values.get(role))) is not None
        }
        if len({str(name) for name in columns.values()}) > 1 or {"identity", "classes"} <= columns.keys():
            raise ValueError(f"expected one of identity, classes and label, not {' and '.join(columns)}")
        return {**values, "label": next(iter(columns.values()), None)}

    @property
    def label_role(self) -> LabelRole:
        """What the labels are, as far as the request says."""
        return "identity" if self.identity else "classes" if self.classes else "label"

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.unlabelled and (self.label or self.ranking):
            raise ValueError("unlabelled: rows with a label or ranking are labelled; leave one of them out")
        return self


class RecordColumnOut(BaseModel, RecordColumnFields):
    """What a column of a table was taken for."""

    type: FieldType
    format: DateFormat | None = Field(description="of dates")


class DatasetOut(BaseModel, DatasetFields):
    """A stored version of a dataset."""

    format: Format
    label_role: LabelRole = Field("label", description=ROLE_TEXT)
    promise: Promise | None = Field(
        description="the smallest false positive rate that a job on this dataset can guarantee by default; null if "
        "it cannot be computed from the dataset's size, or depends on what the labels are (`choices`)"
    )
    choices: list[ProtocolChoice] = Field(
        default_factory=list, description="what the labels may be, where a job would have to ask; else empty"
    )


class DatasetPage(Page[DatasetOut]):
    """Some datasets, newest first."""


class RowOut(BaseModel):
    """One row."""

    row: int = Field(description="0-based index")
    id: str | None
    label: str | None
    group: str | None
    vector: list[float] | dict[str, Any] = Field(
        description="the numbers; for a sparse row, `indices` and `values`; of a table, the record"
    )


class RowsOut(BaseModel):
    """Some rows, in order."""

    dataset: str
    rows: int = Field(description="number of rows in the dataset")
    items: list[RowOut]
