"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Text of a file, which occurs once, and what stands there instead."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A break and the tests that must notice.

    Attributes
    ----------
    guarantee : the promise, in the docs' words, that nobody would keep.
    tests : pytest's names of the tests of which one must fail.
    """

    name: str
    guarantee: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def mutant(name: str, guarantee: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """A mutant of one edit."""
    return Mutant(name=name, guarantee=guarantee, edits=(Edit(file=file, old=old, new=new),), tests=tests)
