"""`/embed`: a model's own vectors of points. A plain ASGI endpoint, as the scoring routes are."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

from pydantic import BaseModel, Field
from starlette.types import Receive, Scope

from pairmark.service.api.hot import JSON, OCTETS, Answer, _media, _model_header, read_body
from pairmark.service.api.metrics import POINTS
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.binary import parse_npz_rows, parse_rows
from pairmark.service.runtime.runtime import BatchPlace, Runtime
from pairmark.service.runtime.scoring import Served, embedded
from pairmark.service.runtime.vectors import Features, parse_features
from pairmark.service.settings import Settings

CAPABILITY: Final = "embed"


class ModelEmbedded(BaseModel):
    """The version that embedded."""

    name: str
    version: int
    kind: str


class VectorsOut(BaseModel):
    """Vectors, one a point, in order."""

    model: ModelEmbedded
    vectors: list[list[float]] = Field(description="float32 values")


class EmbedRoute:
    """The endpoint on one runtime."""

    def __init__(self, runtime: Runtime, settings: Settings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._points = POINTS.labels("/embed")

    async def embed(self, scope: Scope, receive: Receive) -> Answer:
        """POST /embed."""
        kind, raw = _media(scope)
        body = await read_body(scope, receive, self._settings.max_body_bytes)
        async with self._runtime.batch_place() as place:
            features, served = await read_points(
                self._runtime, self._settings, place, CAPABILITY, kind, scope["query_string"], body
            )
            self._check_size(features, served)
            answer = await place.run(lambda: _answer(served, features, raw))
        self._points.inc(len(features))
        return answer

    def _check_size(self, features: Features, served: Served) -> None:
        size, limit = 4 * len(features) * served.n_features, self._settings.max_body_bytes
        if len(features) > self._settings.max_batch_pairs or size > limit:
            raise TooLarge(
                f"the answer to {len(features)} points would have {size} bytes of float32; at most "
                f"{self._settings.max_batch_pairs} points and {limit} bytes are given at a time",
                limit=limit,
            )


async def read_points(
    runtime: Runtime,
    settings: Settings,
    place: BatchPlace,
    capability: str,
    kind: bytes,
    query: bytes,
    body: bytes | bytearray,
) -> tuple[Features, Served]:
    """Points of a body of any kind, parsed off the event loop, and the version that they are for."""
    if kind == JSON:
        if query:
            raise InvalidInput(
                f"a JSON body to {capability} names its model itself; expected no query", field="query"
            )
        features = await place.run(lambda: parse_features(body))
        return features, await runtime.version_for(features.model, capability)
    model, dim = _parse_query(query, settings.max_dimension)
    served = await runtime.version_for(model, capability)
    if kind == OCTETS:
        width = dim or served.n_features
        return await place.run(lambda: parse_rows(body, dim=width, model=model)), served
    limit = settings.max_body_bytes
    return await place.run(lambda: parse_npz_rows(body, model=model, max_bytes=limit)), served


def _answer(served: Served, features: Features, raw: bool) -> Answer:
    vectors = embedded(served, features)
    if raw:
        shape = (b"x-pairmark-dimension", b"%d" % vectors.shape[1])
        return vectors.tobytes(), OCTETS, (_model_header(served.model_json), shape)
    rows = b",".join(row for row in map(_listed, vectors))
    return b'{"model":%b,"vectors":[%b]}' % (served.model_json, rows), JSON, ()


def _listed(row: object) -> bytes:
    return str(row.tolist()).encode()  # type: ignore[attr-defined]


def _parse_query(raw: bytes, max_dimension: int) -> tuple[str | None, int | None]:
    try:
        given = dict(parse_qsl(raw.decode("ascii"), strict_parsing=bool(raw), max_num_fields=8))
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidInput("the query is not of the form name=value&name=value", field="query") from error
    for name in given:
        if name not in ("model", "dim"):
            raise InvalidInput(
                f"{name[:100]!r} is not a query parameter here; known: model, dim", field=name[:100]
            )
    dim = given.get("dim")
    if dim is not None and not (re.fullmatch("[0-9]{1,10}", dim) and 1 <= int(dim) <= max_dimension):
        raise InvalidInput(
            f"dim is {dim[:50]!r}; expected a whole number from 1 to {max_dimension}", field="dim"
        )
    return given.get("model"), None if dim is None else int(dim)
