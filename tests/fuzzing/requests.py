"""Requests made from the OpenAPI document, with ids that its links lead to.

Hypothesis makes requests by the schemas, and some against them. Half of them would never get past a name that nobody
has: so parameters and fields that name something are given real names, most of the time: those of a prepared
service, and those that earlier answers named through the document's links.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
PATIENCE_S = 60.0
KNOWN = 0.75
"""Share of requests in which names are real."""
MOST_KEPT = 200
FINDINGS_KEPT = 50
_VECTORS = ("left", "right", "features", "queries", "probe")
_SACRED = ("DELETE", "/keys/{key_id}/rotate")
"""What takes something away takes only what these requests made."""


@dataclass
class Counts:
    """What was asked and answered.

    Attributes
    ----------
    statuses : answers by operation and status.
    found : answers that broke a promise of the document, and requests that had none.
    slowest : seconds of the slowest answer.
    """

    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    linked: int = 0
    slowest: float = 0.0

    @property
    def requests(self) -> int:
        """How many were answered."""
        return sum(sum(counted.values()) for counted in self.statuses.values())

    @property
    def reached(self) -> list[str]:
        """Operations that did what they are for, at least once."""
        good = (200, 201, 202, 204)
        return [name for name, counted in self.statuses.items() if any(counted[one] for one in good)]

    def by_class(self) -> dict[str, int]:
        """Answers by the first digit of their status."""
        total: Counter[str] = Counter()
        for counted in self.statuses.values():
            for status, n in counted.items():
                total[f"{status // 100}xx"] += n
        return dict(sorted(total.items()))

    def add(self, other: Counts) -> None:
        """Count another run's answers too."""
        for name, counted in other.statuses.items():
            self.statuses.setdefault(name, Counter()).update(counted)
        self.found += other.found
        self.linked += other.linked
        self.slowest = max(self.slowest, other.slowest)


class DocumentFuzz:
    """Requests to one service.

    Parameters
    ----------
    url : of the service. document : its OpenAPI document.
    names : values of path parameters, and of the fields ``model`` and ``dataset``, that are there.
    keys : API keys; the first one may do everything and is used most. Empty: requests carry none.
    dimension : of the model's vectors.
    """

    def __init__(
        self,
        url: str,
        document: Mapping[str, Any],
        names: Mapping[str, Any],
        *,
        keys: tuple[str, ...] = (),
        dimension: int,
        random_state: int = 0,
    ) -> None:
        # Without security, or made-up keys would be sent, and refused at the door.
        opened = json.loads(json.dumps(document))
        opened["components"].pop("securitySchemes", None)
        for operations in opened["paths"].values():
            for operation in operations.values():
                operation.pop("security", None)
        self._schema = schemathesis.openapi.from_dict(opened)
        self._schema.config.update(base_url=url)
        self._names, self._keys, self._dimension = dict(names), keys, dimension
        self._random = random.Random(random_state)
        self._random_state = random_state
        self._linked: dict[str, list[dict[str, Any]]] = {}
        self.counts = Counts()

    def operations(self) -> Iterator[Any]:
        """Every operation of the document."""
        for result in self._schema.get_all_operations():
            yield result.ok()

    def run(self, examples: int, turn: int = 0) -> Counts:
        """Make about so many requests of every operation, half of them against its schema.

        Parameters
        ----------
        turn : makes other requests than other turns.
        """
        for number, operation in enumerate(self.operations()):
            self._ask_often(operation, examples, 1_000 * turn + number)
        return self.counts

    def _ask_often(self, operation: Any, examples: int, turn: int) -> None:
        made = operation.as_strategy() | operation.as_strategy(
            generation_mode=schemathesis.GenerationMode.NEGATIVE
        )

        @seed(1_000_000 * self._random_state + turn)
        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=made)
        def ask(case: Any) -> None:
            self._ask(case, operation)

        ask()

    def _ask(self, case: Any, operation: Any) -> None:
        name = f"{case.method} {operation.path}"
        if self._random.random() < KNOWN or operation.path.endswith("/events"):
            self._name_what_is_there(case, operation)
        headers = {}
        if self._keys:
            every = self._keys[0]
            headers["x-api-key"] = every if self._random.random() < 0.85 else self._random.choice(self._keys)
        started = time.monotonic()
        try:
            answer = case.call(timeout=PATIENCE_S, headers=headers)
        except Exception as error:
            if "header" in str(error).lower() or "encode" in str(error).lower():
                # Something that HTTP itself cannot say never left this process.
                return
            self._find(f"{name}: no answer: {type(error).__name__}: {str(error)[:200]}")
            return
        self.counts.slowest = max(self.counts.slowest, time.monotonic() - started)
        self.counts.statuses.setdefault(name, Counter())[answer.status_code] += 1
        try:
            case.validate_response(answer, checks=CHECKS)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self._find(f"{name}: {answer.status_code}: {_said(error)}\n{case.as_curl_command()[:1500]}")
        self._follow_links(case, operation, answer)

    def _find(self, text: str) -> None:
        if len(self.counts.found) < FINDINGS_KEPT:
            print(f"FOUND {text}", flush=True)
            self.counts.found.append(text)

    # ------------------------------------------------------------ names that are there

    def _name_what_is_there(self, case: Any, operation: Any) -> None:
        takes = case.method in _SACRED or operation.path in _SACRED
        linked = self._linked.get(operation.definition.raw.get("operationId", ""))
        if case.path_parameters:
            if linked and (takes or self._random.random() < 0.5):
                chosen = self._random.choice(linked)
                if takes:
                    linked.remove(chosen)
                self.counts.linked += 1
                case.path_parameters = {**case.path_parameters, **chosen}
            elif not takes:
                case.path_parameters = {
                    name: self._names.get(name, value) for name, value in case.path_parameters.items()
                }
        body = case.body
        if isinstance(body, dict) and self._random.random() < 0.8:
            body = dict(body)
            for field_, there in (("model", "model"), ("dataset", "ref"), ("gallery", "gallery")):
                if field_ in body:
                    body[field_] = self._names.get(there, body[field_])
            for field_ in _VECTORS:
                if field_ in body and self._random.random() < 0.8:
                    body[field_] = self._vectors()
            case.body = body

    def _vectors(self) -> Any:
        numbers = [round(self._random.gauss(0, 1), 3) for _ in range(self._dimension)]
        if self._random.random() < 0.1:
            numbers[self._random.randrange(len(numbers))] = self._random.choice(
                [1e39, -1e300, 1e-45, 0, True, "1", None, [1.0], 2**63]
            )
        if self._random.random() < 0.05:
            numbers = numbers[: self._random.randrange(len(numbers))]
        form = self._random.random()
        if form < 0.5:
            return numbers
        if form < 0.8:
            return [numbers] * self._random.randrange(1, 4)
        if form < 0.9:
            return {"samples": [numbers, numbers]}
        return {"indices": [0, self._dimension - 1], "values": [1.0, -2.5]}

    def _follow_links(self, case: Any, operation: Any, answer: Any) -> None:
        raw = operation.definition.raw
        links = raw["responses"].get(str(answer.status_code), {}).get("links", {})
        if not links:
            return
        try:
            body = answer.json()
        except ValueError:
            return
        for link in links.values():
            values = {
                name: _resolved(expression, body, case.path_parameters or {})
                for name, expression in link["parameters"].items()
            }
            if all(value is not None for value in values.values()):
                kept = self._linked.setdefault(link["operationId"], [])
                if len(kept) >= MOST_KEPT:
                    kept.pop(self._random.randrange(len(kept)))
                kept.append({name.rpartition(".")[2]: value for name, value in values.items()})


def _resolved(expression: str, body: Any, path: Mapping[str, Any]) -> Any:
    """What a runtime expression of a link stands for."""
    if expression.startswith("$request.path."):
        return path.get(expression.removeprefix("$request.path."))
    for step in expression.partition("#/")[2].split("/"):
        if not isinstance(body, dict):
            return None
        body = body.get(step)
    return body


def _said(error: BaseException) -> str:
    parts = getattr(error, "exceptions", None) or [error]
    return "; ".join(f"{type(one).__name__}: {str(one)[:600]}" for one in parts)
