"""Datasets: upload, list, show, delete."""

from collections.abc import Sequence
from functools import partial
from inspect import Parameter, Signature
from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Form, Path, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError

from pairmark.schemas.base import ROW_LIST, Page, QueryModel
from pairmark.schemas.datasets import DatasetOut, DatasetRequest, InspectionOut, RowsOut
from pairmark.service.api.access import UPLOAD
from pairmark.service.api.routing import GuardedRoute, Paging, needs
from pairmark.service.api.services import InServices, check_may, names_of
from pairmark.service.errors import UnknownDataset

router = APIRouter(tags=["datasets"], route_class=GuardedRoute)

Ref = Annotated[str, Path(description="`name` (the newest version) or `name:version`", max_length=200)]
Upload = Annotated[UploadFile, File(description="CSV, Parquet, npz or svmlight")]
PairsFile = Annotated[
    UploadFile | None,
    File(description="explicit pairs: columns left, right (row ids or 0-based rows), same, weight?"),
]
RightFile = Annotated[
    UploadFile | None,
    File(description="a second table of records, whose ids are the `right` of the pairs; needs `columns`"),
]


async def roles(**fields: Any) -> dict[str, Any]:
    """Which columns are what: fields of a form, as `DatasetRequest` describes them; it reads the values."""
    return fields


roles.__signature__ = Signature(  # type: ignore[attr-defined]
    [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=field.default if field.annotation is bool else None,
            annotation=Annotated[
                bool if field.annotation is bool else str | None, Form(description=field.description)
            ],
        )
        for name, field in DatasetRequest.model_fields.items()
        if name != "name"
    ]
)
Roles = Annotated[dict[str, Any], Depends(roles)]


def _request(name: str, fields: dict[str, Any]) -> DatasetRequest:
    try:
        return DatasetRequest.model_validate({"name": name, **fields})
    except ValidationError as error:
        raise RequestValidationError(
            [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        ) from error


@router.post("/datasets", status_code=201)
@needs(
    "train",
    limits=UPLOAD,
)
async def add_dataset(
    http: Request,
    services: InServices,
    response: Response,
    file: Upload,
    name: Annotated[
        str,
        Form(description="name of the dataset; another upload under the same name becomes its next version"),
    ],
    fields: Roles,
    pairs: PairsFile = None,
    right_file: RightFile = None,
) -> DatasetOut:
    """Store labelled vectors as an immutable version of a dataset.

    The file is streamed to disk and checked before anything is stored. A refused upload leaves no data.
    If file and columns equal the newest version, the answer is that version (`existing`).
    """
    check_may(http, "train", name, unknown=UnknownDataset)
    request = _request(name, fields)
    work = partial(services.datasets.add, file, request, pairs=pairs, right=right_file)
    dataset = await services.upload_places.run(work)
    response.headers["Location"] = f"/datasets/{dataset.name}:{dataset.version}"
    return dataset


@router.post("/datasets/inspect")
@needs("train", limits=UPLOAD)
async def inspect_dataset(
    services: InServices,
    file: Upload,
    fields: Roles,
    pairs: PairsFile = None,
    right_file: RightFile = None,
) -> InspectionOut:
    """Preview a file without storing it: columns, roles (inferred if not named), rows, identities,
    and the smallest false positive rate that they support."""
    request = _request("inspected", fields)
    work = partial(services.datasets.inspect, file, request, pairs=pairs, right=right_file)
    return await services.upload_places.run(work)


@router.get("/datasets")
@needs("any")
def list_datasets(request: Request, services: InServices, query: Paging) -> Page[DatasetOut]:
    """All dataset versions that the key may see, newest first."""
    return services.datasets.page(limit=query.limit, cursor=query.cursor, names=names_of(request).datasets)


@router.get("/datasets/{ref:name}")
@needs("dataset")
def get_dataset(services: InServices, ref: Ref) -> DatasetOut:
    """One version of a dataset."""
    return services.datasets.get(ref)


class RowsQuery(QueryModel):
    """Which rows."""

    start: int = Field(0, ge=0, lt=2**53, description="0-based index of the first row")
    limit: int = Field(20, ge=1, le=100, description="largest number of rows in the answer")
    rows: str | None = Field(
        None,
        pattern=ROW_LIST,
        description="0-based rows, separated by commas, instead of a range: at most 100",
    )

    @property
    def numbers(self) -> Sequence[int]:
        """What is asked for."""
        if self.rows is not None:
            return [int(number) for number in self.rows.split(",")]
        return range(self.start, self.start + self.limit)


@router.get("/datasets/{ref:name}/rows")
@needs("train")
def list_rows(services: InServices, ref: Ref, query: Annotated[RowsQuery, Query()]) -> RowsOut:
    """Rows of a dataset, as they were read: vectors, labels and ids."""
    rows = services.datasets.rows(ref, query.numbers)
    facts = {"start": query.numbers[0], "rows": len(rows.items)}
    services.audit.note("dataset.read", f"dataset:{rows.dataset}", facts)
    return rows


@router.delete("/datasets/{ref:name}", status_code=204)
@needs("train")
def delete_dataset(services: InServices, ref: Ref) -> None:
    """Delete a version and its bytes; refused while a waiting or running job needs it."""
    services.datasets.delete(ref)
