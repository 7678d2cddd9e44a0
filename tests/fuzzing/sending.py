"""Sends mutated bodies to a running service and judges what comes back."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from tests.fuzzing import bodies
from tests.fuzzing.bodies import Random, pick

PATIENCE_S = 60.0
FINDINGS_KEPT = 50
NPZ, OCTETS, JSON = "application/x-npz", "application/octet-stream", "application/json"


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One request."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] | None = None
    files: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)


@dataclass
class BodyCounts:
    """What was sent and answered, by kind of body."""

    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    slowest: float = 0.0

    @property
    def requests(self) -> int:
        """How many bodies were sent."""
        return sum(sum(counted.values()) for counted in self.statuses.values())


class BodyFuzz:
    """Mutated bodies for one service.

    Parameters
    ----------
    model, gallery : names that are there; the gallery is filled.
    dimension : of the model's vectors. key : an API key that may do everything.
    export : the bytes of an exported version.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        gallery: str,
        dimension: int,
        export: bytes,
        key: str | None = None,
    ) -> None:
        headers = {} if key is None else {"x-api-key": key}
        self._http = httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False, headers=headers)
        self._model, self._gallery, self._dimension, self._export = model, gallery, dimension, export
        self.counts = BodyCounts()

    @property
    def kinds(self) -> dict[str, Callable[[Random], Sent]]:
        """How to make a request of each kind."""
        return {
            "pairs npz": lambda rng: self._scored(
                rng, bodies.pairs_npz, NPZ, ("similarity", "match", "explain")
            ),
            "pairs float32": lambda rng: self._scored(
                rng, bodies.raw, OCTETS, ("similarity", "match", "explain")
            ),
            "points npz": lambda rng: self._scored(rng, bodies.points_npz, NPZ, ("embed", "classify")),
            "points float32": lambda rng: self._scored(rng, bodies.raw, OCTETS, ("embed", "classify")),
            "gallery npz": lambda rng: self._items(NPZ, bodies.items_npz(rng, self._dimension)),
            "gallery float32": lambda rng: self._items(OCTETS, bodies.raw(rng, self._dimension)),
            "gallery csv": lambda rng: self._items("text/csv", bodies.csv(rng, self._dimension, items=True)),
            "gallery parquet": lambda rng: self._items(
                "application/vnd.apache.parquet", bodies.parquet(rng, self._dimension, items=True)
            ),
            "dataset npz": lambda rng: self._dataset(rng, "npz", bodies.dataset_npz(rng, self._dimension)),
            "dataset csv": lambda rng: self._dataset(rng, "csv", bodies.csv(rng, self._dimension)),
            "dataset parquet": lambda rng: self._dataset(
                rng, "parquet", bodies.parquet(rng, self._dimension)
            ),
            "dataset svmlight": lambda rng: self._dataset(
                rng, "svmlight", bodies.svmlight(rng, self._dimension)
            ),
            "artefact": self._imported,
        }

    def send(self, kind: str, seed: int) -> None:
        """Make, send and judge one body of a kind."""
        rng = np.random.default_rng([seed, *kind.encode()])
        sent = self.kinds[kind](rng)
        started = time.monotonic()
        try:
            answer = self._http.request(
                sent.method,
                sent.path,
                headers=sent.headers,
                content=None if sent.files else sent.body,
                data=sent.form,
                files=sent.files or None,
            )
        except httpx.HTTPError as error:
            self._find(f"{kind}, seed {seed}: no answer: {error!r}")
            return
        seconds = time.monotonic() - started
        self.counts.slowest = max(self.counts.slowest, seconds)
        self.counts.statuses.setdefault(kind, Counter())[answer.status_code] += 1
        if answer.status_code >= 500:
            self._find(f"{kind}, seed {seed}: {answer.status_code} {answer.text[:300]}")
        elif answer.status_code >= 400 and not _is_problem(answer):
            self._find(
                f"{kind}, seed {seed}: {answer.status_code} is no problem document: {answer.text[:300]}"
            )
        elif answer.status_code == 201 and kind.startswith("dataset"):
            made = answer.json()
            if "version" in made:
                self._http.delete(f"/datasets/{made['name']}:{made['version']}")
        elif answer.status_code == 201 and kind == "artefact":
            self._show(seed, answer.json()["version"])
        elif answer.status_code < 300 and kind.split()[0] in ("pairs", "points"):
            self._check_finite(kind, seed, answer)

    def _show(self, seed: int, version: int) -> None:
        """Ask everything about a version that was taken, and decide with it."""
        base = f"/models/imported/versions/{version}"
        for part in (
            "",
            "/roc",
            "/roc.svg",
            "/leaderboard",
            "/errors",
            "/report",
            "/operating-point?fpr=0.2",
            "/live",
        ):
            answer = self._http.get(base + part)
            if answer.status_code >= 500:
                self._find(f"artefact, seed {seed}: GET {part} of what was taken: {answer.text[:300]}")
        body = {
            "model": f"imported:{version}",
            "left": [0.0] * self._dimension,
            "right": [1.0] * self._dimension,
        }
        for path in ("/similarity", "/match?fpr=0.2", "/explain"):
            answer = self._http.post(path, json=body)
            if answer.status_code >= 500:
                self._find(f"artefact, seed {seed}: POST {path} with what was taken: {answer.text[:300]}")
        self._http.delete(base)

    def _check_finite(self, kind: str, seed: int, answer: httpx.Response) -> None:
        """No number that is none is given out: JSON has no word for it."""
        if answer.headers["content-type"].startswith(JSON):
            try:
                json.loads(answer.text, parse_constant=_refuse)
            except ValueError as error:
                self._find(f"{kind}, seed {seed}: {error}")

    def _find(self, text: str) -> None:
        if len(self.counts.found) < FINDINGS_KEPT:
            print(f"FOUND {text}", flush=True)
            self.counts.found.append(text)

    def _scored(self, rng: Random, make: bodies.Maker, media: str, routes: tuple[str, ...]) -> Sent:
        query: dict[str, Any] = {"model": self._model}
        route = pick(rng, routes)
        if media == OCTETS:
            if bodies.chance(rng, 0.4):
                query["dim"] = pick(rng, [self._dimension, 0, -1, 1, 2**31, 2**63, "x", 1.5, ""])
            if bodies.chance(rng, 0.3) and route in ("similarity", "match", "explain"):
                query["n_left"] = pick(rng, [1, 0, -1, 2, 10**9, 2**64, "x"])
        if route == "match":
            query["fpr"] = pick(rng, [0.1, 0.2, 0.5, 1e-9])
        headers = {"content-type": media}
        if bodies.chance(rng, 0.3):
            headers["accept"] = OCTETS
        words = "&".join(f"{name}={value}" for name, value in query.items())
        return Sent(method="POST", path=f"/{route}?{words}", body=make(rng, self._dimension), headers=headers)

    def _items(self, media: str, body: bytes) -> Sent:
        path = f"/galleries/{self._gallery}/items"
        return Sent(method="PUT", path=path, body=body, headers={"content-type": media})

    def _dataset(self, rng: Random, format: str, body: bytes) -> Sent:
        form = {"name": "fuzzed", "format": format}
        label = {"npz": "y", "csv": "label", "parquet": "label"}.get(format)
        if label and bodies.chance(rng, 0.9):
            form["label"] = label
        if bodies.chance(rng, 0.15):
            role = pick(rng, ["ranking", "group", "exclude", "label", "points", "text", "unlabelled"])
            form[role] = pick(rng, ["label", "x0", "x0,x1", "nobody", "", "y", "X", "true", "vector", "é"])
        files = {"file": (f"f.{format}", body)}
        if bodies.chance(rng, 0.15):
            form.pop("label", None)
            files["pairs"] = ("pairs.csv", bodies.pairs_csv(rng))
        path = pick(rng, ["/datasets", "/datasets", "/datasets/inspect"])
        if path == "/datasets/inspect":
            form.pop("name")
        return Sent(method="POST", path=path, body=b"", form=form, files=files)

    def _imported(self, rng: Random) -> Sent:
        files = {"file": ("m.zip", bodies.export(rng, self._export))}
        return Sent(method="POST", path="/models", body=b"", form={"name": "imported"}, files=files)


def _is_problem(answer: httpx.Response) -> bool:
    if not answer.headers.get("content-type", "").startswith("application/problem+json"):
        return False
    reported = answer.json()
    return str(reported.get("type", "")).startswith("/problems/") and bool(reported.get("detail"))


def _refuse(word: str) -> Any:
    raise ValueError(f"the answer holds {word}, which is no JSON")
