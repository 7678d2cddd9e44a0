"""Requests made from the OpenAPI document: none of them may be answered by a 5xx.

Every operation is asked with each of some odd values in each of its parameters and as its body, with no key and with a
key of each scope. Requests are drawn with a fixed seed.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.common import Claim, Preset, Result
from pairmark.service.cli.keys import opened_keys

SCOPES = (None, "score", "decide", "gallery", "train", "import", "admin")
WORDS: tuple[Any, ...] = (
    "people", "people:1", "..", "\x00", "%2F", "é" * 300, "-1", "1e400", "nan", "null", "", "0", "9" * 40, "true",
)  # fmt: skip
BODIES = (
    b"", b"{", b"null", b"[]", b"[" * 5_000, b'{"left":[NaN],"right":[1e999]}', b"{}" * 9, b"\xff\xfe", b'{"":{}}',
    b'{"model":"people","left":[[1]],"right":[[]]}', b'{"scores":[true]}', b'{"items":[{}]}', b'{"dataset":"people"}',
)  # fmt: skip
KINDS = (
    "application/json",
    "application/octet-stream",
    "application/x-npz",
    "multipart/form-data",
    "text/csv",
)


def run(preset: Preset) -> Result:
    """60 requests of each operation with each key; ``quick``: 3."""
    from tests.serving import serving

    chosen, rows, failed = random.Random(0), [], Counter[str]()
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "home", f"sqlite:///{folder}/fuzz.db") as server,
    ):
        X = np.random.default_rng(0).normal(size=(120, 4))
        server.upload("people", X, np.repeat(np.arange(40), 3))
        server.train(dataset="people", model="people", learner="metric", promote=True)
        document = server.http.get("/openapi.json").json()
        with server.storage() as (_, _, settings), opened_keys(settings, prepare=False) as keys:
            made = {scope: keys.create(scope, [scope]).key for scope in SCOPES if scope is not None}
        for scope in SCOPES:
            statuses, began = Counter[int](), time.perf_counter()
            headers = {} if scope is None else {"X-API-Key": made[scope]}
            for path, operations in document["paths"].items():
                for method in operations if not path.endswith("/events") else ():
                    for _ in range(60 if preset == "full" else 3):
                        status = asked(server.http, chosen, method, path, operations[method], headers)
                        statuses[status] += 1
                        failed[f"{method} {path}"] += status >= 500
            row: dict[str, Any] = {"scope": scope or "no key", "requests": statuses.total()}
            row |= {"answered": sum(n for status, n in statuses.items() if status < 300)}
            row |= {"5xx": sum(n for status, n in statuses.items() if status >= 500)}
            rows.append(row | {"s": round(time.perf_counter() - began, 1)})
    n_failed = failed.total()
    claims = [Claim(what="answers of 500 and more", goal="none", measured=n_failed, holds=not n_failed)]
    return Result(rows=rows, claims=claims, facts={"failed": {name: n for name, n in failed.items() if n}})


def asked(
    http: httpx.Client, chosen: random.Random, method: str, path: str, operation: Any, headers: dict[str, str]
) -> int:
    """The status of one request with odd values."""
    query = {}
    for parameter in operation.get("parameters", ()):
        word = chosen.choice(WORDS)
        if parameter["in"] == "path":
            path = path.replace(
                f"{{{parameter['name']}}}", httpx.QueryParams({"x": word or "a"}).__str__()[2:]
            )
        elif parameter["in"] == "query" and chosen.random() < 0.5:
            query[parameter["name"]] = word
    body = chosen.choice([*BODIES, json.dumps({"name": chosen.choice(WORDS)}).encode()])
    content = {} if method == "get" else {"content": body}
    headers = {**headers, "Content-Type": chosen.choice(KINDS)}
    return http.request(method, path, params=query, headers=headers, **content).status_code
