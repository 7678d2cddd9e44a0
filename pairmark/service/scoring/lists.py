"""Requests with long lists that are no vectors: scores, outcomes, pairs of names."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter

from pairmark.service.scoring.json import LISTED, STRICT, cut, read_numbers, split_request, validate

Whole = TypeVar("Whole", bound=BaseModel)
Reader = Callable[[bytes, str], Any]
"""Reads the JSON of a member; takes its name for what it refuses."""


def parse_lists(
    form: type[Whole], body: bytes, readers: Mapping[str, Reader], options: type[BaseModel], within: str = ""
) -> Whole:
    """A request with long lists, which are read in pieces instead of by the model.

    Parameters
    ----------
    form : the whole request.
    readers : of each list, what reads its JSON.
    options : the members beside the lists, of which ``form`` is a subclass.
    within : as for `split_request`.
    """
    fields = form.model_fields
    expected = {
        name: fields[name].description or "a list" if fields[name].is_required() else None for name in readers
    }
    others, texts = split_request(options, body, expected, within)
    lists = {
        name: readers[name](text, within + name)
        for name, text in texts.items()
        if text != b"null" or expected[name] is not None
    }
    return form.model_construct(**{**dict(others), **lists})


def list_of(kind: Any, *, of_lists: bool = False) -> Reader:
    """A reader of a list whose elements are of that type, in pieces, so that other threads run in between."""
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[list[kind], LISTED], config=STRICT)

    def read(text: bytes, name: str) -> list[Any]:
        values: list[Any] = []
        for piece in cut(text, of_lists=of_lists):
            values += validate(adapter, piece, name, len(values))
        return values

    return read


def read_scores(text: bytes, name: str) -> NDArray[np.float64]:
    """A number per pair, in double precision, so that those that float32 cannot tell apart are counted."""
    return read_numbers(text, name, np.float64)
