"""Query parameters, read into pydantic models; unknown ones are refused."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pairmark.service.errors import InvalidInput
from pairmark.service.pagination import MAX_LIMIT

MAX_FIELDS: Final = 2048
_CACHED: Final = 1024
_CACHED_BYTES: Final = 512
_PLAIN: Final = {
    "integer": re.compile(r"-?[0-9]{1,19}"),
    "number": re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"),
}


class Query(BaseModel):
    """The query of an address. A parameter without a value counts as not given."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class NoQuery(Query):
    """An address without parameters."""


class PageQuery(Query):
    """One page of a list."""

    limit: int = Field(50, ge=1, le=MAX_LIMIT, description="largest number of items in the answer")
    cursor: str | None = Field(None, max_length=1000, description="`next_cursor` of the previous page")


async def _query_of(request: Request) -> Any:
    return request.scope["pairmark.query"]


FROM_QUERY: Final = Depends(_query_of)
"""``query: Annotated[SomeQuery, FROM_QUERY]`` in a handler: what the edge read of the query."""
Paging = Annotated[PageQuery, FROM_QUERY]


class QueryReader:
    """Reads queries into one model. Clients ask the same again and again, so what was read is kept, within bounds.

    Where the model allows extra fields, parameters ``x.NAME`` are taken too; where it ignores them, any.
    """

    def __init__(self, model: type[Query]) -> None:
        self.model = model
        self.schema: dict[str, Any] = model.model_json_schema()
        self._fields: dict[str, dict[str, Any]] = self.schema.get("properties", {})
        self._plain = {
            name: _PLAIN[kind]
            for name, field in self._fields.items()
            for kind in _types(field) & _PLAIN.keys()
        }
        self._open = model.model_config.get("extra") == "allow"
        self._ignores = model.model_config.get("extra") == "ignore"
        self._queries: dict[bytes, Query] = {}

    def read(self, raw: bytes) -> Query:
        """The query as the model has it, or `InvalidInput` that names the parameter and what was expected."""
        query = self._queries.get(raw)
        if query is None:
            query = self._read(raw)
            if len(raw) <= _CACHED_BYTES:
                # Bounded, because clients choose the words.
                if len(self._queries) >= _CACHED:
                    self._queries.clear()
                self._queries[raw] = query
        return query

    def _read(self, raw: bytes) -> Query:
        values: dict[str, str] = {}
        for name, value in _pairs(raw):
            if name not in self._fields and self._ignores:
                continue
            if name not in self._fields and not (self._open and name.startswith("x.")):
                fields = ", ".join(self._fields) or "none"
                raise InvalidInput(
                    f"{name[:100]!r} is not a query parameter here; known: {fields}", field=name[:100]
                )
            if name in values:
                raise InvalidInput(f"{name[:100]} is given twice; expected once", field=name[:100])
            plain = self._plain.get(name)
            if plain is not None and value and not plain.fullmatch(value):
                raise self._unexpected(name, value)
            values[name] = value
        try:
            return self.model.model_validate({name: value for name, value in values.items() if value})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = str(first["loc"][0]) if first["loc"] else next(iter(values), "query")
            if first["type"] == "missing":
                raise InvalidInput(
                    f"{name} is missing; expected {self._described_value(name)}", field=name
                ) from None
            raise self._unexpected(name, values.get(name, "")) from None

    def _unexpected(self, name: str, value: str) -> InvalidInput:
        return InvalidInput(
            f"{name[:100]} is {value[:50]!r}; expected {self._described_value(name)}", field=name[:100]
        )

    def _described_value(self, name: str) -> str:
        field = self._fields.get(name)
        if field is None:
            return "a finite number"
        text = _described(field)
        examples = field.get("examples")
        return f"{text}, e.g. {examples[0]}" if examples else text


@cache
def reader_of(model: type[Query]) -> QueryReader:
    return QueryReader(model)


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    if not raw:
        return []
    try:
        return parse_qsl(
            raw.decode("utf-8"),
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


def _types(field: dict[str, Any]) -> set[str]:
    return {str(option.get("type")) for option in field.get("anyOf", [field])}


def _described(field: dict[str, Any]) -> str:
    """What a parameter takes, in words, from its JSON Schema."""
    option: dict[str, Any] = next(
        (alternative for alternative in field.get("anyOf", []) if alternative.get("type") != "null"), field
    )
    if "enum" in option:
        return f"one of {', '.join(map(str, option['enum']))}"
    if "const" in option:
        return str(option["const"])
    kind = option.get("type")
    if kind == "boolean":
        return "1 or 0"
    if kind in ("integer", "number"):
        bounds = [
            f"{word} {option[key]:g}" if kind == "number" else f"{word} {option[key]}"
            for key, word in (
                ("minimum", "from"),
                ("exclusiveMinimum", "above"),
                ("maximum", "to"),
                ("exclusiveMaximum", "below"),
            )
            if key in option
        ]
        joined = " and ".join(bounds) if "exclusiveMinimum" in option else " ".join(bounds)
        return f"{'a whole number' if kind == 'integer' else 'a number'} {joined}".strip()
    if "maxLength" in option:
        return f"text of at most {option['maxLength']} characters"
    return "text"
