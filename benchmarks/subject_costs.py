"""What decisions about subjects cost: `/match` with several samples a side, and search by templates.

Server CPU of `/match` with 10 + 1 samples against a single pair, both as raw float32; and search of 100,000 subjects by
their templates against FAISS flat on as many vectors of the same width, one query at a time on one core. What several
samples gain is in `benchmarks.subjects`.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks._served import RAW, environment_of, people, request_of, running_server, trained
from benchmarks.common import Claim, Preset, Result, interleaved, ratio
from pairmark.models import Plda
from pairmark.models.core.search.index import SearchLimits
from pairmark.models.core.subjects import SampleSets

SERVED_WIDTH = 128


def run(preset: Preset) -> Result:
    """Quick: 9 and 11 rounds; full: 31 and 41."""
    quick = preset == "quick"
    with threadpool_limits(1):
        served = decision_cost(9 if quick else 31)
        searched = search_cost(11 if quick else 41)
    rows = [
        {
            "what": "/match, 10 + 1 samples",
            "beside": "single pair",
            **_row(served, "10 + 1 samples", "single pair", "us"),
        },
        *(
            {"what": f"search, {name}", "beside": "FAISS flat", **_row(one, "ours", "FAISS flat", "ms")}
            for name, one in searched.items()
        ),
    ]
    return Result(rows=rows, claims=[*served_claims(served), *search_claims(searched)])


def _row(found: dict[str, float], ours: str, theirs: str, unit: str) -> dict[str, Any]:
    scale = 1e-3 if unit == "us" else 1.0
    return {
        "CPU ms": scale * found[f"{ours}, CPU {unit}"],
        "beside it, CPU ms": scale * found[f"{theirs}, CPU {unit}"],
        "ratio": found["ratio"],
    }


def decision_cost(rounds: int) -> dict[str, float]:
    """Server CPU of `/match` for subjects of 10 + 1 samples and for a single pair, in turns."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((11, SERVED_WIDTH)).astype(np.float32)
    query = f"model=plda&fpr=0.2&confidence=0.9&dim={SERVED_WIDTH}"
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        environment = environment_of(folder)
        X, y = people(160, 12, SERVED_WIDTH)
        fixed = {"marginals": "raw", "length_norm": False, "shrink_within": 0.1, "shrink_between": 0.1}
        job = {"learner": "plda", "model": "plda", "params": {**fixed, "n_components": 128}}
        trained(environment, [job], X=X, y=y)
        command = [sys.executable, "-m", "pairmark.service.cli", "serve", "--port"]
        requests = {
            "single pair": request_of(f"/match?{query}", rows[:2].tobytes(), RAW),
            "10 + 1 samples": request_of(f"/match?{query}&n_left=10&left_samples=10", rows.tobytes(), RAW),
        }
        spent: dict[str, list[float]] = {name: [] for name in requests}
        times = 1_000
        with running_server(command, environment, "/readyz") as service:
            for request in requests.values():
                service.ask(request, times // 4)
            for turn in range(rounds):
                for name in list(requests) if turn % 2 == 0 else list(reversed(requests)):
                    before = service.cpu()
                    service.ask(requests[name], times)
                    spent[name].append((service.cpu() - before) / times)
    return {
        "ratio": ratio(spent["10 + 1 samples"], spent["single pair"]),
        **{f"{name}, CPU us": 1e6 * float(np.median(values)) for name, values in spent.items()},
    }


def served_claims(found: dict[str, float]) -> list[Claim]:
    """The goal on decisions."""
    return [
        Claim(
            what="/match: server CPU of 10 + 1 samples over that of a single pair (raw float32)",
            goal="at most 2",
            measured=found["ratio"],
            holds=found["ratio"] <= 2.0,
        )
    ]


def search_cost(rounds: int) -> dict[str, Any]:
    """CPU of one query among 100,000 subjects, against FAISS flat; with equal and with mixed numbers of samples."""
    import faiss

    faiss.omp_set_num_threads(1)
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(300), 8)
    X = (
        random.standard_normal((300, SERVED_WIDTH))[y] + random.standard_normal((y.size, SERVED_WIDTH))
    ).astype(np.float32)
    model = Plda(
        marginals="raw", length_norm=False, shrink_within=0.1, shrink_between=0.1, n_components=SERVED_WIDTH
    ).fit(X, y)
    n = 100_000
    centres = random.standard_normal((n, SERVED_WIDTH), dtype=np.float32)
    found: dict[str, Any] = {}
    queries = centres[:64] + random.standard_normal((64, SERVED_WIDTH), dtype=np.float32)
    for name, counts in (("3 samples each", np.full(n, 3)), ("1 to 5 samples", random.integers(1, 6, n))):
        rows = np.repeat(centres, counts, axis=0)
        rows += random.standard_normal(rows.shape, dtype=np.float32)
        index = model._indexed_subjects(SampleSets.of_rows(rows, counts), "plda")
        flat = faiss.IndexFlatIP(index.own.vectors.shape[1])
        flat.add(index.own.vectors)
        latent = model.transform(queries)
        brute = model._subject_score(
            SampleSets.of_rows(queries[:1]), SampleSets.of_rows(rows, counts), "plda"
        )
        best = np.lexsort((np.arange(n), -brute))[:10]
        ids, scores = model._top_k_subjects(SampleSets.of_rows(queries[:1]), index, SearchLimits(10))
        if ids[0].tolist() != best.tolist() or scores[0].tobytes() != brute[best].tobytes():
            raise RuntimeError("the search differs from scoring every subject")

        def ours(index: Any = index) -> None:
            for at in range(16):
                model._top_k_subjects(SampleSets.of_rows(queries[at : at + 1]), index, SearchLimits(10))

        def theirs(flat: Any = flat, latent: np.ndarray = latent) -> None:
            for at in range(16):
                flat.search(latent[at : at + 1], 10)

        timed = interleaved({"ours": ours, "FAISS flat": theirs}, rounds=rounds)
        found[name] = {
            "ratio": ratio(timed["ours"].cpu, timed["FAISS flat"].cpu),
            "ours, CPU ms": 1e3 * timed["ours"].median_cpu / 16,
            "FAISS flat, CPU ms": 1e3 * timed["FAISS flat"].median_cpu / 16,
        }
    return found


def search_claims(found: dict[str, Any]) -> list[Claim]:
    """The goal on searches."""
    return [
        Claim(
            what=f"search of 100,000 subjects, {name}: CPU over that of FAISS flat, one query at a time",
            goal="at most 1.2",
            measured=one["ratio"],
            holds=one["ratio"] <= 1.2,
        )
        for name, one in found.items()
    ]
