"""Recall of links by judged records: what no rule made a candidate is missed, and no look says too much."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.linking.recall import N_SHOWN, draw_records, recall_so_far
from pairmark.models.records.compare import LinkField
from tests.models.linking.test_link_classes import KINDS, homes, linked


def test_partners_that_no_link_has_are_among_those_shown_and_count_as_missed() -> None:
    who, rows = homes("couple", 0.02)
    linking, _ = linked(rows, [LinkField(name, of) for name, of in KINDS.items()])
    connection = linking.connection
    lost = {first for (first,) in connection.execute("SELECT DISTINCT first FROM members").fetchall()[::3]}
    connection.execute(f"DELETE FROM members WHERE first IN ({', '.join(map(str, lost))})")
    partners = {
        at: [other for other in range(len(who)) if who[other] == who[at] and other != at]
        for at in range(len(who))
    }
    joined = dict(connection.execute("SELECT row, first FROM members").fetchall())
    true = float(
        np.mean([np.mean([at in joined and joined[at] == joined.get(other) for other in others])
                 for at, others in partners.items() if others])
    )  # fmt: skip
    size, drawn = draw_records(
        connection, linking.source_fields, linking.sides, len(rows), np.random.default_rng(1)
    )
    assert len(rows) - 3 < size == len({each.row for each in drawn})
    assert all(len(each.others) <= N_SHOWN + 1 for each in drawn)
    answers = [
        [(is_linked, who[other] == who[each.row]) for other, is_linked in each.others] for each in drawn
    ]
    everything = recall_so_far(size, answers, 0.5, 0.95)
    assert everything.recall == pytest.approx(true, abs=0.01)
    assert 0.6 < true < 0.75
    looks = [recall_so_far(size, answers[:n], 0.9, 0.95) for n in (0, 50, 100, 300)]
    assert [look.bound <= true for look in looks] == [True] * 4
    assert looks[0].bound == 0
    assert looks[0].expected_more
    assert looks[1].bound < looks[3].bound
    assert not looks[3].enough
    # What nobody can tell makes no bound higher.
    doubtful = [[(is_linked, None) for is_linked, _ in others] for others in answers[:100]]
    assert recall_so_far(size, doubtful, 0.9, 0.95).bound == 0
