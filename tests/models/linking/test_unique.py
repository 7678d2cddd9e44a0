"""Links to a register without duplicates."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from benchmarks._linked_people import people
from pairmark.models.linking.engine import Linking
from pairmark.models.linking.unique import expected_links
from pairmark.models.records.compare import LinkField


def linked(seed, doubles=0.0, n=400):
    """Half of n records have a partner in a register of n, whose rows are alike by chance as strangers are."""
    random = np.random.default_rng(seed)
    chance, true = random.normal(0, 1, n), random.normal(4, 1, n)
    nulls = np.where(random.random(n) < doubles, random.normal(4, 1, n), random.normal(0, 1, n))
    has_partner = np.arange(n) < n // 2
    query = np.concatenate([np.arange(n), np.arange(n)[has_partner]])
    score = np.concatenate([chance, true[has_partner]])
    found = expected_links(query, score, n, nulls, 0.05, likely=2.5)
    false = found.is_link[:n].sum()
    return false / max(found.is_link.sum(), 1), found.is_link[n:].mean(), found.doubles


def test_the_mean_share_of_false_links_is_what_was_asked_for():
    false, recall, doubles = np.mean([linked(seed) for seed in range(100)], axis=0)
    assert 0.01 < false < 0.05
    assert recall > 0.9
    assert doubles < 0.01


def test_duplicates_of_the_register_are_told_and_cost_links_not_truth():
    false, recall, doubles = np.mean([linked(seed, 0.1) for seed in range(50)], axis=0)
    assert false < 0.05
    assert recall < 0.5
    assert doubles > 0.05


@pytest.mark.parametrize("n_candidates", [0, 1])
def test_few_candidates_are_answered(n_candidates):
    found = expected_links(np.arange(n_candidates), np.ones(n_candidates), 3, np.full(20, -np.inf), 0.5, 0.5)
    assert found.is_link.sum() == n_candidates
    assert found.cut == (1.0 if n_candidates else np.inf)


def test_people_are_linked_to_a_register_at_the_share_that_was_asked_for():
    people_of, columns = people(3_000, "dependent", seed=1)
    who = np.array(people_of)
    once = np.unique(who, return_index=True)[1]
    again = np.setdiff1d(np.arange(who.size), once)
    # Half of the people who are asked about are in the register.
    register, rows = once[::2], np.concatenate([once[::2], again])
    connection = duckdb.connect()
    cells = {f"c{at}": np.array(of, dtype=object)[rows] for at, of in enumerate(columns.values())}
    connection.register("given", {"row": np.arange(rows.size, dtype=np.int32), **cells})
    connection.execute("CREATE TABLE source AS SELECT * FROM given")
    kinds = dict(
        zip(
            columns,
            ("given", "surname", "street", "city", "postcode", "place", "date", "phone"),
            strict=False,
        )
    )
    fields = [LinkField(name, kinds[name]) for name in columns]
    sizes = [register.size, again.size]
    linking = Linking(connection, fields, sizes, unique=[0], expected=0.05, budget=50)
    linking.run()
    a, b = connection.execute("SELECT a, b FROM links WHERE kept").fetchnumpy().values()
    of = who[rows]
    assert (a < register.size).all()
    assert (b >= register.size).all()
    assert (of[a] != of[b]).mean() < 0.05
    assert a.size > 0.9 * np.isin(who[again], who[register]).sum()
    assert any("expected to be false" in note for note in linking.notes)
