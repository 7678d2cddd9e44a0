"""Requests to plain routes: bodies, answers and media types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from pairmark.schemas.models import DECIDED_RATES
from pairmark.service.api.problems import NotAcceptable, UnsupportedMediaType
from pairmark.service.api.services import Services
from pairmark.service.errors import Forbidden
from pairmark.service.keys import ActiveKey
from pairmark.service.names import EVERY_NAME, VisibleNames
from pairmark.service.runtime.parsing import check_structure
from pairmark.service.runtime.versions import LoadedVersion

JSON: Final = b"application/json"
OCTETS: Final = b"application/octet-stream"
NPZ: Final = b"application/x-npz"
_GIVEN: Final = frozenset({JSON, OCTETS, b"application/*", b"*/*", b""})

Answer = tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...]]
"""Body, media type and further headers of an answer with status 200."""


class Call(Request):
    """A request to a plain route.

    Attributes
    ----------
    services : of this process. query : what the route's query model read. fields : headers, by name in small letters.
    whole : the body that was read.
    """

    def __init__(self, scope: Scope, receive: Receive, services: Services, query: Any) -> None:
        super().__init__(scope, receive)
        self.services, self.query = services, query
        self.fields: dict[bytes, bytes] = scope["pairmark.fields"]
        self.whole: bytes | bytearray = b""

    @property
    def key(self) -> ActiveKey | None:
        """The key of who asks; None: who was admitted without one, and may do everything."""
        key: ActiveKey | None = self.scope.get("pairmark.key")
        return key

    @property
    def asker(self) -> str:
        """Who asks: a key's id, else an address."""
        return self.key.id if self.key is not None else str(self.client and self.client.host)

    @property
    def models(self) -> VisibleNames:
        """The models that who asks may use here."""
        key = self.key
        return EVERY_NAME if key is None else key.grants.usable

    def shows_scores(self, version: LoadedVersion | None) -> bool:
        """Whether who asks may see scores of a version; a key with `decide` alone gets decisions only."""
        key = self.key
        if key is None or not key.allows("decide"):
            return True
        return key.allows("score", None if version is None else version.entry.name)

    def check_listed(self, version: LoadedVersion | None, *rates: float | None, **fixed: bool) -> None:
        """Refuse what would tell a key that may only decide more than decisions at the listed rates: a series of rates,
        confidences, methods or costs brackets a score as closely as one likes.

        Parameters
        ----------
        version : that decides. rates : those that are asked for.
        fixed : by name, whether a parameter has the one value that such a key may use.
        """
        model = (
            None if version is None else self.services.runtime.catalogue.view.models.get(version.entry.name)
        )
        may = DECIDED_RATES if model is None else model.rates
        for rate in rates:
            if rate is not None and not any(math.isclose(rate, listed) for listed in may):
                listed = ", ".join(f"{listed:g}" for listed in may)
                raise Forbidden(
                    f"the key may only decide, at one of the rates {listed}; {rate:g} takes a key with score",
                    scope="score",
                )
        for name, is_fixed in fixed.items():
            if not is_fixed:
                raise Forbidden(f"the key may only decide; {name} takes a key with score", scope="score")

    async def read_body(self) -> bytes | bytearray:
        """The whole body; of JSON, no more brackets than the largest batch has."""
        message = await self.receive()
        whole: bytes | bytearray = message.get("body", b"")
        if message.get("more_body", False):
            whole = bytearray(whole)
            while message.get("more_body", False):
                message = await self.receive()
                whole += message.get("body", b"")
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self.whole = whole
        self.scope["pairmark.body_read"] = True
        if media_type(self.fields) not in (OCTETS, NPZ):
            check_structure(whole, self.services.settings.max_batch_pairs)
        return whole


def media_type(fields: Mapping[bytes, bytes]) -> bytes:
    """The type of a body; without one it is JSON."""
    kind = fields.get(b"content-type", JSON)
    return kind if kind == JSON else kind.partition(b";")[0].strip().lower()


def media(call: Call) -> tuple[bytes, bool]:
    """Media type of the body, and whether raw bytes are wanted back; refuses what is neither read nor given."""
    kind, accept = media_type(call.fields), call.fields.get(b"accept", b"*/*")
    if kind not in (JSON, OCTETS, NPZ):
        raise UnsupportedMediaType(
            f"the body is {kind.decode('latin-1')[:100]!r}; expected Content-Type: application/json, "
            "application/octet-stream or application/x-npz"
        )
    wanted = {media_range.partition(b";")[0].strip() for media_range in accept.lower().split(b",")}
    if OCTETS in wanted and JSON not in wanted:
        return kind, True
    if wanted.isdisjoint(_GIVEN):
        raise NotAcceptable(
            f"Accept is {accept.decode('latin-1')[:100]!r}; this route answers with application/json or "
            "application/octet-stream"
        )
    return kind, False


def only_json(call: Call) -> None:
    """Refuse anything but JSON in and JSON out."""
    kind, raw = media(call)
    if kind != JSON:
        raise UnsupportedMediaType("this route reads application/json")
    if raw:
        raise NotAcceptable("this route answers with application/json")


def model_header(model: bytes) -> tuple[bytes, bytes]:
    """The version that answered, for raw answers. Names are ASCII, so its JSON can stand in a header as it is."""
    return (b"x-pairmark-model", model)
