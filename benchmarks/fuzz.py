"""Requests made from the OpenAPI document: none of them may be answered by a 5xx.

Every operation is asked with each of some odd values in each of its parameters and as its body, with no key and with a
key of each scope. Requests are drawn with a fixed seed.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.common import Claim, Preset, Result
from pairmark.service.cli.operating import opened_keys

SCOPES = (None, "score", "decide", "gallery", "train", "import", "admin")
WORDS: tuple[Any, ...] = (
    "people", "people:1", "..", "\x00", "%2F", "é" * 300, "-1", "1e400", "nan", "null", "", "0", "9" * 40, "true",
)  # fmt: skip
BODIES = (
    b"", b"{", b"null", b"[]", b"[" * 5_000, b'{"left":[NaN],"right":[1e999]}', b"{}" * 9, b"\xff\xfe", b'{"":{}}',
    b'{"model":"people","left":[[1]],"right":[[]]}', b'{"scores":[true]}', b'{"items":[{}]}', b'{"dataset":"people"}',
    b'{"name":"people"}', b'{"name":".."}',
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
        server.upload("people", np.random.default_rng(0).normal(size=(120, 4)), np.repeat(np.arange(40), 3))
        server.train(dataset="people", model="people", learner="metric", promote=True)
        document = server.http.get("/openapi.json").json()
        with server.storage() as (_, _, settings), opened_keys(settings, prepare=False) as keys:
            shown = {scope: {"X-API-Key": keys.create(scope, [scope]).key} for scope in SCOPES if scope}
        for scope in SCOPES:
            statuses = Counter[int]()
            for path, operations in document["paths"].items():
                for method in operations if not path.endswith("/events") else ():
                    for _ in range(60 if preset == "full" else 3):
                        status = asked(
                            server.http, chosen, method, path, operations[method], shown.get(scope, {})
                        )
                        statuses[status] += 1
                        failed[f"{method} {path}"] += status >= 500
            rows.append(
                {
                    "scope": scope or "no key",
                    "requests": statuses.total(),
                    "answered": sum(n for status, n in statuses.items() if status < 300),
                    "5xx": sum(n for status, n in statuses.items() if status >= 500),
                }
            )
    n_failed = failed.total()
    return Result(
        rows=rows,
        claims=[Claim(what="answers of 500 and more", goal="none", measured=n_failed, holds=not n_failed)],
        facts={"failed": {name: n for name, n in failed.items() if n}},
    )


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
    content = {} if method == "get" else {"content": chosen.choice(BODIES)}
    sent = {**headers, "Content-Type": chosen.choice(KINDS)}
    return http.request(method, path, params=query, headers=sent, **content).status_code
