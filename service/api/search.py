"""`/galleries/{g}/search` and `/galleries/{g}/subjects/{s}/verify`: called by the edge, as the scoring routes are."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope

from pairmark.service.api.hot import JSON, Answer, _media, _number, read_body
from pairmark.service.api.metrics import SEARCHED
from pairmark.service.api.problems import NotAcceptable, UnsupportedMediaType
from pairmark.service.errors import InvalidInput, UnknownModel
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.searching import Searches, parse_probe, parse_search
from pairmark.service.runtime.runtime import (
    CONFIDENCE,
    Runtime,
    checked_confidence,
    checked_fpr,
    checked_method,
)
from pairmark.service.runtime.scoring import Decision, Served
from pairmark.service.settings import Settings

SEARCH: Final = "/galleries/{gallery}/search"
VERIFY: Final = "/galleries/{gallery}/subjects/{subject}/verify"
CAPABILITY: Final = "search"


def route_of(method: str, path: str) -> str | None:
    """Which of these routes a path is."""
    if method != "POST" or not path.startswith("/galleries/"):
        return None
    parts = path.split("/")
    if len(parts) == 4 and parts[3] == "search":
        return SEARCH
    if len(parts) >= 6 and parts[3] == "subjects" and parts[-1] == "verify":
        return VERIFY
    return None


class SearchRoutes:
    """The endpoints on one runtime."""

    def __init__(self, runtime: Runtime, galleries: Galleries, settings: Settings) -> None:
        self._runtime = runtime
        self._galleries = galleries
        self._searches = Searches(galleries, settings)
        self._settings = settings
        self._known: dict[str, str] = {}
        self._found = {route: SEARCHED.labels(route) for route in ("search", "verify")}

    async def search(self, scope: Scope, receive: Receive) -> Answer:
        """POST /galleries/{gallery}/search."""
        _only_json(scope)
        if scope["query_string"]:
            raise InvalidInput("a search is told in its body; expected no query", field="query")
        name = scope["path"].split("/")[2]
        body = await read_body(scope, receive, self._settings.max_body_bytes)
        request = parse_search(body, self._settings)
        async with self._galleries.place() as place:
            served = await self._expected(name)
            while True:
                decision = None
                if served is not None and request.fpr is not None:
                    decision = await self._runtime.decide(
                        served, request.fpr, request.confidence, "auto", None
                    )

                def work(
                    served: Served | None = served, decision: Decision | None = decision
                ) -> State | tuple[bytes, int]:
                    # Read and searched in one go: a turn of the event loop between them would cost as much as both.
                    state = self._galleries.state(name)
                    if served is None or not _serves(served, state):
                        return state
                    return self._searches.search(state, served, request, decision)

                found = await place.run(work)
                if isinstance(found, tuple):
                    break
                served = await self._served(found)
        answer, n = found
        self._found["search"].inc(n)
        return answer, JSON, ()

    async def _expected(self, name: str) -> Served | None:
        """The version that served the gallery last time, if it is still there."""
        reference = self._known.get(name)
        if reference is None:
            return None
        try:
            return await self._runtime.version_for(reference, CAPABILITY)
        except UnknownModel:
            return None

    async def verify(self, scope: Scope, receive: Receive) -> Answer:
        """POST /galleries/{gallery}/subjects/{subject}/verify."""
        _only_json(scope)
        _, _, name, _, *rest = scope["path"].split("/")
        subject = "/".join(rest[:-1])
        fpr, confidence, method, calibration = _parse_query(scope["query_string"])
        body = await read_body(scope, receive, self._settings.max_body_bytes)
        probe = parse_probe(body)
        async with self._galleries.place() as place:
            while True:
                state = await place.run(lambda: self._galleries.state(name))
                served = await self._served(state)
                if served is not None:
                    break
            decision = await self._runtime.decide(served, fpr, confidence, method, calibration)
            answer = await place.run(lambda: self._searches.verify(state, served, subject, probe, decision))
        self._found["verify"].inc()
        return answer, JSON, ()

    async def _served(self, state: State) -> Served | None:
        """The gallery's version; None when the gallery has just moved on and the earlier one was deleted."""
        reference = f"{state.model}:{state.version}"
        try:
            served = await self._runtime.version_for(reference, CAPABILITY)
            if len(self._known) >= 4096:
                self._known.clear()
            self._known[state.name] = reference
            return served
        except UnknownModel:
            now = await self._runtime.in_thread(lambda: self._galleries.state(state.name))
            if (now.model_id, now.version) == (state.model_id, state.version):
                raise
            return None


def _serves(served: Served, state: State) -> bool:
    return (served.entry.model_id, served.entry.version) == (state.model_id, state.version)


def _only_json(scope: Scope) -> None:
    kind, raw = _media(scope)
    if kind != JSON:
        raise UnsupportedMediaType("this route reads application/json")
    if raw:
        raise NotAcceptable("this route answers with application/json")


def _parse_query(raw: bytes) -> tuple[float, float, str, str | None]:
    try:
        given = dict(parse_qsl(raw.decode("ascii"), strict_parsing=bool(raw), max_num_fields=16))
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidInput("the query is not of the form name=value&name=value", field="query") from error
    known = ("fpr", "confidence", "method", "calibration")
    for name in given:
        if name not in known:
            raise InvalidInput(
                f"{name[:100]!r} is not a query parameter here; known: {', '.join(known)}", field=name[:100]
            )
    if "fpr" not in given:
        raise InvalidInput(
            "fpr is missing; expected the false positive rate you allow, e.g. ?fpr=0.001", field="fpr"
        )
    return (
        checked_fpr(_number(given["fpr"], "fpr")),
        checked_confidence(_number(given.get("confidence", str(CONFIDENCE)), "confidence")),
        checked_method(given.get("method", "")),
        given.get("calibration") or None,
    )
