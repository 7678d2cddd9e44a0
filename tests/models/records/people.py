"""Made-up people with typing mistakes, for tests of records."""

from typing import Any

import numpy as np

FIRST = [
    "ana",
    "bruno",
    "carla",
    "dmitri",
    "elena",
    "farid",
    "greta",
    "hugo",
    "ines",
    "jonas",
    "karin",
    "luis",
]
LAST = [
    "moreau",
    "petrov",
    "silva",
    "kowalski",
    "nakamura",
    "okafor",
    "lindqvist",
    "haddad",
    "novak",
    "ferreira",
]
STREETS = ["harbour lane", "mill road", "station street", "orchard way", "king's row", "bridge street"]


def typo(text: str, rng: Any) -> str:
    """A text with one letter changed."""
    at = int(rng.integers(len(text)))
    return text[:at] + "abcdefghij"[int(rng.integers(10))] + text[at + 1 :]


def people(n: int, seed: int = 0, copies: int = 2) -> tuple[dict[str, list[Any]], np.ndarray]:
    """A table of ``n`` people with some copies each, and who each row is of."""
    rng = np.random.default_rng(seed)
    rows, who = [], []
    for person in range(n):
        row = {
            "given": FIRST[rng.integers(len(FIRST))],
            "surname": LAST[rng.integers(len(LAST))],
            "address": f"{rng.integers(1, 200)} {STREETS[rng.integers(len(STREETS))]}",
            "born": f"19{rng.integers(30, 99)}-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}",
            "code": f"{rng.integers(10**6):07d}",
            "member": ["yes", "no"][rng.integers(2)],
            "weight": f"{rng.normal(70, 12):.1f}",
            "home": f"{rng.uniform(40, 60):.4f}, {rng.uniform(-5, 20):.4f}",
        }
        for copy in range(copies):
            other = dict(row)
            if copy:
                for name in rng.permutation(["given", "surname", "address", "code"])[:2]:
                    other[name] = "" if rng.random() < 0.3 else typo(other[name], rng)
            rows.append(other)
            who.append(person)
    return {name: [row[name] for row in rows] for name in rows[0]}, np.array(who)
