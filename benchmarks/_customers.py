"""Made-up customers of ten fields, who live in households, and what comes of entering them again."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = {
    "given": "name", "surname": "name", "street": "text", "town": "name", "postcode": "text",
    "born": "date:DD.MM.YYYY", "phone": "text", "email": "text", "member": "boolean", "spent": "number",
}  # fmt: skip
_HOUSEHOLD = 0.3
"""Of customers share surname, address and telephone with the one before."""
_PARTS = [
    "ka",
    "lo",
    "mir",
    "ten",
    "sha",
    "vo",
    "ra",
    "dan",
    "el",
    "bru",
    "si",
    "no",
    "gar",
    "pe",
    "ju",
    "han",
]


def customers(n: int, random: np.random.Generator) -> dict[str, list[str]]:
    """A table of n customers, one record each, without missing cells."""
    given, surname, street, town = (
        _words(size, random) for size in (2_000, min(20_000, 50 + n), min(5_000, 20 + n // 4), 300)
    )
    # A few names are common, most are rare.
    picks = [
        (random.power(0.5, n) * len(words)).astype(int) % len(words)
        for words in (given, surname, street, town)
    ]
    numbers = random.integers(0, 10**9, (n, 4))
    table: dict[str, list[str]] = {name: [] for name in COLUMNS}
    home: tuple[str, ...] = ()
    shares = random.random(n) < _HOUSEHOLD
    for at in range(n):
        a, b, c, d = (int(number) for number in numbers[at])
        if not (home and shares[at]):
            place = town[picks[3][at]]
            home = (
                surname[picks[1][at]], f"{street[picks[2][at]]} street {1 + a % 200}", place,
                f"{abs(hash_of(place)) % 90_000 + 10_000 + a % 7:05d}", f"0{b % 900 + 100} {c % 10**6:06d}",
            )  # fmt: skip
        name = given[picks[0][at]]
        cells = (
            name, *home[:4], f"{1 + c % 28:02d}.{1 + d % 12:02d}.{1935 + b % 70}", home[4],
            f"{name}.{home[0]}{d % 90}@example.com", ("yes", "no")[a % 2], f"{5 + d % 3_000}.{b % 100:02d}",
        )  # fmt: skip
        for column, cell in zip(COLUMNS, cells, strict=True):
            table[column].append(cell)
    return table


def hash_of(text: str) -> int:
    """A number of a text that is the same in every process."""
    return int.from_bytes(text.encode()[:7].ljust(7, b"x"), "little")


def entered_again(
    table: dict[str, list[str]], rows: Any, random: np.random.Generator
) -> dict[str, list[str]]:
    """Some customers, entered again: one letter in three cells of ten is wrong, one cell in eight is missing."""
    again: dict[str, list[str]] = {}
    for name, cells in table.items():
        again[name] = []
        for row in rows:
            cell, luck = cells[row], random.random()
            if name == "spent":
                cell = f"{float(cell) * random.uniform(0.8, 1.2):.2f}"
            elif luck < 0.125:
                cell = ""
            elif luck < 0.4 and COLUMNS[name] in ("name", "text"):
                at = int(random.integers(len(cell)))
                cell = cell[:at] + "abcdefghijklmnopqrstuvwxyz"[int(random.integers(26))] + cell[at + 1 :]
            again[name].append(cell)
    return again


def twice(n: int, random: np.random.Generator) -> tuple[dict[str, list[str]], np.ndarray]:
    """A table of n customers with two entries each, and who each row is of."""
    table = customers(n, random)
    again = entered_again(table, range(n), random)
    return {name: [*table[name], *again[name]] for name in table}, np.tile(np.arange(n), 2)


def write_messy(file: Path, n: int, random: np.random.Generator) -> None:
    """A CSV as spreadsheets write it: semicolons, a byte order mark, missing cells as N/A, a column without a cell."""
    table, who = twice(n, random)
    with file.open("w", newline="", encoding="utf-8-sig") as stream:
        lines = csv.writer(stream, delimiter=";")
        lines.writerow(["Customer No", *table, "remarks"])
        for row in random.permutation(who.size):
            cells = [table[name][row] or ("N/A" if row % 2 else "") for name in table]
            lines.writerow([f"C{who[row]:05d}", *cells, ""])


def _words(n: int, random: np.random.Generator) -> list[str]:
    parts = random.integers(0, len(_PARTS), (n, 4))
    lengths = random.integers(2, 5, n)
    return ["".join(_PARTS[part] for part in row[:k]) for row, k in zip(parts, lengths, strict=True)]
