"""Imports that wait until they are used."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_serving_does_not_load_what_it_never_calls() -> None:
    said = python(
        """
        import sys
        import typer, uvicorn
        from pairmark.service.cli.listening import answer
        uvicorn.Server.run = lambda server, sockets: server.config.load()
        try: answer(None, workers=1)
        except typer.Exit: pass
        from pairmark.models.registry import KINDS
        waiting = ("scipy.stats._stats_py", "scipy.optimize", "narwhals.dataframe", "duckdb", "alembic", "jinja2",
                   "matplotlib", "httpx", "psycopg", "sklearn.linear_model", "sklearn.preprocessing",
                   *(f"pairmark.models.{place.split('.')[0]}.spec" for place in KINDS.values()))
        print([name for name in waiting if name in sys.modules])
        """
    )
    assert said.strip() == "[]"


def test_a_deferred_module_is_whole_when_it_is_used() -> None:
    said = python(
        """
        import threading
        from pairmark.service.deferred import defer_unused; defer_unused()
        import scipy.stats
        from scipy.stats import norm
        found = []
        threads = [threading.Thread(target=lambda: found.append(scipy.stats.rankdata([3, 1, 2])[0])) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        import scipy.stats.distributions
        namespace = {}
        exec("from scipy.stats import *", namespace)
        print(norm.cdf(0.0), set(found), scipy.stats.__spec__.name, hasattr(scipy.stats, "no_such_name"))
        print(namespace["spearmanr"] is scipy.stats.spearmanr)
        """
    )
    assert said.split("\n")[:2] == ["0.5 {np.float64(3.0)} scipy.stats False", "True"]


def test_threads_that_meet_at_the_first_use_all_get_the_whole_module() -> None:
    said = python(
        """
        import threading
        from pairmark.service.deferred import defer_unused; defer_unused()
        import scipy.stats
        ready, found = threading.Barrier(8), []
        def use():
            ready.wait()
            found.append(float(scipy.stats.norm.ppf(0.5)))
        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(found)
        """
    )
    assert said.strip() == str([0.0] * 8)
