"""Classes of pairs on patterns of agreement, fitted without labels.

The model of Fellegi and Sunter (1969) knows matches and strangers. Tables of people and firms have further kinds of
pairs that agree in several columns at once: a household, branches of a firm, one street, namesakes. Each is a class
here: in a share s of its pairs a column agrees as it does in matches, else as in strangers, so that the likelihood
ratio of a column is ``s R + 1 - s`` with R = m / u, and columns that relatives have in common cancel between classes.
Matches that moved are a class too, and count as matches. Shares of the classes, their s and m are found by expectation
maximization over the patterns of candidates; pairs that are no candidates are strangers; u is counted and stays.

A column's agreement is a *symbol*: 0 missing, 1 apart, 2 weak, and close and equal by how frequent the value is, in
`BINS` steps of two: that a rare value is equal says more. A missing cell says nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64

LEVELS, WEAK, CLOSE, EQUAL = 4, 2, 3, 4
"""Apart, weak, close, equal: 1 to 4; 0 is missing."""
BINS = 14
"""Of frequencies of values: 2, 3 to 4, 5 to 8, ... rows."""
SYMBOLS = 3 + 2 * BINS
BITS = 5
"""That a symbol takes."""
LEVEL_OF = np.array([0, 1, 2, *[3] * BINS, *[4] * BINS])
"""The level of a symbol."""
SYMBOL_OF = np.array([0, 1, 2, 3, 3 + BINS])
"""The symbol of a level, of a value that is rare."""

PLACE = frozenset({"place"})
PERSON = frozenset({"given", "surname", "name"})
NAMES = PERSON | {"company"}
CONTACT = frozenset({"email", "phone", "web"})
IDENTIFYING = frozenset({"given", "name", "date", "id", "company"})
"""Roles in which relatives differ."""

# m to begin with, and for how many pairs it counts in each round; rounds at most, and the change below which they end;
# the least share of strangers that a symbol has.
_FIRST_M = np.array([0.05, 0.05, 0.15, 0.75])
_PSEUDO = 2.0
_MAX_ROUNDS = 60
_TOLERANCE = 1e-5
_LEAST_U = 1e-9
_FEW_ROWS = 20
"""Of fewer rows a value that two share says as much as of so many."""
_MOST_APART = 0.2
_LEAST_APART = 0.02
"""Of given names of matches, so that twins do not take those that are mistyped."""
_MOST_MATCHES = 5.0
"""Matches for each row, at most."""


@dataclass(frozen=True)
class Column:
    """What is known of a column before matches are looked for.

    Attributes
    ----------
    role : of its kind. u : (4,) shares of the levels among strangers. of_symbol : (SYMBOLS,) share of strangers that
        have a symbol, given that a value is as frequent as it is; 1 where a cell is missing. frequent : how many rows
        have a value, where it is not rare.
    """

    role: str
    u: Float64
    of_symbol: Float64
    frequent: Mapping[str, int]

    @property
    def agreement(self) -> float:
        """How often strangers agree."""
        return float(self.u[2:].sum())


def column_of(
    role: str, u: Float64, frequent: Mapping[str, int], frequencies: Float64, typical: float, rows: float
) -> Column:
    """A column by how often strangers have its levels and how frequent its values are.

    Parameters
    ----------
    u : (4,). frequent : as `Column` has it. frequencies : (BINS,) rows that share a value, on average of the values of
        a bin; 0: there is none.
    typical : the same of all values. rows : that have a cell.
    """
    bins = np.where(frequencies > 0, frequencies, 2.0 ** np.arange(1, BINS + 1))
    equal = np.clip((bins - 1) / max(rows - 1, _FEW_ROWS), _LEAST_U, 0.999)
    close = u[2] * np.exp(np.clip(0.5 * np.log(bins / typical), -3, 3))
    of_symbol = np.concatenate([[1.0], u[:2], np.clip(close, _LEAST_U, 0.999), equal])
    # A value that two rows share says what it says, however seldom strangers agree on the whole.
    least = float(np.clip(max(u[3], equal[0]), _LEAST_U, 0.999))
    return Column(role, np.append(u[:3] / u[:3].sum() * (1 - least), least), of_symbol, frequent)


def plain_column(u: Float64) -> Column:
    """A column of (4,) shares of levels, whatever its values are; its symbols are `SYMBOL_OF` its levels."""
    return Column("other", u, np.append(1.0, u)[LEVEL_OF], {})


@dataclass(frozen=True)
class _Kind:
    """How a class starts: for roles, the share s of its pairs in which a column is as in matches, and its bounds."""

    name: str
    first: dict[str, tuple[float, float, float]]
    other: tuple[float, float, float]
    averaged: frozenset[str] = frozenset()
    """Roles whose equality counts as that of an average value: who shares them by chance has frequent ones."""
    prior: float = 0.02
    """Pairs of the class for each row, at the start."""


def _roles(*groups: tuple[Any, tuple[float, float, float]]) -> dict[str, tuple[float, float, float]]:
    return {role: values for roles, values in groups for role in roles}


KINDS = (
    _Kind("match", {}, (1.0, 1.0, 1.0), prior=0.1),
    _Kind(
        "moved",
        _roles(
            (PLACE, (0.05, 0.0, 1.0)),
            (("phone",), (0.8, 0.0, 1.0)),
            (IDENTIFYING, (0.97, 0.97, 1.0)),
        ),
        (0.95, 0.0, 1.0),
    ),
    _Kind(
        "relatives",
        _roles(
            (IDENTIFYING, (0.02, 0.0, 0.1)),
            (("email",), (0.02, 0.0, 1.0)),
            (("legal",), (0.0, 0.0, 0.0)),
        ),
        (0.8, 0.0, 1.0),
        prior=0.05,
    ),
    _Kind(
        "juniors",
        _roles(
            (("date", "id"), (0.01, 0.0, 0.03)),
            (("legal",), (0.0, 0.0, 0.0)),
            (("email", "phone"), (0.3, 0.0, 1.0)),
        ),
        (0.9, 0.0, 1.0),
        prior=0.005,
    ),
    _Kind(
        "twins",
        _roles(
            (("given", "name", "id"), (0.01, 0.0, 0.03)),
            (("email", "phone"), (0.3, 0.0, 1.0)),
        ),
        (1.0, 1.0, 1.0),
        prior=0.05,
    ),
    _Kind(
        "place",
        _roles(
            (PLACE, (0.8, 0.0, 1.0)),
            (NAMES | CONTACT | IDENTIFYING, (0.05, 0.0, 0.1)),
        ),
        (0.05, 0.0, 1.0),
    ),
    _Kind(
        "namesakes",
        _roles(
            (NAMES | {"email", "web"}, (0.8, 0.0, 1.0)),
            (("date",), (0.03, 0.0, 0.05)),
            (("id",), (0.02, 0.0, 0.02)),
            (("phone",), (0.05, 0.0, 0.1)),
        ),
        (0.05, 0.0, 1.0),
        averaged=NAMES,
    ),
)
_RELATED = frozenset({"relatives", "juniors"})
_IN_PART = {"legal": EQUAL}
"""The level that says of relatives what chance does not: branches have a name in part (weak), and legal forms
differ where firms of one name at one place are two."""
_MOST_APART_OF = dict.fromkeys(IDENTIFYING | {"surname"}, _MOST_APART) | dict.fromkeys(
    ("date", "id", "company", "legal"), 0.05
)


@dataclass(frozen=True)
class Mixture:
    """A fitted model.

    Attributes
    ----------
    columns : (d,). m : (d, 4) shares of the levels among matches. shared : (classes, d) s. in_part : (classes, d)
        shares of relatives who agree in part (`_IN_PART`) where they do not agree as matches do. shares : (classes,) of
        all pairs; the rest are strangers. kinds : names of the classes.
    """

    columns: Sequence[Column]
    m: Float64
    shared: Float64
    in_part: Float64
    shares: Float64
    kinds: Sequence[str]

    @cached_property
    def tables(self) -> Float64:
        """(classes, d * SYMBOLS) log likelihood ratio of a symbol against strangers."""
        return _tables(self.columns, self.m, self.shared, self.in_part, self.kinds)

    @property
    def n_matching(self) -> int:
        """Classes of matches: the first ones."""
        return _n_matching(self.kinds)

    def by_class(self, symbols: NDArray[Any]) -> Float64:
        """(n, d) symbols -> (classes + 1, n) log of the joint share, strangers last."""
        return _joint(self.tables, self.shares, symbols)

    def log_odds(self, symbols: NDArray[Any]) -> Float64:
        """(n, d) symbols -> (n,) log odds of a match."""
        odds, n = np.zeros(symbols.shape[0]), self.n_matching
        for start in range(0, odds.size if symbols.size else 0, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            joint = self.by_class(symbols[part])
            odds[part] = np.logaddexp.reduce(joint[:n]) - np.logaddexp.reduce(joint[n:])
        return odds

    def contributions(self, symbols: NDArray[Any]) -> list[float]:
        """(d,) symbols of one pair -> what each column adds to the log odds, all else being as it is."""
        without = np.repeat(symbols[None], symbols.size + 1, axis=0)
        without[np.arange(symbols.size), np.arange(symbols.size)] = 0
        odds = self.log_odds(without)
        return [float(odds[-1] - each) for each in odds[:-1]]

    def symbols(self, levels: NDArray[Any], left: Sequence[Any], right: Sequence[Any]) -> NDArray[Any]:
        """(d,) symbols of one pair, by (d,) levels and the normal forms of both sides."""
        levels = levels.copy()
        for i, j, needs_both in exchanged_places([column.role for column in self.columns]):
            crosses = [left[i] == right[j] is not None, left[j] == right[i] is not None]
            is_plain = any(left[at] == right[at] is not None for at in (i, j))
            if not is_plain and (all(crosses) if needs_both else any(crosses)):
                levels[[i, j]] = CLOSE, CLOSE if all(crosses) else 0
        rows = (
            max(column.frequent.get(a, 2), column.frequent.get(b, 2))
            for column, a, b in zip(self.columns, left, right, strict=True)
        )
        symbols: NDArray[Any] = SYMBOL_OF[levels] + np.where(levels > 2, [bin_of(n) for n in rows], 0)
        return symbols

    def is_full(self, n_pairs: float, n_rows: int) -> bool:
        """Whether there are as many matches as may be, so that strangers are taken for some."""
        return bool(self.shares[: self.n_matching].max() * n_pairs >= 0.99 * _MOST_MATCHES * n_rows)

    def weight(self, number: int) -> float:
        """What a column says of a match at most: the log of m / u where it is equal, on average."""
        return float(max(np.log(self.m[number, 3] / self.columns[number].u[3]), 0.0))

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": [
                {
                    "role": column.role,
                    "u": column.u.tolist(),
                    "of_symbol": column.of_symbol.tolist(),
                    "frequent": dict(column.frequent),
                }
                for column in self.columns
            ],
            "m": self.m.tolist(),
            "shared": self.shared.tolist(),
            "in_part": self.in_part.tolist(),
            "shares": self.shares.tolist(),
            "kinds": list(self.kinds),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Mixture":
        """What `to_json` gave, to the bit."""
        columns = [
            Column(each["role"], np.array(each["u"]), np.array(each["of_symbol"]), each["frequent"])
            for each in value["columns"]
        ]
        m, shared, in_part, shares = (np.array(value[name]) for name in ("m", "shared", "in_part", "shares"))
        return cls(columns, m.reshape(-1, LEVELS), shared, in_part, shares, tuple(value["kinds"]))


def _n_matching(kinds: Sequence[str]) -> int:
    return sum(kind in ("match", "moved") for kind in kinds)


def exchanged_places(roles: Sequence[str]) -> list[tuple[int, int, bool]]:
    """Places of two columns whose cells may stand in each other's: of a given name and a surname, where there is one of
    each, and both do; and of two phones, addresses of mail or sites, of which one is enough."""
    names = [at for role in ("given", "surname") for at in range(len(roles)) if roles[at] == role]
    is_one_of_each = sorted(roles[at] for at in names) == ["given", "surname"]
    contacts = combinations((at for at in range(len(roles)) if roles[at] in CONTACT), 2)
    return [
        *([(names[0], names[1], True)] if is_one_of_each else []),
        *((i, j, False) for i, j in contacts if roles[i] == roles[j]),
    ]


def bin_of(n: int) -> int:
    """The bin of a value that n rows have."""
    return min(max((n - 1).bit_length() - 1, 0), BINS - 1)


def chances(log_odds: Float64) -> Float64:
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -500, 500))))


def level_weights(m: Float64, u: Float64) -> Float64:
    """(5,) log of m / u by level: never more for less agreement, and none where agreement would speak against a
    match; 0 where a cell is missing."""
    ratio = np.log(m / u)
    if ratio[-1] <= 0:
        return np.zeros(m.size + 1)
    return np.append(0.0, np.minimum.accumulate(ratio[::-1])[::-1])


def _ratios(column: Column, m: Float64) -> tuple[Float64, Float64]:
    """(SYMBOLS,) m / u by symbol, by the frequency of the value and as of an average one."""
    average = np.exp(level_weights(m, column.u))
    if not average[1:].any() or average[-1] <= 1:
        return np.ones(SYMBOLS), np.ones(SYMBOLS)
    ratio = m[LEVEL_OF - 1] / column.of_symbol
    ratio[0] = 1.0
    # Close says no more than equal of the same frequency.
    close, equal = slice(3, 3 + BINS), slice(3 + BINS, SYMBOLS)
    ratio[equal] = np.maximum(ratio[equal], 1e-3)
    ratio[close] = np.minimum(ratio[close], ratio[equal])
    ratio[1:3] = average[1:3]
    return ratio, average[LEVEL_OF]


def _part_levels(columns: Sequence[Column]) -> NDArray[Any]:
    """(d,) the level at which relatives agree in part."""
    return np.array([_IN_PART.get(column.role, WEAK) for column in columns])


def _unshared_ratios(columns: Sequence[Column], in_part: Float64) -> Float64:
    """(d, SYMBOLS) likelihood ratio of relatives against strangers, where they do not agree as matches do."""
    level = _part_levels(columns)[:, None]
    u = np.stack([column.u for column in columns])
    of_part = np.take_along_axis(u, level - 1, axis=1)
    part = in_part[:, None]
    of_apart = (u[:, :1] + of_part - part) / u[:, :1]
    return np.where(level == LEVEL_OF, part / of_part, np.where(LEVEL_OF == 1, of_apart, 1.0))


def _tables(
    columns: Sequence[Column], m: Float64, shared: Float64, in_part: Float64, kinds: Sequence[str]
) -> Float64:
    ratios, average = (np.stack(each) for each in zip(*map(_ratios, columns, m), strict=True))
    out = np.empty((len(kinds), len(columns), SYMBOLS))
    of_kind = {kind.name: kind for kind in KINDS}
    for number, kind in enumerate(kinds):
        is_average = np.array([column.role in of_kind[kind].averaged for column in columns])
        r = np.where(is_average[:, None], average, ratios)
        s = shared[number][:, None]
        unshared = _unshared_ratios(columns, in_part[number]) if kind in _RELATED else 1.0
        out[number] = np.log(s * r + (1 - s) * unshared)
    return out.reshape(len(kinds), -1)


# Patterns whose shares are summed at a time.
_AT_ONCE = 65_536


def _joint(tables: Float64, shares: Float64, symbols: NDArray[Any]) -> Float64:
    n, d = symbols.shape
    out = np.empty((shares.size + 1, n))
    offsets = SYMBOLS * np.arange(d)
    for start in range(0, n, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        places = symbols[part] + offsets
        for at, table in enumerate(tables):
            out[at, part] = table[places].sum(axis=1)
    # Tables are against strangers, whose own likelihood ratio is 1: of them only the share is left.
    out[:-1] += np.log(shares)[:, None]
    out[-1] = np.log1p(-shares.sum())
    return out


def _start(columns: Sequence[Column]) -> tuple[list[_Kind], NDArray[Any]]:
    """Classes that these columns can tell from matches, and (classes, d, 3) first s and its bounds."""
    kinds, starts = [], []
    roles = {column.role for column in columns}
    for kind in KINDS:
        if kind.name == "twins" and ("date" not in roles or roles.isdisjoint(("given", "name"))):
            continue
        values = np.array([kind.first.get(column.role, kind.other) for column in columns])
        tells = np.array([column.agreement < 0.5 for column in columns])
        is_apart, is_shared = (values[:, 0] < 0.2) & tells, (values[:, 0] > 0.5) & tells
        if kind.name == "match" or (is_apart.any() and is_shared.any()):
            kinds.append(kind)
            starts.append(values)
    return kinds, np.stack(starts)


def fit(
    columns: Sequence[Column], symbols: NDArray[Any], counts: Float64, n_pairs: float, n_rows: int
) -> Mixture:
    """Find classes by expectation maximization over the patterns of candidates.

    Parameters
    ----------
    symbols, counts : (n, d) patterns and (n,) how many candidates have each. n_pairs : of all rows, candidates or not.
    """
    kinds, starts = _start(columns)
    names = [kind.name for kind in kinds]
    shared, least, most = np.moveaxis(starts, 2, 0).copy()
    m = np.tile(_FIRST_M, (len(columns), 1))
    u = np.stack([column.u for column in columns])
    part_levels = _part_levels(columns)
    of_part = u[np.arange(len(columns)), part_levels - 1]
    in_part = np.tile(of_part, (len(kinds), 1))
    # Branches have a name in part. A person's initial is no brother's: he has one by chance.
    has_part = np.array([column.role not in PERSON for column in columns])
    shares = np.minimum(0.2 / len(kinds), np.array([kind.prior for kind in kinds]) * n_rows / n_pairs)
    n_matching, d = _n_matching(names), len(columns)
    flat = (symbols + SYMBOLS * np.arange(d)).ravel()
    most_apart = np.array([_MOST_APART_OF.get(column.role, 1.0) for column in columns])
    roles = np.array([column.role for column in columns])
    is_given, is_surname = roles == "given", roles == "surname"
    least_apart = np.where(is_given | (roles == "name"), _LEAST_APART, 0.0) * ("twins" in names)
    level = np.zeros((SYMBOLS, LEVELS + 1))
    level[np.arange(SYMBOLS), LEVEL_OF] = 1
    for _ in range(_MAX_ROUNDS):
        tables = _tables(columns, m, shared, in_part, names)
        joint = _joint(tables, shares, symbols)
        # The expectation: how many candidates of each pattern are of each class; what is missing are strangers.
        posterior = np.exp(joint[:-1] - np.logaddexp.reduce(joint)) * counts
        before = np.concatenate([m.ravel(), shared.ravel()])
        of_match = np.zeros((d, SYMBOLS))
        ratios = np.exp(tables).reshape(len(kinds), d, SYMBOLS)
        # The maximization: each class's s and part, and together m, from what is expected of its pairs.
        for number in range(len(kinds)):
            expected = np.bincount(flat, weights=np.repeat(posterior[number], d), minlength=d * SYMBOLS)
            expected = expected.reshape(d, SYMBOLS)
            s = shared[number][:, None]
            unshared = _unshared_ratios(columns, in_part[number]) if names[number] in _RELATED else 1.0
            # Of each symbol, the part that is as in matches: s R / (s R + 1 - s).
            by_chance = expected * (1 - s) * unshared / ratios[number]
            agreeing = expected - by_chance
            if names[number] in _RELATED:
                # Where they do not agree as matches: how many agree in part, with five pairs more that are as strangers
                # are.
                levels = by_chance @ level
                parts = levels[np.arange(d), part_levels] + 5 * of_part
                both = parts + levels[:, 1] + 5 * u[:, 0]
                in_part[number] = np.where(has_part, (u[:, 0] + of_part) * parts / both, of_part)
            if number < n_matching:
                of_match += agreeing
            if number:
                # Without symbol 0: a missing cell says nothing of s. What s began with counts as one pair.
                total = expected[:, 1:].sum(axis=1)
                shared[number] = (agreeing[:, 1:].sum(axis=1) + starts[number, :, 0]) / (total + 1)
        shared = np.clip(shared, least, most)
        m = (of_match @ level)[:, 1:] + _PSEUDO * _FIRST_M
        m /= m.sum(axis=1, keepdims=True)
        if "twins" in names:
            # Given names that are apart more often than last names, which people change, are those of twins.
            most_apart[is_given] = min(np.max(m[is_surname, 0], initial=_LEAST_APART), _MOST_APART)
        apart = np.clip(m[:, 0], least_apart, most_apart)
        m[:, 1:] *= ((1 - apart) / m[:, 1:].sum(axis=1))[:, None]
        m[:, 0] = apart
        shares = np.clip(posterior.sum(axis=1) / n_pairs, 1e-15, min(0.2, _MOST_MATCHES * n_rows / n_pairs))
        if np.abs(np.concatenate([m.ravel(), shared.ravel()]) - before).max() < _TOLERANCE:
            break
    return Mixture(columns, m, shared, in_part, shares, tuple(names))
