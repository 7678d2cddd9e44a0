"""Requests and answers about datasets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pairmark.models.records.cells import DateFormat
from pairmark.models.records.schema import TYPES, FieldType
from pairmark.service.datasets.promises import LABEL_ROLES, LabelRole, Promise, ProtocolChoice
from pairmark.service.pagination import Page
from pairmark.wire.datasets import DatasetFields, DatasetParameters, Format, RecordColumnFields, not_blank


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


class DatasetRequest(BaseModel, DatasetParameters):
    """The roles of an upload's columns. Every column that is not named here is a feature."""

    if TYPE_CHECKING:
        # The checker's plugin for models sees no members that are declared elsewhere.
        def __init__(self, **values: Any) -> None: ...

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        description="name of the dataset; another upload under the same name becomes its next version"
    )
    columns: ColumnTypes = Field(
        None,
        description="the types of a table's columns, which are read as records, of CSV and Parquet: JSON from column "
        "to its type ("
        + ", ".join(TYPES)
        + "; of dates perhaps `date:DD/MM/YYYY`). Types that it does not name are "
        "inferred. Cells may be missing. By default a table is read as records where a column without a role holds "
        "other than numbers; else these columns are the vectors",
    )

    @model_validator(mode="before")
    @classmethod
    def _label_by_role(cls, values: Any) -> Any:
        """``label`` is the column, whichever role names it."""
        columns = {role: name for role in LABEL_ROLES if (name := not_blank(values.get(role))) is not None}
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
    placeholders: dict[str, int] = Field(
        default_factory=dict,
        description="words such as `N/A` that are counted as missing, and how often each occurs",
    )


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
