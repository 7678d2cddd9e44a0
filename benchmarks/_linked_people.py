"""Made-up people and companies with duplicates, for links: households, groups of firms, movers, typing mistakes.

``plain``: fields that have nothing to do with each other. ``dependent``: postcode and state follow the suburb.
``families``: a fifth of the people share surname, address and often telephone with the one before. A tenth of the
further records of a person have another address.
"""

import random
from collections.abc import Callable
from itertools import accumulate, cycle

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_FAMILIES = 0.2


def people(n: int, style: str, seed: int = 0) -> tuple[list[int], dict[str, list[str]]]:
    """Who each row is of, and the columns."""
    drawn = random.Random(seed)
    first, last = _zipf(drawn, _words(drawn, 800), 0.8), _zipf(drawn, _words(drawn, 5_000), 0.7)
    streets = _words(drawn, 3_000)
    states = cycle(("nsw", "vic", "qld", "wa", "sa"))
    suburbs = {
        name: (str(drawn.randrange(1_000, 9_999)), next(states)) for name in _words(drawn, max(60, n // 150))
    }
    names = list(suburbs)

    def address() -> dict[str, str]:
        suburb = drawn.choice(names)
        street = f"{drawn.randrange(1, 300)} {drawn.choice(streets)} st"
        if style == "plain":
            return {"street": street, "postcode": str(drawn.randrange(1_000, 9_999))}
        return dict(
            zip(("street", "suburb", "postcode", "state"), (street, suburb, *suburbs[suburb]), strict=True)
        )

    rows: list[tuple[int, dict[str, str]]] = []
    before: dict[str, str] = {}
    person = 0
    while len(rows) < n:
        born = f"{drawn.randrange(1930, 2010)}-{drawn.randrange(1, 13):02d}-{drawn.randrange(1, 29):02d}"
        record = {"first": first(), "last": last(), **address(), "born": born}
        record["phone"] = f"0{drawn.randrange(10**8, 10**9)}"
        if style == "families" and before and drawn.random() < _FAMILIES:
            shared = ["last", "street", "suburb", "postcode", "state", *["phone"] * (drawn.random() < 0.5)]
            record |= {name: before[name] for name in shared}
        before = record
        rows.append((person, record))
        for _ in range(drawn.randrange(1, 4) if drawn.random() < 0.3 else 0):
            copy = record | (address() if drawn.random() < 0.1 else {})
            rows.append((person, {name: _mistyped(drawn, cell) for name, cell in copy.items()}))
        person += 1
    rows = rows[:n]
    drawn.shuffle(rows)
    return [of for of, _ in rows], {name: [row[name] for _, row in rows] for name in rows[0][1]}


_FORMS = (("limited", "ltd"), ("incorporated", "inc"), ("gmbh", ""), ("holding", "hldg"))
_TRADES = (("engineering", "eng"), ("services", "svcs"), ("logistics", "logistics"), ("systems", "sys"))


def companies(n: int, seed: int = 0) -> tuple[list[int], dict[str, list[str]]]:
    """Which firm each row is of, and the columns. A seventh of the firms share root, address, web and phone with the
    one before, in another trade; further records abbreviate, lose cells, or have moved."""
    drawn = random.Random(seed)
    roots, streets = _words(drawn, max(200, n // 3)), _words(drawn, 2_000)
    cities = {name: drawn.randrange(10_000, 99_999) for name in _words(drawn, 150)}

    def place() -> dict[str, str]:
        city = drawn.choice(list(cities))
        street = f"{drawn.choice(streets)} street {drawn.randrange(1, 150)}"
        return {"street": street, "city": city, "zip": str(cities[city] + drawn.randrange(30))}

    rows: list[tuple[int, dict[str, str]]] = []
    shared: dict[str, str] = {}
    firm = 0
    while len(rows) < n:
        if not shared or drawn.random() > 1 / 7:
            root = drawn.choice(roots)
            phone = f"+49 {drawn.randrange(30, 999)} {drawn.randrange(10**5, 10**7)}"
            shared = {"root": root, **place(), "phone": phone, "website": f"www.{root}.com"}
        trade, form = drawn.choice(_TRADES), drawn.choice(_FORMS)
        own = {**shared, "vat": f"DE{drawn.randrange(10**8, 10**9)}"}
        for copy in range(drawn.choices((1, 2, 3), (65, 25, 10))[0]):
            short = [drawn.randrange(2) if copy else 0 for _ in range(2)]
            row = own | (place() if copy and drawn.random() < 0.1 else {})
            name = f"{row.pop('root')} {trade[short[0]]} {form[short[1]]}".strip()
            row = {"company": name.upper() if copy and drawn.random() < 0.3 else name, **row}
            lost = {"vat": 0.6, "website": 0.5, "phone": 0.4, "street": 0.15}
            row = {
                key: "" if drawn.random() < lost.get(key, 0.05) and key != "company" else cell
                for key, cell in row.items()
            }
            rows.append(
                (firm, {key: _mistyped(drawn, cell) if copy and cell else cell for key, cell in row.items()})
            )
        firm += 1
    rows = rows[:n]
    drawn.shuffle(rows)
    return [of for of, _ in rows], {name: [row[name] for _, row in rows] for name in rows[0][1]}


def _words(drawn: random.Random, n: int) -> list[str]:
    words: set[str] = set()
    while len(words) < n:
        letters = (
            drawn.choice("bcdfghjklmnprstvwz" if at % 2 == 0 else "aeiou")
            for at in range(drawn.randint(4, 10))
        )
        words.add("".join(letters))
    return sorted(words)


def _zipf(drawn: random.Random, words: list[str], slope: float) -> Callable[[], str]:
    weights = list(accumulate((1 + at) ** -slope for at in range(len(words))))
    return lambda: drawn.choices(words, cum_weights=weights)[0]


def _mistyped(drawn: random.Random, cell: str) -> str:
    """The cell, one with a mistake in an eighth, or none in a twentieth."""
    chance = drawn.random()
    if chance > 0.17:
        return cell
    if chance < 0.05:
        return ""
    at = drawn.randrange(len(cell))
    letter = drawn.choice(_LETTERS)
    return drawn.choice(
        (
            cell[:at] + letter + cell[at + 1 :],
            cell[:at] + letter + cell[at:],
            cell[:at] + cell[at + 1 :],
            cell[:at] + cell[at + 1 : at + 2] + cell[at] + cell[at + 2 :],
        )
    )
