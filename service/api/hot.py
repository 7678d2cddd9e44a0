"""The scoring routes: `/similarity`, `/match`, `/explain`.

Called by the edge itself, because a framework's handling of one body costs more than scoring a pair. They parse,
call the runtime and give the answer; `openapi.py` documents them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from pairmark.service.api.metrics import publish_live
from pairmark.service.api.problems import NotAcceptable, UnsupportedMediaType
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.binary import parse_npz, parse_octets
from pairmark.service.runtime.live import picked
from pairmark.service.runtime.metrics import PAIRS
from pairmark.service.runtime.runtime import (
    CONFIDENCE,
    Runtime,
    checked_confidence,
    checked_fpr,
    checked_method,
)
from pairmark.service.runtime.scoring import Decision, Served, count, plain
from pairmark.service.runtime.vectors import Pairs, holds_scores, parse_pairs, parse_scores
from pairmark.service.settings import Settings

JSON: Final = b"application/json"
OCTETS: Final = b"application/octet-stream"
NPZ: Final = b"application/x-npz"

SMALL_BODY: Final = 128 * 1024
SMALL_OCTETS: Final = 2 * 1024 * 1024
SMALL_BATCH: Final = 64
SMALL_ELEMENTS: Final = 1_000_000
SMALL_SECONDS: Final = 0.0005
"""Below these a request is answered on the event loop: a thread costs more than the work."""
PUBLISH_S: Final = 1.0
"""How long counts of live scores wait before they are metrics: a counter costs more than a score."""


_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Query:
    """The query of a scoring request."""

    model: str | None = None
    dim: int | None = None
    n_left: int | None = None
    fpr: float | None = None
    confidence: float = CONFIDENCE
    method: str = "auto"
    calibration: str | None = None
    detail: bool = False


Answer = tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...]]
"""Body, media type and further headers of an answer with status 200; the edge sends it."""


class ScoringRoutes:
    """The scoring endpoints on one runtime."""

    def __init__(self, runtime: Runtime, settings: Settings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._queries: dict[tuple[bytes, bool], Query] = {}
        self._publishing = False
        self._pairs = {path: PAIRS.labels(path) for path in ("/similarity", "/match", "/explain")}

    async def similarity(self, scope: Scope, receive: Receive) -> Answer:
        """POST /similarity."""
        kind, raw = _media(scope)
        query = self._query(scope["query_string"], match=False)
        body = await read_body(scope, receive, self._settings.max_body_bytes)
        read = await self._read_here(kind, query, body, "similarity")
        if read is not None and _is_small(*read):
            pairs, served = read
            scores = served.score_pairs(pairs)
            self._seen(served, pairs, picked(scores), None)
            return _scores_answer(served, scores, raw)
        async with self._runtime.batch_place() as place:
            pairs, served = read or await self._read(place.run, kind, query, body, "similarity")

            def work() -> tuple[Any, Answer]:
                scores = served.score_pairs(pairs)
                return picked(scores), _scores_answer(served, scores, raw)

            some, answer = await place.run(work)
        self._seen(served, pairs, some, None)
        return answer

    async def match(self, scope: Scope, receive: Receive) -> Answer:
        """POST /match."""
        kind, raw = _media(scope)
        query = self._query(scope["query_string"], match=True)
        if raw and query.detail:
            raise NotAcceptable("detail is given as application/json: leave it out, or accept that")
        body = await read_body(scope, receive, self._settings.max_body_bytes)
        if kind == JSON and holds_scores(body):
            return await self._match_scores(query, body, raw)
        read = await self._read_here(kind, query, body, "match")
        if read is not None:
            pairs, served = read
            decision = await self._decide(served, query)
            # A long answer in JSON takes longer to write than its scores take to make.
            brief = raw or pairs.n_pairs <= SMALL_BATCH
            if brief and _is_small(pairs, served) and not query.detail:
                scores = served.score_pairs(pairs)
                if raw:
                    matched = decision.matches(scores)
                    answer = _match_answer(served.model_json, scores, matched, decision, True)
                    n_matched = count(matched)
                else:
                    listed = scores.tolist()
                    decided = decision.few(listed)
                    answer = _listed_answer(served.model_json, listed, decided, decision)
                    n_matched = sum(decided)
                self._seen(served, pairs, picked(scores), (decision, n_matched))
                return answer
        async with self._runtime.batch_place() as place:
            pairs, served = read or await self._read(place.run, kind, query, body, "match")
            decision = await self._decide(served, query)

            def work() -> tuple[Any, int, Answer]:
                scores = served.score_pairs(pairs)
                matched = decision.matches(scores)
                rare = self._rare(decision, scores, query)
                answer = _match_answer(served.model_json, scores, matched, decision, raw, rare)
                return picked(scores), count(matched), answer

            some, n_matched, answer = await place.run(work)
        self._seen(served, pairs, some, (decision, n_matched))
        return answer

    async def explain(self, scope: Scope, receive: Receive) -> Answer:
        """POST /explain."""
        kind, raw = _media(scope)
        if raw:
            raise NotAcceptable("explanations are given as application/json")
        query = self._query(scope["query_string"], match=False)
        body = await read_body(scope, receive, self._settings.max_body_bytes)
        async with self._runtime.batch_place() as place:
            pairs, served = await self._read(place.run, kind, query, body, "similarity")

            def work() -> bytes:
                told = served.explain(pairs)
                score = float(served.score_pairs(pairs)[0])
                return to_json({"model": served.model, "score": score, "explanation": plain(told)})

            answer = await place.run(work)
        self._pairs["/explain"].inc()
        return answer, JSON, ()

    def _seen(self, served: Served, pairs: Pairs, scores: Any, decided: tuple[Decision, int] | None) -> None:
        """Count what was scored, for the metrics and the live check; ``scores`` are some of them."""
        n = pairs.n_pairs
        self._pairs["/similarity" if decided is None else "/match"].inc(n)
        watch = self._runtime.live.watch(served)
        if watch is None:
            return
        watch.count(scores, shared=n > 1 and 1 in (len(pairs.left), len(pairs.right)))
        if decided is not None:
            watch.decide(decided[0].rate, n, decided[1])
        if not self._publishing:
            self._publishing = True
            asyncio.get_running_loop().call_later(PUBLISH_S, self._publish)

    def _publish(self) -> None:
        self._publishing = False
        publish_live(self._runtime.live.watches())

    async def _match_scores(self, query: Query, body: bytes | bytearray, raw: bool) -> Answer:
        """Decide scores made elsewhere: no model scores anything, a calibration must be named."""
        if query.calibration is None:
            raise InvalidInput(
                "scores need calibration=ID, which says what a score is worth; make one with POST /calibrations",
                field="calibration",
            )
        decision = await self._decide(None, query)
        model = await self._runtime.model_of_calibration(query.calibration)
        async with self._runtime.batch_place() as place:

            def work() -> Answer:
                scores = parse_scores(body)
                if len(scores) > self._settings.max_batch_pairs:
                    raise TooLarge(
                        f"the request has {len(scores)} scores; at most {self._settings.max_batch_pairs} are taken",
                        limit=self._settings.max_batch_pairs,
                    )
                matched, rare = decision.matches(scores), self._rare(decision, scores, query)
                return _match_answer(to_json(model), scores, matched, decision, raw, rare)

            answer = await place.run(work)
        return answer

    def _rare(self, decision: Decision, scores: Any, query: Query) -> list[float] | None:
        """With `detail`: log10 of the bound on how often a different pair scores so high."""
        if not query.detail:
            return None
        found: list[float] = self._runtime.decisions.log10_fpr(
            decision.public["calibration_id"], scores, query.confidence, query.method
        ).tolist()
        return found

    async def _decide(self, served: Served | None, query: Query) -> Decision:
        assert query.fpr is not None
        return await self._runtime.decide(
            served, query.fpr, query.confidence, query.method, query.calibration
        )

    async def _read_here(
        self, kind: bytes, query: Query, body: bytes | bytearray, capability: str
    ) -> tuple[Pairs, Served] | None:
        """Parse on the event loop what is short to parse, and find the version; None for what is long."""
        if kind == JSON and len(body) <= SMALL_BODY:
            pairs = parse_pairs(body)
            pairs.check_sizes(self._settings.max_batch_pairs)
            return pairs, await self._runtime.version_for(_model(pairs, query), capability)
        if kind == OCTETS and len(body) <= SMALL_OCTETS:
            served = await self._runtime.version_for(query.model, capability)
            dim = query.dim or served.n_features
            pairs = parse_octets(body, dim=dim, n_left=query.n_left, model=query.model)
            pairs.check_sizes(self._settings.max_batch_pairs)
            return pairs, served
        return None

    async def _read(
        self,
        run: Callable[[Callable[[], Pairs]], Any],
        kind: bytes,
        query: Query,
        body: bytes | bytearray,
        capability: str,
    ) -> tuple[Pairs, Served]:
        """Parse off the event loop, and find the version."""
        settings = self._settings
        if kind == JSON:
            pairs = await run(lambda: parse_pairs(body))
            served = await self._runtime.version_for(_model(pairs, query), capability)
        else:
            served = await self._runtime.version_for(query.model, capability)
            if kind == OCTETS:
                dim = query.dim or served.n_features
                pairs = await run(lambda: parse_octets(body, dim=dim, n_left=query.n_left, model=query.model))
            else:
                pairs = await run(
                    lambda: parse_npz(body, model=query.model, max_bytes=settings.max_body_bytes)
                )
        pairs.check_sizes(settings.max_batch_pairs)
        return pairs, served

    def _query(self, raw: bytes, *, match: bool) -> Query:
        # Clients ask the same question again and again; the cache is bounded because they choose the words.
        known = self._queries.get((raw, match))
        if known is None:
            known = _parse_query(raw, match=match, max_dimension=self._settings.max_dimension)
            if len(self._queries) >= 1024:
                self._queries.clear()
            self._queries[(raw, match)] = known
        return known


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes | bytearray:
    """The whole body, at most ``limit`` bytes of it held at any time."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False) and len(body) <= limit:
        scope["pairmark.body_read"] = True
        return body
    whole = bytearray(body)
    while len(whole) <= limit and message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        whole += message.get("body", b"")
    if len(whole) > limit:
        raise TooLarge(f"the body has more than {limit} bytes, which is the most taken here", limit=limit)
    scope["pairmark.body_read"] = True
    return whole


def _media(scope: Scope) -> tuple[bytes, bool]:
    """Media type of the body, and whether raw bytes are wanted back."""
    kind, raw = JSON, False
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            if kind not in (JSON, OCTETS, NPZ):
                raise UnsupportedMediaType(
                    f"the body is {kind.decode('latin-1')[:100]!r}; expected Content-Type: application/json, "
                    "application/octet-stream or application/x-npz"
                )
        elif name == b"accept":
            wanted = value.lower()
            if OCTETS in wanted:
                raw = True
            elif wanted and not any(word in wanted for word in (b"*/*", b"application/*", JSON)):
                raise NotAcceptable(
                    f"Accept is {wanted.decode('latin-1')[:100]!r}; this route answers with application/json or "
                    "application/octet-stream"
                )
    return kind, raw


def _model(pairs: Pairs, query: Query) -> str | None:
    """The model that a JSON request names, in its body or its query."""
    if pairs.model is None or query.model is None:
        return query.model if pairs.model is None else pairs.model
    if pairs.model != query.model:
        raise InvalidInput("the body and the query name different models; expected one", field="model")
    return pairs.model


def _is_small(pairs: Pairs, served: Served) -> bool:
    if pairs.n_pairs <= SMALL_BATCH:
        return pairs.n_pairs * served.n_features <= SMALL_ELEMENTS
    return pairs.n_pairs * served.seconds_a_pair <= SMALL_SECONDS


def _scores_answer(served: Served, scores: Any, raw: bool) -> Answer:
    if raw:
        return scores.tobytes(), OCTETS, (_model_header(served.model_json),)
    return b'{"model":%b,"scores":%b}' % (served.model_json, to_json(scores.tolist())), JSON, ()


def _match_answer(
    model: bytes,
    scores: Any,
    matched: Any,
    decision: Decision,
    raw: bool,
    rare: list[float] | None = None,
) -> Answer:
    if raw:
        point = decision.public
        headers = (
            _model_header(model),
            (b"x-pairmark-threshold", repr(float(decision.threshold)).encode()),
            (b"x-pairmark-calibration-id", str(point["calibration_id"]).encode()),
            (b"x-pairmark-method", str(point["method"]).encode()),
            (b"x-pairmark-fpr-upper-bound", repr(point["fpr_upper_bound"]).encode()),
        )
        return matched.tobytes(), OCTETS, headers
    if rare is not None:
        entries = zip(scores.tolist(), matched.tolist(), rare, strict=True)
        detailed = [{"score": score, "match": match, "log10_fpr": power} for score, match, power in entries]
        return (
            b'{"model":%b,"matches":%b,"operating_point":%b}' % (model, to_json(detailed), decision.json),
            JSON,
            (),
        )
    return _listed_answer(model, scores.tolist(), matched.tolist(), decision)


def _listed_answer(model: bytes, scores: list[float], matched: list[bool], decision: Decision) -> Answer:
    listed = ",".join(
        [
            f'{{"score":{score!r},"match":true}}' if match else f'{{"score":{score!r},"match":false}}'
            for score, match in zip(scores, matched, strict=True)
        ]
    )
    body = b'{"model":%b,"matches":[%b],"operating_point":%b}' % (model, listed.encode(), decision.json)
    return body, JSON, ()


def _model_header(model: bytes) -> tuple[bytes, bytes]:
    # Names are ASCII, so the JSON of a model can stand in a header as it is.
    return (b"x-pairmark-model", model)


# ---------------------------------------------------------------- the query


def _parse_query(raw: bytes, *, match: bool, max_dimension: int) -> Query:
    try:
        given = dict(
            parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), max_num_fields=32
            )
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidInput("the query is not of the form name=value&name=value", field="query") from error
    known = ["model", "dim", "n_left"] + (
        ["fpr", "confidence", "method", "calibration", "detail"] if match else []
    )
    for name in given:
        if name not in known:
            raise InvalidInput(
                f"{name[:100]!r} is not a query parameter here; known: {', '.join(known)}", field=name[:100]
            )
    query = Query(
        model=given.get("model") or None,
        dim=_whole(given, "dim", max_dimension),
        n_left=_whole(given, "n_left", 2**31 - 1),
    )
    if not match:
        return query
    if "fpr" not in given:
        raise InvalidInput(
            "fpr is missing; expected the false positive rate you allow, e.g. POST /match?fpr=0.001",
            field="fpr",
        )
    return Query(
        model=query.model,
        dim=query.dim,
        n_left=query.n_left,
        fpr=checked_fpr(_number(given["fpr"], "fpr")),
        confidence=checked_confidence(_number(given.get("confidence", str(CONFIDENCE)), "confidence")),
        method=checked_method(given.get("method", "")),
        calibration=given.get("calibration") or None,
        detail=_flag(given, "detail"),
    )


def _number(text: str, field: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(f"{field} is {text[:50]!r}; expected a number above 0 and below 1", field=field)
    return float(text)


def _flag(given: dict[str, str], field: str) -> bool:
    text = given.get(field, "0")
    if text not in ("0", "1"):
        raise InvalidInput(f"{field} is {text[:50]!r}; expected 1 or 0", field=field)
    return text == "1"


def _whole(given: dict[str, str], field: str, largest: int) -> int | None:
    text = given.get(field)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= largest):
        raise InvalidInput(
            f"{field} is {text[:50]!r}; expected a whole number from 1 to {largest}", field=field
        )
    return int(text)
