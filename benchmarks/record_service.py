"""What tables of records cost a user and a server: searches of many records, a decision, the first four commands."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks._customers import COLUMNS, customers, entered_again, twice, write_messy
from benchmarks._served import JSON, environment_of, request_of, running_server
from benchmarks.common import Claim, Preset, Result
from benchmarks.http_overhead import DIMENSION, train
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.schema import Records


def run(preset: Preset) -> Result:
    """1,000,000 records and 5,000 people; ``quick``: 20,000 and 500."""
    full = preset == "full"
    facts = {
        "search": search(*(1_000_000, 500) if full else (20_000, 100)),
        "match": decision(*(15, 400) if full else (5, 100)),
        "four commands": journey(*(5_000, "0.01") if full else (500, "0.05")),
    }
    found, cost, steps = facts.values()
    goals = [
        (f"one search in {found['records']:,} records, p50 CPU ms", "at most", 20.0, found["p50 CPU ms"]),
        ("recall of a search's candidates", "at least", 0.99, found["recall of candidates"]),
        ("/match of two records of ten fields, times the CPU of two vectors", "at most", 2.0, cost["ratio"]),
        ("four commands from a messy CSV to a decision, CPU seconds", "at most", 120.0, steps["CPU seconds"]),
    ]
    claims = [
        Claim(
            what=what,
            goal=f"{side} {goal:g}",
            measured=got,
            holds=got >= goal if side == "at least" else got <= goal,
        )
        for what, side, goal, got in goals
    ]
    rows = [
        {"part": part, "measure": measure, "value": value}
        for part, measures in facts.items()
        for measure, value in measures.items()
    ]
    return Result(rows=rows, claims=claims, facts={"load_average": os.getloadavg()[0]})


def model_of(random: np.random.Generator, n: int = 1_000) -> RecordSimilarity:
    """A model with its default settings, of other customers than those that it is asked about."""
    table, who = twice(n, random)
    return RecordSimilarity(columns=COLUMNS, n_pairs=20_000, random_state=0).fit(table, who)


def search(n: int, n_queries: int) -> dict[str, float]:
    """Customers entered again, looked for among n: wall and CPU time of a search, recall of its candidates, and how
    often the customer comes first. One thread, one block, without HTTP."""
    random = np.random.default_rng(3)
    model = model_of(random)
    table = customers(n, random)
    rows = random.choice(n, n_queries, replace=False)
    queries: Records = model._validated(entered_again(table, rows, random), "queries")
    started = time.process_time()
    index = model.index(table)
    built = time.process_time() - started
    wall, cpu, hits, first = [], [], 0, 0
    for at, row in enumerate(rows):
        query = queries[at : at + 1]
        begun, begun_cpu = time.perf_counter(), time.process_time()
        [(nominated, _)] = model.candidates(query, model.n_candidates or n, [index], [None])
        scores = model._score_rows(query, index, nominated[0])
        best = nominated[0][int(scores[0].argmax())] if nominated.size else -1
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - begun_cpu)
        hits += row in nominated
        first += int(best == row)
    return {
        "records": n,
        "p50 ms": round(1_000 * statistics.median(wall), 2),
        "p50 CPU ms": round(1_000 * statistics.median(cpu), 2),
        "p99 CPU ms": round(1_000 * float(np.quantile(cpu, 0.99)), 2),
        "recall of candidates": hits / n_queries,
        "comes first": first / n_queries,
        "CPU s to index": round(built, 1),
    }


def decision(rounds: int, times: int) -> dict[str, float]:
    """Server CPU of `/match`: two records of ten fields, and two vectors of 128 numbers, in turns."""
    random = np.random.default_rng(4)
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        environment = environment_of(folder)
        train(environment)
        table, who = twice(400, random)
        file = Path(folder) / "customers.csv"
        names = [*table, "who"]
        lines = zip(*table.values(), who.tolist(), strict=True)
        file.write_text("\n".join(";".join(map(str, line)) for line in [names, *lines]))
        columns = [f"--column={name}:{kind}" for name, kind in COLUMNS.items()]
        command(environment, "datasets", "add", "customers", str(file), "--column=who:identity", *columns)
        command(
            environment, "train", "--dataset", "customers", "--model", "customers", "--param", "n_pairs=10000"
        )
        left, right = ({name: table[name][row] for name in table} for row in (0, 400))
        for record in (left, right):
            record |= {"member": record["member"] == "yes", "spent": float(record["spent"])}  # type: ignore[dict-item]
        sides = [{name: cell for name, cell in record.items() if cell != ""} for record in (left, right)]
        vectors = random.standard_normal((2, DIMENSION)).astype(np.float32).tolist()
        requests = {
            kind: request_of(
                "/match?fpr=0.2&confidence=0.9",
                json.dumps({"model": model, "left": pair[0], "right": pair[1]}).encode(),
                JSON,
            )
            for kind, model, pair in (("records", "customers", sides), ("vectors", "forest", vectors))
        }
        spent: dict[str, list[float]] = {kind: [] for kind in requests}
        serve = [sys.executable, "-m", "pairmark.service.cli", "serve", "--port"]
        with running_server(serve, environment, "/readyz") as service:
            for request in requests.values():
                service.ask(request, times // 4)
            for turn in range(rounds):
                for kind in list(requests) if turn % 2 == 0 else list(reversed(requests)):
                    before = service.cpu()
                    service.ask(requests[kind], times)
                    spent[kind].append((service.cpu() - before) / times)
    medians = {f"{kind}, CPU us": round(1e6 * statistics.median(each), 1) for kind, each in spent.items()}
    shares = [a / b for a, b in zip(spent["records"], spent["vectors"], strict=True)]
    return {**medians, "ratio": round(statistics.median(shares), 3)}


def journey(n: int, fpr: str) -> dict[str, float]:
    """Wall and CPU seconds of the four commands from a messy CSV of ``n`` people to a decision about two records."""
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        environment, file = environment_of(folder), Path(folder) / "people.csv"
        write_messy(file, n, np.random.default_rng(5))
        sides = [
            {"given": "karalo", "surname": "mirten", "born": "03.05.1980", "postcode": "20832"},
            {"given": "karaxo", "surname": "mirten", "postcode": "20832"},
        ]
        for name, record in zip(("a.json", "b.json"), sides, strict=True):
            (Path(folder) / name).write_text(json.dumps(record))
        commands = [
            ["datasets", "inspect", str(file), "--table", "--column", "Customer No:identity"],
            ["datasets", "add", "people", str(file), "--table", "--column", "Customer No:identity"],
            ["train", "--dataset", "people", "--model", "people"],
            ["match", "--left", f"{folder}/a.json", "--right", f"{folder}/b.json", "--fpr", fpr],
        ]
        begun, before = time.perf_counter(), _children()
        told: dict[str, float] = {}
        for words in commands:
            started = time.perf_counter()
            command(environment, *words)
            told[" ".join(words[:2]) if words[0] == "datasets" else words[0]] = round(
                time.perf_counter() - started, 1
            )
        return {
            **told,
            "seconds": round(time.perf_counter() - begun, 1),
            "CPU seconds": round(_children() - before, 1),
        }


def command(environment: dict[str, str], *words: str) -> str:
    """What a command prints; `RuntimeError` with what it says where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pairmark.service.cli", *words],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"pairmark {' '.join(words)}: {done.stderr[-2_000:]}")
    return done.stdout


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system
