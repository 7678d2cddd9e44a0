"""Run by test_mishaps: forks writers and kills them without a word, then says what is there.

One process imports everything once, since starting costs more than writing.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pairmark.models import MetricSimilarity  # noqa: E402
from pairmark.service.db import Database  # noqa: E402
from pairmark.service.galleries import live_gallery as live_module  # noqa: E402
from pairmark.service.galleries.galleries import Galleries  # noqa: E402
from pairmark.service.galleries.rows import RowErrors  # noqa: E402
from pairmark.service.settings import Settings  # noqa: E402
from tests.service.galleries.gallery_cases import add_model, rows, served  # noqa: E402

WIDTH = 8
TURN = 1_000_000
"""Ids of a round start at its number times this."""


def vector(number: int) -> np.ndarray:
    """The vector that an id must have."""
    return np.random.default_rng(number).normal(size=WIDTH).astype(np.float32)


def write(url: str, settings: Settings, estimator: MetricSimilarity, turn: int, reported: int) -> None:
    """Write for ever: single rows or sixty at a time, some erased again, blocks made now and then."""
    galleries = Galleries(Database(url), settings)
    size = 1 if turn % 2 else 60
    number = turn * TURN
    while True:
        items = {f"i{number + at}": (vector(number + at), None, None) for at in range(size)}
        galleries.write("g", [rows(items)], RowErrors(), None)
        os.write(reported, "".join(f"{number + at}\n" for at in range(size)).encode())
        if number % 2 == 0 and size == 1:
            # Announced before, since nobody knows of an erasure that was killed whether it was done.
            os.write(reported, f"?{number}\n".encode())
            galleries.erase("g", id=f"i{number}")
            os.write(reported, f"-{number}\n".encode())
        if number % 7 == 0:
            state = galleries.state("g")
            galleries.views.live(state, estimator).view(state.seq)
        number += size


def main(url: str, home: str, rounds: int) -> None:
    """Run the rounds and print what was acknowledged beside what is there."""
    live_module.MEMTABLE_ROWS, live_module.SEGMENT_ROWS = 20, 200
    settings = Settings(home=Path(home), database_url=url)
    rng = np.random.default_rng(0)
    estimator = MetricSimilarity().fit(rng.normal(size=(40, WIDTH)), np.repeat(np.arange(8), 5))
    database = Database(url)
    add_model(database, 1)
    first = Galleries(database, settings)
    first.put("g", served(estimator))
    first.close()
    database.dispose()
    random.seed(1)
    alive: set[int] = set()
    erased: set[int] = set()
    for turn in range(rounds):
        read, reported = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            write(url, settings, estimator, turn, reported)
        os.close(reported)
        said = os.read(read, 1 << 16)
        time.sleep(random.random() * 0.06)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while piece := os.read(read, 1 << 16):
            said += piece
        os.close(read)
        for line in said.decode().split("\n")[:-1]:
            number = int(line.lstrip("?-"))
            if line[0] in "?-":
                alive.discard(number)
            else:
                alive.add(number)
            if line[0] == "-":
                erased.add(number)
    galleries = Galleries(Database(url), settings)
    state = galleries.state("g")
    view = galleries.views.live(state, estimator).view(state.seq)
    found: dict[int, list[float]] = {}
    cursor = None
    while True:
        page = galleries.items("g", 500, cursor, subject=None, vectors=True)
        found.update({int(item.id[1:]): item.vector or [] for item in page.items})
        cursor = page.next_cursor
        if cursor is None:
            break
    names = {hit.id for hit in view.search(np.ones((1, WIDTH), np.float32), 10**6)[0]}
    galleries.close()
    print(
        json.dumps(
            {
                "acknowledged": len(alive),
                "erased": len(erased),
                "missing": sorted(alive - set(found)),
                "risen": sorted(erased & set(found)),
                "half": [one for one, values in found.items() if values != vector(one).tolist()],
                "counted": state.items,
                "found": len(found),
                "viewed": view.n_items,
                "same": names == {f"i{one}" for one in found},
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
