"""Links of made-up homes and registers: relatives are no matches, and columns that tell nothing are named."""

import random
from typing import Any

import duckdb
import numpy as np
import pytest

from benchmarks._linked_people import people
from pairmark.models.linking.engine import Linking
from pairmark.models.linking.mixture import Mixture
from pairmark.models.linking.share import expected_links
from pairmark.models.records.compare import LinkField

SYLLABLES = [
    "ka",
    "lo",
    "mi",
    "ren",
    "sta",
    "vo",
    "bel",
    "tur",
    "nes",
    "ga",
    "dri",
    "pol",
    "sen",
    "hau",
    "fir",
    "mon",
]
FIRSTS = (
    "anna",
    "bob",
    "carl",
    "dora",
    "emil",
    "fred",
    "gina",
    "hans",
    "ida",
    "jan",
    "karl",
    "lena",
    "mia",
    "nils",
)
KINDS = {
    "first": "given", "last": "surname", "street": "street", "postcode": "postcode", "phone": "phone", "born": "date",
}  # fmt: skip


def homes(kind: str, share: float) -> tuple[list[int], list[list[str]]]:
    """Who each row is of, and rows: people, three in ten twice with one mistake, and relatives in a share of homes."""
    drawn = random.Random(4)
    firsts, lasts = (["".join(drawn.choices(SYLLABLES, k=3)) for _ in range(n)] for n in (150, 600))
    who: list[int] = []
    rows: list[list[str]] = []

    def add(person: int, row: list[str]) -> None:
        who.append(person)
        rows.append(row)

    for _ in range(500):
        street = f"{drawn.randint(1, 200)} {''.join(drawn.choices(SYLLABLES, k=2))} street"
        home = [
            drawn.choice(lasts),
            street,
            f"{drawn.randint(10_000, 99_999)}",
            f"0{drawn.randrange(10**8, 10**9)}",
        ]
        first, other = drawn.sample(firsts, 2)
        born, later, much_later = (
            f"19{year}-{drawn.randint(1, 12):02d}-{drawn.randint(10, 28)}"
            for year in (drawn.randint(40, 60), drawn.randint(40, 60), 85)
        )
        people = [(first, born)]
        relatives = {"couple": (other, later), "father and son": (first, much_later), "twins": (other, born)}
        if drawn.random() < share:
            people.append(relatives[kind])
        for first, born in people:
            row = [first, *home, born]
            person = len(who)
            add(person, row)
            if drawn.random() < 0.3:
                at = drawn.randrange(5)
                place = drawn.randrange(len(row[at]))
                add(person, [*row[:at], f"{row[at][:place]}x{row[at][place + 1 :]}", *row[at + 1 :]])
    return who, rows


def linked(
    rows: list[list[str]], fields: list[LinkField], sizes: tuple[int, ...] = (), **options: Any
) -> tuple[Linking, set[tuple[int, int]]]:
    connection = duckdb.connect()
    columns = {f"c{at}": np.array(cells, dtype=object) for at, cells in enumerate(zip(*rows, strict=True))}
    connection.register("given", {"row": np.arange(len(rows)), **columns})
    connection.execute("CREATE TABLE source AS FROM given")
    linking = Linking(connection, fields, sizes or [len(rows)], budget=50, **options)
    linking.run()
    return linking, {*connection.execute("SELECT a, b FROM links WHERE kept").fetchall()}


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("couple", 0.02),
        ("couple", 0.3),
        ("father and son", 0.03),
        ("father and son", 0.3),
        ("twins", 0.02),
        ("twins", 0.05),
    ],
)
def test_relatives_at_one_address_are_not_linked(kind: str, share: float) -> None:
    who, rows = homes(kind, share)
    linking, links = linked(rows, [LinkField(name, of) for name, of in KINDS.items()])
    assert all(who[a] == who[b] for a, b in links)
    assert len(links) >= 0.97 * (len(who) - len({*who}))
    assert linking.share.estimate is None or linking.share.estimate < 0.01
    again = Mixture.from_json(linking.model.to_json())
    symbols = np.random.default_rng(0).integers(0, 31, (200, len(KINDS)))
    assert np.array_equal(again.log_odds(symbols), linking.model.log_odds(symbols))


def test_twins_whose_given_names_are_not_known_as_such_leave_the_share_unknown() -> None:
    who, rows = homes("twins", 0.05)
    linking, links = linked(
        rows, [LinkField(n, "surname" if n == "first" else of) for n, of in KINDS.items()]
    )
    assert linking.share.estimate is None or all(who[a] == who[b] for a, b in links)


def test_names_in_each_others_columns_are_of_one_person() -> None:
    who, rows = homes("couple", 0.2)
    drawn = random.Random(3)
    for at in drawn.sample(range(len(rows)), 60):
        first, last, *rest = rows[at]
        who.append(who[at])
        rows.append([last, first, *rest[:3], "" if drawn.random() < 0.5 else rest[3]])
    _, links = linked(rows, [LinkField(name, of) for name, of in KINDS.items()])
    assert all(who[a] == who[b] for a, b in links)
    assert len({b for a, b in links if b >= len(rows) - 60}) >= 57


def test_names_that_a_list_of_frequencies_lacks_are_as_frequent_as_in_the_rows() -> None:
    rows, fields = homes("couple", 0.2)[1], [LinkField(name, of) for name, of in KINDS.items()]
    listed = rows[0][0]
    shares = f"(SELECT '{listed}' AS value, 0.5 AS share)"
    plain, weighed = (
        linked(rows, fields, **more)[0].model for more in ({}, {"frequencies": {"first": shares}})
    )
    expected = {**plain.columns[0].frequent, listed: round(0.5 * len(rows))}
    assert weighed.columns[0].frequent == expected
    assert len(expected) > 100


def test_firms_that_differ_in_their_legal_form_alone_are_two() -> None:
    drawn = random.Random(2)
    who, rows = [], []
    for _ in range(400):
        name = "".join(drawn.choices(SYLLABLES, k=4))
        place = [
            f"{''.join(drawn.choices(SYLLABLES, k=2))} street {drawn.randint(1, 150)}",
            f"0{drawn.randrange(10**8, 10**9)}",
        ]
        for form in drawn.sample((" GmbH", " AG", " KG", " SE"), 2 if drawn.random() < 0.12 else 1):
            firm, number = len(who), f"DE{drawn.randrange(10**8, 10**9)}"
            for copy in range(1 + (drawn.random() < 0.5)):
                who.append(firm)
                written = drawn.choice((form, form, "")) if copy else form
                vat = number if drawn.random() < 0.4 else ""
                rows.append(
                    [f"{name}{written}", *(cell if drawn.random() < 0.9 else "" for cell in place), vat]
                )
    kinds = {"firm": "company", "street": "street", "phone": "phone", "vat": "id"}
    linking, links = linked(rows, [LinkField(name, of) for name, of in kinds.items()])
    same = [who[a] == who[b] for a, b in links]
    assert sum(same) >= 0.97 * len(same)
    # A firm written without its form is the one of its name, where there is no other.
    assert len({row for pair in links for row in pair if " " not in rows[row][0]}) >= 20
    assert [name for name, *_ in linking.columns] == list(kinds)


def test_initials_are_the_person_and_no_relative() -> None:
    drawn = random.Random(1)
    who, rows = [], []
    for person in range(600):
        first, last = drawn.choice(FIRSTS), "".join(drawn.choices("abcdefghiklmnorst", k=drawn.randint(4, 8)))
        born = f"19{drawn.randint(40, 99)}-{drawn.randint(1, 12):02d}-{drawn.randint(1, 28):02d}"
        row = [first, last, born, drawn.choice(SYLLABLES[:5]), f"0{drawn.randrange(10**8, 10**9)}"]
        who.append(person)
        rows.append(row)
        if drawn.random() < 0.4:
            who.append(person)
            rows.append(
                [
                    first if drawn.random() < 0.7 else f"{first[0]}.",
                    last if drawn.random() < 0.5 else f"{last[:-1]}{drawn.choice('xyz')}",
                    born if drawn.random() < 0.8 else "",
                    row[3],
                    row[4] if drawn.random() < 0.6 else "",
                ]
            )
    kinds = {"first": "given", "last": "surname", "born": "date", "city": "city", "phone": "phone"}
    _, links = linked(rows, [LinkField(name, of) for name, of in kinds.items()])
    assert all(who[a] == who[b] for a, b in links)
    assert len(links) >= 0.95 * (len(who) - len({*who}))


def test_columns_that_tell_nothing_weigh_nothing_and_are_named_however_many_there_are() -> None:
    who, rows = homes("couple", 0.1)
    drawn = random.Random(1)
    noise = [[f"{drawn.choice(SYLLABLES)}{drawn.choice(SYLLABLES)}" for _ in range(14)] for _ in rows]
    fields = [
        *(LinkField(name, of) for name, of in KINDS.items()),
        *(LinkField(f"noise{at}", "category") for at in range(14)),
    ]
    linking, links = linked([[*row, *more] for row, more in zip(rows, noise, strict=True)], fields)
    assert all(who[a] == who[b] for a, b in links)
    assert len(links) >= 0.97 * (len(who) - len({*who}))
    weights = {name: weight for name, _, weight, _ in linking.columns}
    assert all((weight == 0) == name.startswith("noise") for name, weight in weights.items())
    assert sum("tells nothing" in note for note in linking.notes) == 14


def test_names_that_no_row_of_another_table_has_tell_nothing_where_contacts_do() -> None:
    drawn = random.Random(3)
    places = sorted({"".join(drawn.choices(SYLLABLES, k=4)) for _ in range(420)})[:400]
    phones = [f"0{drawn.randrange(10**8, 10**9)}" for _ in places]
    rows = [
        [f"{word} {place}", place, phone if drawn.random() < 0.9 else "", f"{place}.example"]
        for word in ("museum", "gallery of art")
        for place, phone in zip(places, phones, strict=True)
    ]
    linking, links = linked(
        rows, [LinkField(name, name) for name in ("name", "city", "phone", "web")], (400, 400)
    )
    assert {pair for pair in links if pair[1] - pair[0] == 400} == links
    assert len(links) > 380
    assert sum("'name' tells nothing" in note for note in linking.notes) == 1


def test_tables_without_matches_have_no_links_and_no_share() -> None:
    who, rows = homes("couple", 0.3)
    linking, links = linked(
        [row for at, row in enumerate(rows) if who[at] == at],
        [LinkField(name, of) for name, of in KINDS.items()],
    )
    assert len(links) <= 2
    assert links or (linking.share is None and any("no links" in note for note in linking.notes))


def test_matches_that_differ_in_writing_alone_let_every_column_tell() -> None:
    who, rows = homes("couple", 0)
    alone = [row for at, row in enumerate(rows) if who[at] == at]
    again = [[*row[:4], f"+49 {row[4][1:4]}-{row[4][4:]}", row[5]] for row in alone[:150]]
    rows = [*alone, *again]
    linking, links = linked(rows, [LinkField(name, kind) for name, kind in KINDS.items()])
    assert all(weight > 0 for _, _, weight, _ in linking.columns)
    assert len(links) == len(again)


def test_columns_that_contradict_each_other_are_named_with_an_example() -> None:
    _, rows = homes("couple", 0)
    # One number joins rows 0 and 1, 2 and 3; the other 1 and 2, 3 and 4.
    numbered = [[*row, f"M{90_000 + at // 2}", f"K{70_000 + (at + 1) // 2}"] for at, row in enumerate(rows)]
    fields = [LinkField(name, kind) for name, kind in {**KINDS, "member": "id", "account": "id"}.items()]
    linking, _ = linked(numbered, fields)
    [said] = [note for note in linking.notes if "contradict" in note]
    assert "two rows with member 'M90000' have account 'K70000' and 'K70001'" in said
    named = {name for name, _, _, note in linking.columns if note is not None and "contradict" in note}
    assert named == {"member", "account"}
    alike = [[*row[:-1], row[-2]] for row in numbered]
    assert not any("contradict" in note for note in linked(alike, fields)[0].notes)


def to_register(seed, doubles=0.0, n=400):
    """Half of n records have a partner in a register of n, whose rows are alike by chance as strangers are."""
    random = np.random.default_rng(seed)
    chance, true = random.normal(0, 1, n), random.normal(4, 1, n)
    nulls = np.where(random.random(n) < doubles, random.normal(4, 1, n), random.normal(0, 1, n))
    has_partner = np.arange(n) < n // 2
    query = np.concatenate([np.arange(n), np.arange(n)[has_partner]])
    found = expected_links(query, np.concatenate([chance, true[has_partner]]), n, nulls, 0.05, likely=2.5)
    return found.is_link[:n].sum() / max(found.is_link.sum(), 1), found.is_link[n:].mean(), found.doubles


def test_the_mean_share_of_false_links_is_what_was_asked_for():
    false, recall, doubles = np.mean([to_register(seed) for seed in range(100)], axis=0)
    assert 0.01 < false < 0.05
    assert recall > 0.9
    assert doubles < 0.01


def test_duplicates_of_the_register_are_told_and_cost_links_not_truth():
    false, recall, doubles = np.mean([to_register(seed, 0.1) for seed in range(50)], axis=0)
    assert false < 0.05
    assert recall < 0.5
    assert doubles > 0.05


@pytest.mark.parametrize("n_candidates", [0, 1])
def test_few_candidates_are_answered(n_candidates):
    found = expected_links(np.arange(n_candidates), np.ones(n_candidates), 3, np.full(20, -np.inf), 0.5, 0.5)
    assert (found.is_link.sum(), found.cut) == (n_candidates, 1.0 if n_candidates else np.inf)


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
    linking = Linking(connection, fields, [register.size, again.size], unique=[0], expected=0.05, budget=50)
    linking.run()
    a, b = connection.execute("SELECT a, b FROM links WHERE kept").fetchnumpy().values()
    of = who[rows]
    assert (a < register.size).all()
    assert (b >= register.size).all()
    assert (of[a] != of[b]).mean() < 0.05
    assert a.size > 0.9 * np.isin(who[again], who[register]).sum()
    assert any("expected to be false" in note for note in linking.notes)
