"""Run by test_mishaps: forks writers of a gallery or of links, kills them without a word, then says what is there.

One process imports everything once, since starting costs more than writing.
"""

import itertools
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pairmark.models import MetricSimilarity  # noqa: E402
from pairmark.schemas.links import EntitiesEdit, ResolveRequest  # noqa: E402
from pairmark.service.blobs import open_blobs  # noqa: E402
from pairmark.service.db import Database, open_database  # noqa: E402
from pairmark.service.errors import InvalidInput  # noqa: E402
from pairmark.service.galleries import live_gallery as live_module  # noqa: E402
from pairmark.service.galleries.galleries import Galleries  # noqa: E402
from pairmark.service.galleries.rows import RowErrors  # noqa: E402
from pairmark.service.jobs.queue import JobQueue  # noqa: E402
from pairmark.service.links.folders import LinkFolders  # noqa: E402
from pairmark.service.links.links import Links  # noqa: E402
from pairmark.service.names import EVERY_NAME  # noqa: E402
from pairmark.service.runtime.operating_points import OperatingPoints  # noqa: E402
from pairmark.service.settings import Settings  # noqa: E402
from tests.service.conftest import of_all_pages  # noqa: E402
from tests.service.galleries.conftest import add_model, rows, served  # noqa: E402


def killed(rounds: int, write: Callable[[int, int], None], most_lines: int) -> Iterator[list[str]]:
    """What each writer said before it was killed at a random moment.

    Parameters
    ----------
    write : given the number of the round and a descriptor to say on what is written; never returns.
    most_lines : after one line, or up to so many, the moment may have come.
    """
    chance = random.Random(1)
    for turn in range(rounds):
        reading, reported = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                write(turn, reported)
            finally:
                os._exit(1)
        os.close(reported)
        with os.fdopen(reading) as lines:
            said = [*itertools.islice(lines, chance.randint(1, most_lines))]
            time.sleep(chance.random() * 0.06)
            os.kill(child, signal.SIGKILL)
            yield [line.strip() for line in [*said, *lines] if line.endswith("\n")]
        os.waitpid(child, 0)


def vector(number: int) -> np.ndarray:
    """The vector that an id must have."""
    return np.random.default_rng(number).normal(size=8).astype(np.float32)


def write_items(url: str, settings: Settings, estimator: MetricSimilarity, turn: int, reported: int) -> None:
    """Write for ever: single rows or sixty at a time, some erased again, blocks made now and then."""
    galleries = Galleries(Database(url), settings)
    size = 1 if turn % 2 else 60
    # Ids of a round start at its number times this.
    for number in itertools.count(turn * 1_000_000, size):
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


def gallery(rounds: int, url: str, home: str) -> dict[str, Any]:
    """Run the rounds; returns what was acknowledged beside what is there."""
    live_module.MEMTABLE_ROWS, live_module.SEGMENT_ROWS = 20, 200
    settings = Settings(home=Path(home), database_url=url)
    estimator = MetricSimilarity().fit(
        np.random.default_rng(0).normal(size=(40, 8)), np.repeat(np.arange(8), 5)
    )
    database = Database(url)
    add_model(database, 1)
    first = Galleries(database, settings)
    first.put("g", served(estimator))
    first.close()
    database.dispose()
    alive: set[int] = set()
    erased: set[int] = set()
    for said in killed(rounds, lambda *turn: write_items(url, settings, estimator, *turn), 1):
        for line in said:
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
    items = of_all_pages(lambda cursor: galleries.items("g", 500, cursor, subject=None, vectors=True))
    found = {int(item.id[1:]): item.vector or [] for item in items}
    names = {hit.id for hit in view.search(np.ones((1, 8), np.float32), 10**6)[0]}
    galleries.close()
    return {
        "acknowledged": len(alive),
        "missing": sorted(alive - set(found)),
        "risen": sorted(erased & set(found)),
        "half": [one for one, values in found.items() if values != vector(one).tolist()],
        "counted": state.items,
        "found": len(found),
        "viewed": view.n_items,
        "same": names == {f"i{one}" for one in found},
    }


def links_here() -> tuple[Links, LinkFolders]:
    settings = Settings()
    db, blobs = open_database(settings), open_blobs(settings)
    links = Links(db, blobs, JobQueue(db, settings), settings, OperatingPoints(lambda _: None))
    return links, LinkFolders(db, blobs)


def add_records(link_id: str, turn: int, reported: int) -> None:
    """Put records in for ever, every one twice; merge and read now and then."""
    links, folders = links_here()
    for number in itertools.count():
        name = f"k{turn}-{number}"
        record = {"last": f"kill{number % 3}er", "first": f"name{turn}", "born": "1970-01-02"}
        for _ in range(2):
            links.resolve(link_id, ResolveRequest(record=record, add=True, id=name), EVERY_NAME)
        os.write(reported, f"{name}\n".encode())
        if number % 5 == 4 and turn % 2:
            # They may be one already.
            with suppress(InvalidInput):
                links.edit(link_id, EntitiesEdit(merge=[f"k{turn}-{number - 4}", name]), EVERY_NAME)
        if number % 7 == 6:
            folders.rewrite(link_id, EVERY_NAME)


def links(rounds: int, link_id: str) -> dict[str, Any]:
    """Run the rounds; returns what was acknowledged beside what is there."""
    acknowledged = [*itertools.chain(*killed(rounds, lambda *turn: add_records(link_id, *turn), 12))]
    service, folders = links_here()
    names, members = folders.read(
        link_id,
        EVERY_NAME,
        lambda results: (
            results.rows("SELECT id FROM records"),
            Counter(results.rows("SELECT side, record FROM entities")),
        ),
    )
    ids = Counter(row[0] for row in names)
    # What is there can be added again, and is the same.
    record = {"last": "kill0er", "first": "name0", "born": "1970-01-02"}
    again = service.resolve(link_id, ResolveRequest(record=record, add=True, id="k0-0"), EVERY_NAME)
    return {
        "acknowledged": len(acknowledged),
        "missing": [name for name in acknowledged if not ids[name]],
        "twice": [name for counts in (ids, members) for name, n in counts.items() if n > 1],
        "records": ids.total(),
        "counted": service.get(link_id, EVERY_NAME).records,
        "again": again.added,
    }


if __name__ == "__main__":
    what, n_rounds, *words = sys.argv[1:]
    print(json.dumps({"gallery": gallery, "links": links}[what](int(n_rounds), *words)))
