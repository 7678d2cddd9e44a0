"""Query parameters as pydantic models, read by FastAPI (``Annotated[SomeQuery, Query()]``) or, on hot routes, here."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import parse_qsl

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pairmark.service.api.problems import invalid_field
from pairmark.service.errors import InvalidInput
from pairmark.service.pagination import MAX_LIMIT

MAX_FIELDS: Final = 2048
_CACHED_BYTES: Final = 512
Q = TypeVar("Q", bound="QueryModel")


class QueryModel(BaseModel):
    """The query of an address. A parameter without a value counts as not given; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value != ""}


class PageQuery(QueryModel):
    """One page of a list."""

    limit: int = Field(50, ge=1, le=MAX_LIMIT, description="largest number of items in the answer")
    cursor: str | None = Field(None, max_length=1000, description="`next_cursor` of the previous page")


Paging = Annotated[PageQuery, Query()]


def query_values(raw: bytes) -> dict[str, str]:
    """The parameters of a query, or `InvalidInput`: each may be given once."""
    try:
        pairs = parse_qsl(
            raw.decode(),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError:
        raise InvalidInput(
            f"the query is not of the form name=value&name=value, with at most {MAX_FIELDS} of them",
            field="query",
        ) from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise InvalidInput(f"{name[:100]} is given twice; expected once", field=name[:100])
        values[name] = value
    return values


def read_query(model: type[Q], raw: bytes) -> Q:
    """The query as the model has it, or `InvalidInput` that names the parameter and what was expected."""
    # Clients ask the same again and again, so what was read is kept.
    read: Q = _read(model, raw) if len(raw) <= _CACHED_BYTES else _read.__wrapped__(model, raw)
    return read


@lru_cache(1024)
def _read(model: Any, raw: bytes) -> Any:
    try:
        return model.model_validate(query_values(raw) if raw else {})
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise invalid_field(
            [{**problem, "loc": ("query", *problem["loc"])} for problem in problems]
        ) from None
