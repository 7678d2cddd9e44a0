"""Recall of links by judging records: drawn at random, each held against its nearest in all tables, whatever rules say.

A record's partners are those of its own links and of its `N_SHOWN` nearest that a person says are the same; how many of
them its links have is averaged over records (`pairmark.models.reviews.evidence.recall_bound`). So what no rule made a
candidate counts as missed; a partner that is neither linked nor among the nearest is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pairmark.models.linking.sides import Sides
from pairmark.models.linking.texts import Terms, read_texts
from pairmark.models.records.compare import LinkField
from pairmark.models.reviews.evidence import expected_records, recall_bound

if TYPE_CHECKING:
    import duckdb

N_SHOWN: Final = 5
"""Nearest records that a drawn one is held against."""


class DrawnRecord(NamedTuple):
    """A record to judge: its ``row``, and the rows that it is held against with whether each is linked with it."""

    row: int
    others: tuple[tuple[int, bool], ...]


def draw_records(
    connection: duckdb.DuckDBPyConnection,
    fields: Sequence[LinkField],
    sides: Sides,
    n: int,
    random: np.random.Generator,
) -> tuple[int, list[DrawnRecord]]:
    """Draw records of tables that `Linking.run` has linked, to be judged for the recall of the links.

    Parameters
    ----------
    connection, fields, sides : of the run: its tables ``source``, ``hashes`` and ``members`` are read.
    n : records to draw, at most. random : nobody else may know its seed, or draws can be foreseen.

    Returns
    -------
    How many records there are to draw from (those with a cell that equal no earlier one of their table), and the drawn
    ones. One that has no others has no partner either: it counts without being shown.
    """
    rows = connection.execute("SELECT row FROM hashes ORDER BY row").fetchnumpy()["row"].astype(np.int64)
    drawn = random.permutation(rows.size)[:n]
    is_alone = np.isin(np.arange(len(sides.sizes)), sides.apart)
    terms = Terms.of(*read_texts(connection, fields), drawn)
    tables = sides.side_of(np.arange(sides.n_rows))
    near = terms.nearest(drawn, tables[rows], is_alone, N_SHOWN)
    entities = connection.execute(
        "SELECT row, list(row) OVER (PARTITION BY first) FROM members SEMI JOIN hashes USING (row)"
    )
    members: dict[int, list[int]] = dict(entities.fetchall())
    records = []
    for row, nearest in zip(rows[drawn].tolist(), near, strict=True):
        shown = {
            other: True
            for other in sorted(members.get(row, []))
            if other != row and not (tables[other] == tables[row] and is_alone[tables[row]])
        }
        for other in rows[nearest[nearest >= 0]].tolist():
            shown.setdefault(other, False)
        records.append(DrawnRecord(row, tuple(shown.items())))
    return int(rows.size), records


class KnownRecall(NamedTuple):
    """What judged records say: how many count, what share of their partners is linked (NaN: none has one), the
    ``bound`` that recall is undercut by with probability 1 - confidence at most, whether that is enough, and about how
    many more records are expected to make it so (None: nobody knows)."""

    judged: int
    recall: float
    bound: float
    enough: bool
    expected_more: int | None

    def facts(self) -> dict[str, Any]:
        """Its members as JSON has them."""
        return {**self._asdict(), "recall": None if np.isnan(self.recall) else self.recall}


def recall_so_far(
    size: int, answers: Sequence[Sequence[tuple[bool, bool | None]]], at_least: float, confidence: float
) -> KnownRecall:
    """The recall that judgements of drawn records show, at any look, however many there will be.

    Parameters
    ----------
    size : records that were drawn from, as `draw_records` has it.
    answers : of each record in the order of the draws, up to the first that is not judged yet: whether each of its
        others is linked with it, and what a person said, that they are the same or not. None, nobody could tell, counts
        against the recall: as another thing where they are linked, and as the same where they are not.
    """
    linked_shares = []
    for others in answers:
        partners = [linked for linked, same in others if same or (same is None and not linked)]
        linked_shares.append(float(np.mean(partners)) if partners else np.nan)
    bound = recall_bound(size, linked_shares, confidence)
    shares = np.array(linked_shares)[~np.isnan(linked_shares)] if linked_shares else np.empty(0)
    is_enough = bound >= at_least
    expected_more = 0 if is_enough else expected_records(size, linked_shares, at_least, confidence)
    recall = float(shares.mean()) if shares.size else float("nan")
    return KnownRecall(len(linked_shares), recall, bound, is_enough, expected_more)
