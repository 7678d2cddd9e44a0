"""Run by test_mishaps: forks processes that put records into links, merge and read them, and kills them without a
word; then says what is there. One process imports everything once, since starting costs more than adding."""

import json
import os
import random
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pairmark.schemas.links import EntitiesEdit, ResolveRequest  # noqa: E402
from pairmark.service.blobs import open_blobs  # noqa: E402
from pairmark.service.db import open_database  # noqa: E402
from pairmark.service.errors import Conflict, InvalidInput  # noqa: E402
from pairmark.service.jobs.queue import JobQueue  # noqa: E402
from pairmark.service.links.folders import LinkFolders  # noqa: E402
from pairmark.service.links.links import Links  # noqa: E402
from pairmark.service.names import EVERY_NAME  # noqa: E402
from pairmark.service.runtime.operating_points import OperatingPoints  # noqa: E402
from pairmark.service.settings import Settings  # noqa: E402


def links_here() -> tuple[Links, LinkFolders]:
    settings = Settings()
    db, blobs = open_database(settings), open_blobs(settings)
    links = Links(db, blobs, JobQueue(db, settings), settings, OperatingPoints(lambda _: None))
    return links, LinkFolders(db, blobs)


def add(link_id: str, turn: int, reported: int) -> None:
    """Put records in for ever, every one twice; merge and read now and then."""
    (links, folders), number = links_here(), 0
    while True:
        name = f"k{turn}-{number}"
        record = {"last": f"kill{number % 3}er", "first": f"name{turn}", "born": "1970-01-02"}
        for _ in range(2):
            links.resolve(link_id, ResolveRequest(record=record, add=True, id=name), EVERY_NAME)
        os.write(reported, f"{name}\n".encode())
        number += 1
        if number % 5 == 0 and turn % 2:
            # They may be one already.
            with suppress(InvalidInput):
                links.edit(link_id, EntitiesEdit(merge=[f"k{turn}-{number - 5}", name]), EVERY_NAME)
        if number % 7 == 0:
            folders.rewrite(link_id, EVERY_NAME)


def main(link_id: str, rounds: int) -> None:
    """Run the rounds and print what was acknowledged beside what is there."""
    random_ = random.Random(0)
    acknowledged: list[str] = []
    for turn in range(rounds):
        reading, reported = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                add(link_id, turn, reported)
            finally:
                os._exit(1)
        os.close(reported)
        with os.fdopen(reading) as lines:
            for line, _ in zip(lines, range(random_.randint(1, 12)), strict=False):
                acknowledged.append(line.strip())
            os.kill(child, signal.SIGKILL)
            acknowledged += [line.strip() for line in lines if line.endswith("\n")]
        os.waitpid(child, 0)
    links, folders = links_here()
    rows, members = folders.read(
        link_id,
        EVERY_NAME,
        lambda results: (
            results.rows("SELECT id FROM records"),
            Counter(results.rows("SELECT side, record FROM entities")),
        ),
    )
    ids = Counter(row[0] for row in rows)
    # What is there can be added again, and is the same.
    again = links.resolve(
        link_id,
        ResolveRequest(
            record={"last": "kill0er", "first": "name0", "born": "1970-01-02"}, add=True, id="k0-0"
        ),
        EVERY_NAME,
    )
    print(
        json.dumps(
            {
                "acknowledged": len(acknowledged),
                "missing": [name for name in acknowledged if not ids[name]],
                "twice": [name for name, n in ids.items() if n > 1]
                + [key for key, n in members.items() if n > 1],
                "records": ids.total(),
                "counted": links.get(link_id, EVERY_NAME).records,
                "again": again.added,
            }
        )
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except Conflict as error:
        sys.exit(str(error))
