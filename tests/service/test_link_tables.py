"""What tables of links are read as: kinds of columns, one writing of cells, and what is said of columns."""

import csv
import datetime
import random
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pairmark.service.datasets.confined import FileLimits
from pairmark.service.errors import InvalidInput
from pairmark.service.links.tables import LinkTables, read_tables
from pairmark.service.settings import Settings

NAMES = ("first", "last", "street", "town", "postcode", "born", "phone", "email")
SYLLABLES = ("ka", "lo", "mi", "ren", "sta", "vo", "bel", "tur", "nes", "ga")
FIRSTS = (
    "anna",
    "peter",
    "robert",
    "susan",
    "thomas",
    "julia",
    "laura",
    "michael",
    "david",
    "sarah",
    "petra",
    "martin",
)


def people(n: int = 300) -> list[dict[str, str]]:
    draw = random.Random(5)

    def word() -> str:
        return "".join(draw.choices(SYLLABLES, k=draw.randint(2, 3)))

    lasts, towns = [word() for _ in range(90)], [word() for _ in range(30)]
    rows = []
    for _ in range(n):
        first, last, town = draw.choice(FIRSTS), draw.choice(lasts), draw.randrange(30)
        rows.append({
            "first": first, "last": last, "street": f"{draw.randint(1, 300)} {word()} street", "town": towns[town],
            "postcode": str(20_000 + 997 * town), "phone": f"0{draw.randrange(10**8, 10**9)}",
            "born": f"{draw.randint(1940, 2004)}-{draw.randint(1, 12):02d}-{draw.randint(13, 28)}",
            "email": f"{first}.{last}{draw.randint(1, 99)}@mail.com",
        })  # fmt: skip
    return rows


def read(
    folder: Path, *tables: Sequence[Sequence[str]], **options: Any
) -> tuple[LinkTables, dict[str, list[str | None]]]:
    """Tables, header first, as they are read, and their normal forms by column."""
    paths = []
    for at, rows in enumerate(tables):
        paths.append(folder / f"{'lrm'[at]}.csv")
        with paths[-1].open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    scratch = folder / "scratch"
    scratch.mkdir()
    with closing(duckdb.connect()) as connection:
        found = read_tables(connection, paths, scratch, FileLimits.of(Settings(), 1 << 20), **options)
        forms = ", ".join(field.definition.normal(f"c{at}") for at, field in enumerate(found.fields))
        columns = zip(*connection.execute(f"SELECT {forms} FROM source ORDER BY row").fetchall(), strict=True)
        return found, {field.name: list(cells) for field, cells in zip(found.fields, columns, strict=True)}


def table(
    rows: list[dict[str, str]], names: Sequence[str] = NAMES, header: Sequence[str] = ()
) -> list[list[str]]:
    return [
        ["id", *(header or names)],
        *([f"r{at}", *(row[name] for name in names)] for at, row in enumerate(rows)),
    ]


@pytest.mark.parametrize("header", [(), [f"c{at}" for at in range(8)]], ids=["named", "nameless"])
def test_kinds_are_known_by_names_or_by_cells_alone(tmp_path: Path, header: Sequence[str]) -> None:
    found, _ = read(tmp_path, table(people(), header=header))
    kinds = [field.kind for field in found.fields]
    assert kinds == [
        "given",
        "surname",
        "street",
        "category" if header else "city",
        "postcode",
        "date",
        "phone",
        "email",
    ]
    assert found.notes == []


def _in(form: str) -> Callable[[str], str]:
    return lambda day: datetime.date.fromisoformat(day).strftime(form)


@pytest.mark.parametrize(
    "write",
    [
        _in("%Y-%m-%d 00:00:00"), _in("%Y-%m-%dT00:00:00Z"), _in("%d.%m.%y"), _in("%d-%b-%y"), _in("%B %d, %Y"),
        _in("%d. %m. %Y"),
        _in("%m/%d/%Y"), _in("'%Y-%m-%d"), _in("\u200b%d/%m/%Y"), _in("%Y%m%d"), _in("%a, %d %b %Y"),
        lambda day: str((datetime.date.fromisoformat(day) - datetime.date(1899, 12, 30)).days),
    ],
)  # fmt: skip
def test_a_day_is_the_same_however_it_is_written(tmp_path: Path, write: Callable[[str], str]) -> None:
    rows = people(60)
    other = [row | {"born": write(row["born"])} for row in rows]
    # A mistyped cell makes no text of the column.
    other[0]["born"] = "19x4-02-03"
    found, cells = read(tmp_path, table(rows), table(other))
    assert [field.kind for field in found.fields if field.name == "born"] == ["date"]
    assert cells["born"][61:] == cells["born"][1:60] == [row["born"] for row in rows[1:]]


def test_columns_that_say_nothing_of_their_own_are_named(tmp_path: Path) -> None:
    rows = people()
    for at, row in enumerate(rows):
        row["full"], row["initials"] = f"{row['last']}, {row['first']}", row["first"][0] + row["last"][0]
        row["birthday"], row["made"] = row["born"], f"{row['first']}.{row['last']}@mail.example"
        # Where there is no number, the country says something of its own.
        row["country"] = ("DE", "FR", "GB")[at % 3]
        row["vat"] = f"{row['country']}{at * 7919 % 10**8:09d}" if at % 4 == 0 else ""
        if at % 3 == 0:
            row["born"] = "1901-01-01"
    found, cells = read(tmp_path, table(rows, (*NAMES, "full", "initials", "made", "country", "vat")))
    assert {field.name: field.note for field in found.fields if field.note} == {
        "full": "follows from first, last",
        "initials": "follows from first, last",
        "made": "follows from first, last",
    }
    assert cells["born"].count(None) == 100
    assert any("'1901-01-01' in 33% of the rows" in note for note in found.notes)


@pytest.mark.parametrize("n", [200, 15_000], ids=["few", "sorted, and more than are looked at"])
def test_columns_that_are_called_otherwise_are_paired_by_their_values(tmp_path: Path, n: int) -> None:
    rows = people(n)
    more = sorted(rows[n // 4 :], key=lambda row: row["phone"])
    header = ("Postcode", "nachname", "vorname", "tel", "mail", "ort", "geboren", "strasse")
    names = ("postcode", "last", "first", "phone", "email", "town", "born", "street")
    found, cells = read(tmp_path, table(rows), table(more, names, header))
    assert {field.name for field in found.fields} == {*NAMES}
    assert all(sorted(map(str, of[n:])) == sorted(map(str, of[n // 4 : n])) for of in cells.values())
    assert sum("are compared: they share values" in note for note in found.notes) == len(NAMES) - 1


@pytest.mark.parametrize("point", [".", ","])
def test_numbers_are_paired_by_their_distribution_however_they_are_written(
    tmp_path: Path, point: str
) -> None:
    draw = random.Random(1)
    rows = [
        (draw.uniform(47, 54), draw.uniform(6, 14), draw.randrange(500, 90_000) / 100) for _ in range(300)
    ]
    found, cells = read(
        tmp_path,
        [
            ["lat", "lon", "Preis"],
            *(
                [*(f"{of:.5f}".replace(".", point) for of in (y, x)), f"{p:.2f} €".replace(".", ",")]
                for y, x, p in rows
            ),
        ],
        [["longitude", "latitude", "fee"], *([f"{x:.3f}", f"{y:.3f}", f"EUR {p:.2f}"] for y, x, p in rows)],
        id_column="row",
    )
    assert [(field.name, field.kind) for field in found.fields] == [
        ("lat", "degrees"),
        ("lon", "degrees"),
        ("Preis", "number"),
    ]
    assert cells["Preis"][:300] == cells["Preis"][300:]


def test_a_full_name_is_paired_with_the_given_names_and_surnames_of_another_table(tmp_path: Path) -> None:
    rows = people(30)
    # Towns of one word may be taken for last names.
    whole = [
        ["child", "geboren", "c3"],
        *([f"{row['last'].upper()}, {row['first']}", row["born"], f"{row['last']}town"] for row in rows),
    ]
    found, cells = read(tmp_path, table(rows, ("first", "last", "born")), whole)
    assert {(field.name, field.kind) for field in found.fields} == {("first last", "name"), ("born", "date")}
    assert all(of[:30] == of[30:] for of in cells.values())
    assert not any("is not compared" in note for note in found.notes if "'c3'" not in note)


def test_what_one_table_writes_in_a_way_of_its_own_is_paired_with_plain_cells(tmp_path: Path) -> None:
    rows = people(60)
    written = [["c1", "c2", "c3"]]
    for at, row in enumerate(rows):
        row["amount"] = str(at * 997 + 500)
        born = datetime.date.fromisoformat(row["born"])
        amount = f"{int(row['amount']):,}".replace(",", " ")
        written.append([row["phone"].lstrip("0"), f"{born:%d.%m.%Y} г.", amount])
        row["phone"] = f"+49 {row['phone'][1:3]} {row['phone'][3:]}"
    found, cells = read(tmp_path, table(rows, ("phone", "born", "amount")), written)
    assert {(field.name, field.kind) for field in found.fields} == {
        ("phone", "phone"),
        ("born", "date"),
        ("amount", "number"),
    }
    assert all(of[:60] == of[60:] for of in cells.values())


@pytest.mark.parametrize("alike", [(), ("price",)], ids=["no column alike", "one column alike"])
def test_columns_that_are_called_otherwise_are_paired_by_their_words(
    tmp_path: Path, alike: Sequence[str]
) -> None:
    draw = random.Random(3)
    brands, things, colors = ("siemens", "garmin", "makita"), ("watch", "kettle", "printer"), ("red", "white")
    tables: list[list[list[str]]] = [[["title", "remark", *alike]], [["name", "label", *alike]]]
    for _ in range(200):
        brand, thing, color = draw.choice(brands), draw.choice(things), draw.choice(colors)
        model, price = f"KX{draw.randrange(10**5)}", [str(draw.randrange(10**4)) for _ in alike]
        # The second column of one shares each of its words with every column of the other, but no two in one cell.
        others = [" ".join(draw.choices(FIRSTS, k=2)) + f" {draw.choice(things)}" for _ in range(2)]
        tables[0].append([f"{brand} {thing} {model}, {color}", f"{others[0]} {color}", *price])
        tables[1].append([f"{brand.upper()} {model} {thing} NEW", f"{others[1]} {brand}", *price])
    found, _ = read(tmp_path, *tables, id_column="row")
    assert {field.name for field in found.fields} == {"title", *alike}
    assert "columns 'title' and 'name' are compared: they share words" in found.notes


def test_titles_that_one_table_numbers_are_texts(tmp_path: Path) -> None:
    titles = [f"{row['first']} {row['last']}" for row in people(200)]
    both = (
        [["title", "person"], *([title] * 2 for title in titles)],
        [["title", "person"], *([f"{title} ({1990 + at % 30})", title] for at, title in enumerate(titles))],
    )
    found, _ = read(tmp_path, *both, id_column="row")
    assert [field.kind for field in found.fields] == ["text", "name"]


def test_columns_that_may_be_the_same_are_proposed(tmp_path: Path) -> None:
    rows = people(60)
    other = [row | {"phone": f"0{10**8 + at}", "town": f"{'xy'[at % 2]}ville"} for at, row in enumerate(rows)]
    with pytest.raises(InvalidInput, match=r"perhaps 'town' ~ 'ort', 'phone' ~ 'tel'$"):
        read(tmp_path, table(rows), table(other, ("phone", "town"), ("tel", "ort")))


def test_what_two_tables_do_not_share_is_told_with_an_example(tmp_path: Path) -> None:
    rows = people(60)
    other = [
        row | {"town": "-".join(row["town"]), "born": "sometime in spring"[: 9 + at % 9]}
        for at, row in enumerate(rows)
    ]
    found, _ = read(tmp_path, table(rows), table(other))
    [of_types] = [note for note in found.notes if "compared as text" in note]
    assert "born" in of_types
    assert "sometime" in of_types
    assert rows[0]["born"] in of_types
    assert any("'town' has no value in both tables, such as" in note for note in found.notes)


def test_a_column_that_one_of_three_tables_lacks_is_told_with_that_table(tmp_path: Path) -> None:
    rows = people(60)
    short = [name for name in NAMES if name != "street"]
    found, _ = read(tmp_path, table(rows[:40]), table(rows[10:50]), table(rows[20:], short))
    assert [note for note in found.notes if "'street'" in note] == [
        f"column 'street' of {side}.csv is not compared: m.csv has none" for side in "lr"
    ]


def test_phones_postcodes_measures_and_what_is_ignored_name_no_rows(tmp_path: Path) -> None:
    rows = [["Vorname", "PLZ", "Telefon", "Betrag", "lon", "who"]]
    rows += [
        [
            *(FIRSTS[at % len(FIRSTS)], str(10_000 + 7 * at), f"030/{10**6 + 77 * at}"),
            *(f"{at * 77},{at + 10}", f"-{at * 0.001 + 7:.4f}", f"t{at}"),
        ]
        for at in range(40)
    ]
    found, _ = read(tmp_path, rows, columns={"who": "ignore"})
    assert found.ids == [None]


def test_a_code_of_every_row_is_compared_and_rows_are_numbered(tmp_path: Path) -> None:
    rows = people(60)
    numbers = [f"{at * 7919 % 10**4:04d}-{'abc'[at % 3]}" for at in range(60)]
    tables = (
        [["bill", "last"], *([n, row["last"]] for n, row in zip(numbers, rows, strict=True))] for _ in "lr"
    )
    found, _ = read(tmp_path, *tables)
    assert found.ids == [None]
    assert {field.name for field in found.fields} == {"bill", "last"}
    assert any("rows are called by their numbers" in note and "else: bill" in note for note in found.notes)


def test_what_names_the_rows_of_one_table_alone_is_compared(tmp_path: Path) -> None:
    rows = people(30)
    numbers = [f"{at * 7919 + 1000:08d}" for at in range(30)]
    left = [
        ["number", "last"],
        *([f"No-{number}", row["last"]] for number, row in zip(numbers, rows, strict=True)),
    ]
    right = [
        ["last", "number"],
        *(
            [row["last"], number[at % 2 * 8 :]]
            for at, (number, row) in enumerate(zip(numbers, rows, strict=True))
        ),
    ]
    found, _ = read(tmp_path, left, right)
    assert found.ids == [None, None]
    assert ("number", "id") in {(field.name, field.kind) for field in found.fields}
    assert (
        "l.csv: 'number' names its rows alone, so it is compared, and rows are called by their numbers"
        in found.notes
    )


def test_rows_that_repeat_the_header_are_no_records(tmp_path: Path) -> None:
    header, *rows = ([cell, *more] for cell, _, *more in table(people(60)))
    rows[20:20] = rows[40:40] = [header]
    found, cells = read(tmp_path, [header[1:], *(row[1:] for row in rows)])
    assert [at for at, cell in enumerate(cells["last"]) if cell is None] == [20, 40]
    said = "l.csv: 2 rows, such as row 21, repeat the header: they are no records and not linked"
    assert said in found.notes
    named = tmp_path / "named"
    named.mkdir()
    found, cells = read(named, [header, *rows[:20], ["any", *header[1:]]])
    assert (found.ids, cells["last"][20]) == (["id"], None)
    assert None not in cells["last"][:20]


def test_ids_of_a_long_table_are_told_by_rows_that_follow_each_other(tmp_path: Path) -> None:
    rows = people(11_000)
    numbered = [["No", "last", "born"], *([str(at), row["last"], row["born"]] for at, row in enumerate(rows))]
    found, _ = read(tmp_path, numbered)
    assert found.ids == ["No"]
    (tmp_path / "orders").mkdir()
    orders = [["client_id", "last"], *([f"{at // 3 * 7919}", row["last"]] for at, row in enumerate(rows))]
    found, _ = read(tmp_path / "orders", orders)
    assert found.ids == [None]
    assert [(field.name, field.kind) for field in found.fields] == [("client_id", "id"), ("last", "surname")]


def test_a_table_given_twice_is_one(tmp_path: Path) -> None:
    rows = table(people(30))
    found, _ = read(tmp_path, rows, rows)
    assert (found.sizes, found.n_rows) == ([30], 30)
    assert "the same table" in found.notes[0]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (["name", "Name"], "'Name'.*spelled like 'name'"),
        (["first name", "first-name"], "spelled like"),
        (["name", "__id__"], "'__id__'.*reserved"),
    ],
)
def test_names_that_stand_for_each_other_are_refused(tmp_path: Path, header: list[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read(tmp_path, [["id", *header], *([str(at), f"a{at % 7}", f"b{at % 5}"] for at in range(30))])


def test_a_column_called_id_names_rows_before_any_other_number(tmp_path: Path) -> None:
    rows = [
        ["social security id", "ID", "name"],
        *([str(900_000 + 7 * at), f"x{at}q", f"n{at % 7}"] for at in range(30)),
    ]
    assert read(tmp_path, rows)[0].ids == ["ID"]
