"""Datasets: uploads, what they could guarantee, and rows."""

import json
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    model_validator,
)

from pairmark.schemas.base import Answer, Request

FieldType = Literal[
    "number",
    "category",
    "text",
    "name",
    "date",
    "place",
    "boolean",
    "phone",
    "email",
    "web",
    "company",
    "street",
    "postcode",
    "list",
    "id",
    "identity",
    "classes",
    "group",
    "time",
    "ignore",
]
DateFormat = Literal[
    "YYYY-MM-DD",
    "YYYY/MM/DD",
    "YYYYMMDD",
    "DD/MM/YYYY",
    "MM/DD/YYYY",
    "DD.MM.YYYY",
    "DD-MM-YYYY",
    "MM-DD-YYYY",
    "DD-Mon-YYYY",
    "DD-Mon-YY",
    "DD/MM/YY",
    "MM/DD/YY",
]
MAX_LISTED_LABELS = 100
MAX_LISTED_FEATURES = 1_000
Format = Literal["csv", "parquet", "npz", "svmlight"]
LabelRole = Literal["identity", "classes", "label"]
LABEL_ROLES: tuple[LabelRole, ...] = ("identity", "classes", "label")


def not_blank(value: Any) -> Any:
    """None for a form's field that is blank."""
    return None if isinstance(value, str) and not value.strip() else value


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


ColumnName = Annotated[str | None, BeforeValidator(not_blank)]
ColumnNames = Annotated[list[str], BeforeValidator(_as_list)]
ColumnTypes = Annotated[dict[str, str] | None, BeforeValidator(_as_types)]
ROLE_TEXT = "`identity` (new ones will join), `classes` (these and no others) or `label` (not said)"


class ReadingRequest(Request):
    format: Annotated[Format | None, BeforeValidator(not_blank)] = Field(
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
        "if there is one; svmlight: the target",
    )
    ranking: ColumnNames = Field(
        [],
        description="one column of rankings such as `b>a>c`, `b>a=c` or `b>c`; or several position columns (in "
        "forms joined by "
        "commas), one a label, smaller is better, empty = absent; npz: a (rows, labels) array of positions",
    )
    group: ColumnName = Field(
        None, description="column of groups that are never split between training and held-out data"
    )
    id: ColumnName = Field(None, description="column of row ids, which a pairs file may refer to")
    exclude: ColumnNames = Field([], description="columns to leave out (in forms joined by commas)")
    keep: ColumnNames = Field(
        [],
        description="columns that no learner sees and that are kept beside the rows, such as a site (in forms joined "
        "by commas): a job's `evaluation.groups` may name one",
    )
    columns: Any
    header: bool = Field(
        True,
        description="CSV: false where the first line is a row, not column names; columns are then c0, c1, ...",
    )


class DatasetRequest(ReadingRequest):
    """The roles of an upload's columns. Every column that is not named here is a feature."""

    unlabelled: bool = Field(
        False,
        description="rows without labels, rankings or pairs, to link or for learners that also use unlabelled rows; "
        "labels in the file are ignored",
    )
    name: str = Field(
        description="name of the dataset; another upload under the same name becomes its next version"
    )
    columns: ColumnTypes = Field(
        None,
        description="the types of a table's columns, which are read as records, of CSV and Parquet: JSON from column "
        "to its type ("
        + ", ".join(get_args(FieldType))
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

    @property
    def roles(self) -> dict[str, str]:
        """The role of each column that the request names; all others are features."""
        named = {self.label: self.label_role, self.group: "group", self.id: "id"}
        return {
            **dict.fromkeys(self.keep, "kept"),
            **{name: role for name, role in named.items() if name is not None},
            **dict.fromkeys(self.exclude, "excluded"),
            **dict.fromkeys(self.ranking, "ranking"),
        }

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.unlabelled and (self.label or self.ranking):
            raise ValueError("unlabelled: rows with a label or ranking are labelled; leave one of them out")
        return self


class Promise(Answer):
    """The smallest false positive rate that can be guaranteed, and what the next power of ten needs."""

    protocol: str = Field(
        description="`open-set`: people or things that new ones will join; `closed-set`: classes that are all "
        "there are",
        examples=["open-set"],
    )
    counted: str = Field(
        description="the units: people (open-set), samples (closed-set) or pairs (a sample of a list)",
        examples=["people"],
    )
    units: int = Field(description="number of units in the dataset", examples=[2400])
    calibration_fraction: float = Field(
        description="share of the units used for calibration", examples=[0.4983]
    )
    calibration_units: int = Field(
        description="number of units that the calibration part would have", examples=[1196]
    )
    confidence: float | None = Field(
        description="the confidence level, above 0 and below 1; null: nothing is guaranteed, whatever the number of "
        "units, as `text` says",
        examples=[0.95],
    )
    smallest_fpr: float | None = Field(
        description="the smallest rate that `finite-sample` supports; null: none", examples=[0.005]
    )
    next_fpr: float | None = Field(description="the next smaller power of ten", examples=[0.001])
    more_units: int | None = Field(
        description="how many more units the dataset needs for `next_fpr`", examples=[9580]
    )
    population: str | None = Field(
        None, description="the classes (closed-set) or the list of pairs that the guarantee is about"
    )
    text: str = Field(
        description="the same in words",
        examples=[
            "1,196 of 2,400 people calibrate. At 95 % confidence they support false positive rates of "
            "0.5 % and above; 0.1 % takes 9,580 more people"
        ],
    )


class ProtocolChoice(Answer):
    """One answer to what the labels of a dataset are, and what it could guarantee."""

    role: Literal["identity", "classes"] = Field(description="how to name the column at upload")
    protocol: Literal["open-set", "closed-set"] = Field(
        description="what to say in a job's `evaluation.protocol` instead", examples=["open-set"]
    )
    meaning: str = Field(
        description="what this answer says of future data",
        examples=[
            "With 95 % confidence, at most 1 % of pairs of different new people score above the "
            "threshold, if the calibration people are a random sample of those to come."
        ],
    )
    promise: Promise | None = Field(description="null: the size does not say (a list of pairs)")


class RecordColumnOut(Answer):
    """What a column of a table was taken for."""

    name: str = Field(description="its name", examples=["people"])
    type: FieldType = Field(description="type of the column, as of a table of records")
    format: DateFormat | None = Field(description="of dates")
    reason: str = Field(description="what speaks for the type", examples=["recognizes more at 1 %"])
    examples: list[str] = Field(description="some of its values")
    warnings: list[str] = Field(description="cells to look at, with row numbers from 1")
    missing: int = Field(description="number of empty cells")
    distinct: int = Field(description="number of different values", examples=[2400])
    placeholders: dict[str, int] = Field(
        default_factory=dict,
        description="words such as `N/A` that are counted as missing, and how often each occurs",
    )


class FileContents(Answer):
    """What a file holds, stored or not."""

    format: Format = Field(description="format of the file")
    label_counts: dict[str, int] = Field(
        description=f"rows of the {MAX_LISTED_LABELS} most frequent labels",
        examples=[{"p0000": 3, "p0001": 3}],
    )
    ranking_labels: list[str] = Field(description="the labels that are ranked; empty without rankings")
    warnings: list[str] = Field(description="what to look at before relying on it")
    promise: Promise | None = Field(
        description="the smallest false positive rate that a job on it can guarantee by default; null if it cannot be "
        "computed from its size, or depends on what the labels are (`choices`)"
    )
    choices: list[ProtocolChoice] = Field(
        default_factory=list, description="what the labels may be, where a job would have to ask; else empty"
    )


class DatasetOut(FileContents):
    """A stored version of a dataset."""

    id: str = Field(description="its id", examples=["6f1ed002ab5595859014ebf0951522d9"])
    name: str = Field(description="its name", examples=["people"])
    version: int = Field(description="number of the version", examples=[1])
    sha256: str = Field(
        description="SHA-256 of the uploaded file",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    rows: int = Field(description="number of rows", examples=[7200])
    features: int = Field(description="number of features", examples=[4])
    sparse: bool = Field(description="whether the rows are sparse")
    feature_names: list[str] = Field(
        description=f"the first {MAX_LISTED_FEATURES}", examples=[["a", "b", "c", "d"]]
    )
    label: str | None = Field(
        description="the column or array of the identities; null: the rows are unlabelled",
        examples=["person"],
    )
    label_role: LabelRole = Field("label", description=ROLE_TEXT)
    n_labels: int = Field(description="distinct identities or classes", examples=[2400])
    n_repeated_labels: int = Field(description="identities with at least two rows", examples=[2400])
    n_groups: int = Field(description="number of different groups")
    n_pairs: int = Field(description="number of explicit pairs")
    n_same_pairs: int = Field(description="number of explicit pairs that are the same")
    n_drawn_different: int = Field(
        0, description="explicit pairs that were drawn at random (`drawn_from`) and are different"
    )
    population: int | None = Field(
        None, description="number of pairs that they were drawn from; null: no pair was drawn"
    )
    columns: list[RecordColumnOut] | None = Field(
        None,
        description="the columns of a table of records with their types; null: the dataset holds vectors",
    )
    size_bytes: int = Field(description="size of the stored files", examples=[214016])
    created_at: str = Field(description="when it was created", examples=["2026-01-31T12:00:00.000Z"])
    chosen: bool = Field(
        False,
        description="whether the pairs were chosen by looking at them: they may train, and calibrate nothing",
    )
    existing: bool = Field(False, description="true: the newest version already has the same content")


class RowOut(Answer):
    """One row."""

    row: int = Field(description="0-based index")
    id: str | None = Field(description="id of the row; null: the dataset has no ids")
    label: str | None = Field(description="the row's label; null: it has none", examples=["p0000"])
    group: str | None = Field(description="the row's group; null: the dataset has no groups")
    vector: list[float] | dict[str, Any] = Field(
        description="the numbers; for a sparse row, `indices` and `values`; of a table, the record",
        examples=[[0.27, -0.15, 0.41, -0.05]],
    )


class RowsOut(Answer):
    """Some rows, in order."""

    dataset: str = Field(description="the dataset, `name:version`", examples=["people:1"])
    rows: int = Field(description="number of rows in the dataset", examples=[7200])
    items: list[RowOut] = Field(description="the entries of this page")


class ColumnOut(Answer):
    """A column (in npz: an array) and its role."""

    name: str = Field(description="its name", examples=["person"])
    kind: str = Field(
        description="number, text or vector; for npz, the array's type and shape", examples=["text"]
    )
    role: str = Field(
        description="feature, points, identity, classes, label, ranking, group, id or excluded; of a table of "
        "records, the type of the column",
        examples=["identity"],
    )
    inferred: bool = Field(description="whether the role was guessed instead of requested")
    distinct: int | None = Field(
        description="number of different values in the first rows; for the label column, the number in all rows",
        examples=[2400],
    )
    empty: int | None = Field(description="number of empty cells; null: not counted", examples=[0])
    examples: list[str] = Field(description="some of its values", examples=[["p0000", "p0001"]])


class InspectionOut(FileContents):
    """What would be read from a file. Nothing was stored."""

    columns: list[ColumnOut] = Field(description="at most the first 1,000")
    request: dict[str, Any] = Field(
        description="the roles to send to `POST /datasets`, together with `name` and `file`",
        examples=[{"identity": "person"}],
    )
    rows: int | None = Field(description="number of rows", examples=[7200])
    features: int | None = Field(description="number of features", examples=[4])
    n_labels: int | None = Field(
        description="number of different labels; null: there are none", examples=[2400]
    )
    problem: str | None = Field(description="why the file would be refused as it is, and how to fix it")
