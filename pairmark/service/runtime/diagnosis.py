"""What is wrong with a JSON body that was refused: walked again, slowly, to name the field and what was expected there.

``left[3][2]`` is the third number of the fourth vector on the left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from pairmark.models.records.schema import RESERVED
from pairmark.service.errors import InvalidInput
from pairmark.service.runtime.json_forms import EXPECTED, FLOAT32_MAX


def raise_problem(
    form: type[BaseModel],
    body: bytes | bytearray,
    checks: Mapping[str, Callable[[Any, str], None]],
    error: ValidationError,
) -> NoReturn:
    """Raise `InvalidInput` for the first thing wrong with a body that ``form`` refused with ``error``; ``checks`` are
    of each field that must be there, and raise for what is wrong with its value."""
    value = _json_object(body)
    for name, check in checks.items():
        if name not in value:
            description = form.model_fields[name].description
            raise InvalidInput(f"{name} is missing; expected {description}", field=name) from error
        check(value[name], name)
    _raise_first_error(error)


def _json_object(body: bytes | bytearray) -> dict[str, Any]:
    try:
        value = from_json(body)
    except ValueError as error:
        raise InvalidInput(f"the body is not JSON: {error}", field="body") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"the body is {kind_of(value)}; expected a JSON object", field="body")
    return value


def check_side(value: Any, name: str) -> None:
    """As `check_vectors`, of a side that may hold subjects."""
    if isinstance(value, dict) and "samples" in value:
        _walk_subject(value, name)
    elif (
        isinstance(value, list)
        and value
        and any(isinstance(item, dict) and "samples" in item for item in value)
    ):
        for index, item in enumerate(value):
            at = f"{name}[{index}]"
            if not isinstance(item, dict) or "samples" not in item:
                raise InvalidInput(
                    f'{at} is {kind_of(item)}; expected a subject {{"samples": [vector, ..]}}, like the others in its '
                    "list",
                    field=at,
                )
            _walk_subject(item, at)
    else:
        check_vectors(value, name)


def _walk_subject(value: dict[str, Any], name: str) -> None:
    extra = sorted(set(value) - {"samples"})
    if extra:
        raise InvalidInput(f"{name} has the field {extra[0][:100]!r}; expected only samples", field=name)
    samples, at = value["samples"], f"{name}.samples"
    if not isinstance(samples, list):
        raise InvalidInput(f"{at} is {kind_of(samples)}; expected a list of vectors", field=at)
    if samples and not isinstance(samples[0], list | dict):
        raise InvalidInput(f"{at}[0] is {kind_of(samples[0])}; expected a vector", field=f"{at}[0]")
    check_vectors(samples, at)


def _raise_first_error(error: ValidationError) -> NoReturn:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "is not a field of this request"
    raise InvalidInput(f"{field[:200] or 'body'}: {message}", field=field[:200] or "body") from error


def check_vectors(value: Any, name: str) -> None:
    """Raise for the first thing wrong with one side; return if nothing is."""
    if isinstance(value, dict):
        _walk_object(value, name)
        return
    if not isinstance(value, list):
        raise InvalidInput(f"{name} is {kind_of(value)}; expected {EXPECTED}", field=name)
    if not value:
        raise InvalidInput(f"{name} is empty; expected {EXPECTED}", field=name)
    if isinstance(value[0], list):
        for index, row in enumerate(value):
            if not isinstance(row, list):
                at = f"{name}[{index}]"
                raise InvalidInput(f"{at} is {kind_of(row)}; expected a vector, as {name}[0] is", field=at)
        if any(len(row) != len(value[0]) for row in value) or not value[0]:
            raise_ragged(value, name)
        for index, row in enumerate(value):
            check_numbers(row, f"{name}[{index}]")
    elif isinstance(value[0], dict):
        for index, row in enumerate(value):
            at = f"{name}[{index}]"
            if not isinstance(row, dict):
                kind = "a record" if RESERVED.isdisjoint(value[0]) else "a sparse vector"
                raise InvalidInput(f"{at} is {kind_of(row)}; expected {kind}, as {name}[0] is", field=at)
            _walk_object(row, at)
    else:
        check_numbers(value, name)


def _walk_object(value: dict[str, Any], name: str) -> None:
    """A sparse vector, or, where nothing looks like one, a record."""
    if not RESERVED.isdisjoint(value):
        _walk_sparse(value, name)
        return
    for column, cell in value.items():
        if isinstance(cell, dict):
            raise InvalidInput(
                f"{name}: column {column[:100]!r} is an object; expected a text, a number, true, false, null or a "
                "list of numbers",
                field=f"{name}.{column[:100]}",
            )
        if isinstance(cell, list):
            check_numbers(cell, f"{name}.{column[:100]}")


def _walk_sparse(value: dict[str, Any], name: str) -> None:
    if "samples" in value:
        raise InvalidInput(
            f"{name} is a subject of several samples, which compares with another (/similarity, /match, verify); "
            "expected vectors: send the samples as a list of them",
            field=name,
        )
    for part in ("indices", "values"):
        if not isinstance(value.get(part), list):
            problem = "is missing" if part not in value else f"is {kind_of(value[part])}"
            raise InvalidInput(f"{name}.{part} {problem}; expected a list of numbers", field=f"{name}.{part}")
    extra = sorted(set(value) - {"indices", "values"})
    if extra:
        raise InvalidInput(
            f"{name} has the field {extra[0][:100]!r}; expected only indices and values", field=name
        )
    for index, number in enumerate(value["indices"]):
        if type(number) is not int:
            at = f"{name}.indices[{index}]"
            raise InvalidInput(f"{at} is {kind_of(number)}; expected a whole number from 0", field=at)
    check_numbers(value["values"], f"{name}.values")


def check_numbers(values: Sequence[Any], name: str) -> None:
    for index, number in enumerate(values):
        at = f"{name}[{index}]"
        if type(number) not in (int, float):
            raise InvalidInput(f"{at} is {kind_of(number)}; expected a finite number", field=at)
        # NaN fails every comparison.
        if not -FLOAT32_MAX <= number <= FLOAT32_MAX:
            raise InvalidInput(f"{at} is NaN, infinite or beyond float32; expected a finite number", field=at)


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "something else")


def raise_ragged(rows: Sequence[Any], name: str) -> NoReturn:
    width = len(rows[0])
    if not width:
        raise InvalidInput(f"{name}[0] is empty; expected at least one number", field=f"{name}[0]")
    at = next(index for index, row in enumerate(rows) if len(row) != width)
    raise InvalidInput(
        f"{name}[{at}] has {len(rows[at])} numbers and {name}[0] has {width}; expected vectors of the same length",
        field=f"{name}[{at}]",
    )
