"""Kinds of columns: the same thing written otherwise is equal, slips are close, and others apart."""

import random

import duckdb
import numpy as np
import pytest

from pairmark.models.records.comparators import Comparators
from pairmark.models.records.compare import KINDS, LinkField, register
from pairmark.models.records.recognition import link_kind
from pairmark.models.records.schema import TYPES, RecordColumn, Schema

MISSING, APART, WEAK, CLOSE, EQUAL = range(5)
CASES = {
    "phone": [
        ("030 123 4567", "+49 (30) 123-4567", EQUAL),
        ("0301234567", "301234567.0", EQUAL),
        ("0301234567", "(030) 123 4567 ext. 12", EQUAL),
        ("0301234567", "0301234568", CLOSE),
        ("+45 12 34 56 78", "12345678", CLOSE),
        ("0301234567", "0897654321", APART),
    ],
    "email": [
        ("Zoe.Miller7@mail.com", "zoe.miller7+shop@MAIL.com", EQUAL),
        ("<zoe@mail.com>", "zoe@mail.com", EQUAL),
        ("Zoe Miller <zoe@mail.com>", "Zoe Miller <adam@acme.org>", APART),
        ("zoe.miller7@mail.com", "zoe.miler7@mail.com", CLOSE),
        ("zoe.miller7@mail.com", "zoe.miller8@mail.com", APART),
        ("n/a", "zoe@mail.com", MISSING),
    ],
    "web": [
        ("https://www.acme.com/about?x=1", "ACME.com", EQUAL),
        ("acme.com", "acme.co.uk", CLOSE),
        ("acme.com", "other.com", APART),
    ],
    "name": [
        ("Zoe Miller", "MILLER, Zoë", EQUAL),
        ("Dr. Bob Miller", "Robert Miller", EQUAL),
        ("Zoe O'Connor", "oconnor zoe", EQUAL),
        ("Anna Maria Miller", "Anna Miller", CLOSE),
        ("Z. Miller", "Zoe Miller", WEAK),
        ("Zoe Miller", "Zoe Miler", CLOSE),
        ("Zoe Miller", "Tom Becker", APART),
    ],
    "surname": [
        ("oconnor", "o'conner", CLOSE),
        ("Müller", "Mueller", EQUAL),
        ("Van der Berg", "vanderberg", EQUAL),
        ("Berg", "Stone", APART),
    ],
    "given": [("Liz", "Elizabeth", EQUAL), ("J.", "John", WEAK), ("Zoe", "Tom", APART)],
    "company": [
        ("Müller Maschinenbau GmbH & Co. KG", "Mueller Maschinenbau", EQUAL),
        ("Acme Intl. Inc", "ACME International", EQUAL),
        ("Acme Software", "Acme Sftwr Ltd", CLOSE),
        ("Acme Software Ltd", "Acme", WEAK),
        ("International Business Machines", "IBM", WEAK),
        ("Acme Software", "Zenith Trading", APART),
        ("Acme Sofware Intl", "Acme Software", WEAK),
        # Firms of one group.
        ("Montgomery Consulting GmbH", "Montgomery Solutions AG", APART),
        ("Montgomery Bau", "Montgomery IT", APART),
        ("Norden Nordem", "Nordeen Sued", APART),
    ],
    "street": [
        ("12 Main Street", "Main St. 12", EQUAL),
        ("Hauptstraße 5a", "Hauptstr. 5 A", EQUAL),
        ("12 Main Street", "12 Maine Street", CLOSE),
        ("12 Main Street", "14 Main Street", WEAK),
        ("12 Main Street", "7 Oak Lane", APART),
    ],
    "postcode": [
        ("01234", "1234", EQUAL),
        ("D-12345", "12345.0", EQUAL),
        ("sw1a 1aa", "SW1A1AA", EQUAL),
        ("12345", "12354", CLOSE),
        ("12345", "98765", APART),
    ],
    "date": [
        ("1974-07-24", "24.07.74", EQUAL),
        ("July 24, 1974", "24-Jul-74", EQUAL),
        ("1974-07-24 00:00:00", "24. 07. 1974", EQUAL),
        ("1974-07-24T00:00:00Z", "'1974-07-24", EQUAL),
        ("24.07.1974 г.", "24071974", EQUAL),
        ("1974年7月24日", "19740724", EQUAL),
        ("20.11.1974", "20111974", EQUAL),
        ("1974-03-07", "1974-07-03", CLOSE),
        ("1974-07-24", "1974-07-25", CLOSE),
        ("1974-07-24", "1975-07-25", WEAK),
        ("1974-07-24", "1951-11-02", APART),
        ("", "1951-11-02", MISSING),
    ],
    "id": [
        ("AB-123 456", "ab123456", EQUAL),
        ("0012345", "12345", EQUAL),
        ("123456", "123457", CLOSE),
        ("DE 123 456 789", "123456789", WEAK),
        ("4.00639E+12", "4006390000001", MISSING),
        ("123456", "654321", APART),
    ],
    "number": [
        ("12.50", "12.5", EQUAL),
        ("12 345 678", "12345678 zł", EQUAL),
        ("100", "100.5", CLOSE),
        ("100", "95.5", WEAK),
        ("100", "7", APART),
    ],
    "degrees": [
        ("52.51627", "52,5163", EQUAL),
        ("-0.1276", "-0.1262", CLOSE),
        ("13.38", "13.395", WEAK),
        ("52.5", "48.1", APART),
    ],
    "text": [
        ("Blue\u200b lamp", "blue lamp", EQUAL),
        ("<b>Salt and S&uuml;ß</b>&nbsp;<br/>", "salt and süss", EQUAL),
        ("📍 Berlin ✨", "berlin", EQUAL),
        ("@zoe.m", "zoe.m", EQUAL),
        ("red wooden table two chairs", "wooden table two chairs", CLOSE),
        ("lamp", "chair", APART),
    ],
    "list": [
        ("030 1234567; 089 555 1234", "+49 89 5551234", EQUAL),
        ("a@x.com | b@x.com", "b@x.com", EQUAL),
        ("030 1234567", "089 9876543", APART),
    ],
    "boolean": [("yes", "TRUE", EQUAL), ("ja", "1", EQUAL), ("nein", "N", EQUAL), ("yes", "no", APART)],
    "legal_form": [
        ("Acme GmbH & Co. KG", "Acme KG", WEAK),
        ("Acme Ltd", "Acme Limited", EQUAL),
        ("Acme AG", "Acme GmbH", APART),
    ],
}


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as connection:
        register(connection)
        yield connection


@pytest.mark.parametrize("kind", CASES)
def test_levels_of_what_people_write(connection, kind):
    field = LinkField("column", kind)
    level = field.definition.level(field.definition.normal("?1"), field.definition.normal("?2"))
    came = [
        (left, right, connection.execute(f"SELECT {level}", [left, right]).fetchone()[0])
        for left, right, _ in CASES[kind]
    ]
    assert came == CASES[kind]
    # Which side is left says nothing.
    assert [
        connection.execute(f"SELECT {level}", [right, left]).fetchone()[0] for left, right, _ in CASES[kind]
    ] == [level for *_, level in CASES[kind]]


def test_alike_cells_share_a_key(connection):
    for kind, cells in {
        "phone": ("+45 12 34 56 78", "12345678"),
        "surname": ("Miller", "Milner"),
        "web": ("acme.com", "acme.co.uk"),
    }.items():
        field = LinkField("column", kind)
        left, right = (
            connection.execute(
                f"SELECT {', '.join(field.definition.keys(field.definition.normal('?1')))}", [cell]
            ).fetchone()
            for cell in cells
        )
        assert set(left) & set(right) - {None}, kind


def miswritten(drawn: random.Random, cell: str) -> str:
    """A cell with some slips: characters changed, swapped, left out, words left out, shortened or in another order."""
    for _ in range(drawn.choice([0, 1, 1, 2, 3])):
        at, words = drawn.randrange(max(len(cell), 1)), cell.split(" ")
        word = drawn.randrange(len(words))
        cell = drawn.choice([
            cell[:at] + drawn.choice("aé7 .") + cell[at + 1 :], cell[:at] + cell[at + 1 :],
            cell[:at] + cell[at : at + 2][::-1] + cell[at + 2 :], " ".join(words[::-1]),
            " ".join(words[:word] + words[word + 1 :]), " ".join([*words[:word], words[word][:2], *words[word + 1 :]]),
        ])  # fmt: skip
    return cell


@pytest.mark.parametrize(
    "kind", [name for name in KINDS if name in TYPES and name not in ("id", "date", "place")]
)
def test_learners_have_the_levels_of_links(kind):
    connection = duckdb.connect()
    register(connection)
    drawn = random.Random(kind)
    cells = [cell for left, right, _ in CASES.get(kind, CASES["surname"]) for cell in (left, right)]
    if kind in ("number", "boolean"):
        cells = (
            ["1", "0"]
            if kind == "boolean"
            else [f"{drawn.uniform(-300, 300):.{drawn.randrange(3)}f}" for _ in range(60)]
        )
    pairs = []
    while len(pairs) < 1_500:
        left, right = drawn.choice(cells), drawn.choice(cells)
        if kind not in ("number", "boolean"):
            left, right = miswritten(drawn, left), miswritten(drawn, drawn.choice([left, right]))
        # A word that is there twice counts once in SQL alone.
        forms = [KINDS[kind].form(cell) for cell in (left, right)]
        if all(form and len({*form.split(" ")}) == len(form.split(" ")) for form in forms):
            pairs.append((left, right))
    field = LinkField("column", kind)
    connection.register(
        "pairs", {side: np.array([pair[at] for pair in pairs], object) for at, side in enumerate("ab")}
    )
    expected = connection.execute(
        f"SELECT {field.definition.level('one', 'other')} FROM "
        f"(SELECT {field.definition.normal('a')} AS one, {field.definition.normal('b')} AS other FROM pairs)"
    ).fetchall()
    comparators = Comparators(Schema(columns=(RecordColumn(name="column", type=kind),)))
    sides = [
        np.array([[float(pair[at]) if kind in ("number", "boolean") else pair[at]] for pair in pairs], object)
        for at in (0, 1)
    ]
    one, other = (comparators.fit(np.concatenate(sides)).prepare(side) for side in sides)
    rows = np.arange(len(pairs))
    levels = comparators.compare(one, rows, other, rows)[:, comparators.features.index(("column", "level"))]
    odd = [
        (pair, level, got)
        for pair, (level,), got in zip(pairs, expected, levels.tolist(), strict=True)
        if level != got
    ]
    assert not odd


@pytest.mark.parametrize("header", ["Kennzeichen", "license plate", "Registration No", "PESEL", "VIN", "mrn"])
def test_codes_with_blanks_are_ids(header: str) -> None:
    plates = ["M-BZ 5783", "HH-DZ 7794", "B-EX 951"]
    assert link_kind(header, "text", plates, 3) == "id"
    assert link_kind("c1", "text", plates, 3) == "id"
    assert link_kind("c1", "text", ["bolt M8 x 40", "nut M6", "plate 80 x 40"], 3) == "text"
    assert link_kind("c1", "text", ["80 x 40 cm", "120 x 60 cm", "90 kg"], 3) == "text"


def test_breadths_and_lengths_of_things_are_no_places() -> None:
    for header in ("Breite", "Länge"):
        assert link_kind(header, "number", ["80", "120.5", "12.25"], 3) == "number"
        assert link_kind(header, "number", ["9.1829", "13.40495", "11.576"], 3) == "degrees"
        assert link_kind(header, "text", ["80,5", "120", "12,25"], 3) == "number"
        assert link_kind(header, "text", ["9,1829", "13,40495", "11,576"], 3) == "degrees"


@pytest.mark.parametrize(
    ("header", "cells", "kind"),
    [
        ("Song title", ["Main Above", "Agency", "Long Those Democratic"], "text"),
        ("film", ["Main Above", "Agency Deal", "Long Those Democratic"], "text"),
        ("c1", ["The Catch", "Lord of Words", "Main Above"], "text"),
        ("c1", ["Jan van der Berg", "Ana de la Cruz", "Ali bin Omar", "Wernher von Braun", "Maria dos Santos"], "name"),
    ],
)  # fmt: skip
def test_titles_are_no_names_of_people(header: str, cells: list[str], kind: str) -> None:
    assert link_kind(header, "name", cells, 5) == kind
