"""Links of records that are texts: products, papers, songs. No column has an identity of its own, and all words count.

A record is the words of all its cells, each worth what its rarity says. Candidates are the ten records that share most
words and trigrams with each, the rarest first; their score is the cosine of their words. A code (letters and digits
mixed, or five digits, without the punctuation in it) that few records have names the thing: records that share one are
halfway nearer to 1, and those whose codes are all others score half, unless one begins with the other. Two tables may
write one code so: their records are a quarter nearer to 1 then, while in one table these are variants of a thing. Links
are pairs that are each other's best, or the best of one that is nearly the best of the other; what share of them is
false, nothing here can tell.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.records.comparators import tokenize_texts
from pairmark.models.records.compare import LinkField, register
from pairmark.models.records.kernels import tokens
from pairmark.models.records.kernels.tokens import Cells
from pairmark.models.records.neighbors import RankedKeys, cell_keys, distinct_codes

CUT: Final = 0.5
_MOST_POSTINGS, _COMMON = 1_000, 0.2
"""Rows that are looked at for the nearest of each; terms of a larger share of rows are left out."""
_MOST_CHARS = 2_000
_GRAM_CHARS, _MOST_GRAMS = 400, 20_000_000
"""The longest texts whose trigrams count, and of how many characters of all rows, about."""
_FEW, _LEAST_CODE, _LEAST_NUMBER = 20, 4, 5
"""Records that may have a code; the fewest characters of one, and digits of one that is a number."""
_NEARLY, _BEGUN = 0.9, 0.25
_LEAST_NORM, _PAIRS_AT_ONCE = 1e-12, 65_536
_BY_CHANCE = 0.25
_AHEAD, LEAST_SCORE = 0.1, 0.2
"""By how much the best must be ahead of the next on both sides to be linked below the cut; no link scores less."""
_HYPHENS = re.compile(r"(?<=[a-z0-9])[-/_](?=[a-z]*\d)|(?<=\d)[-/_](?=[a-z0-9])")
_MIXED = re.compile(r"(?<![^\W_])(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{4,}(?![^\W_])")
_PARTS = re.compile(rf"({_MIXED.pattern}) (?=([a-z0-9]+)(?![^\W_]))")
"""What is left out of codes; a code; and one with a word after it that may be of it: others may have both in one."""
_SELECTIVE: Final = {
    **dict.fromkeys(("company", "name", "id", "web"), 3.0),
    **dict.fromkeys(("email", "phone", "street"), 20.0),
    **{"date": 6.0, "postcode": np.inf},
}
"""Kinds that tell things apart where a value has at most so many rows."""
BY_WORDS: Final = "records are compared as texts, by the words of all columns"
_LEAST_WORDS: Final = {"text": 2.5, "category": 2.5, "name": 3.0, "company": 3.0}


class TextLinks(NamedTuple):
    """Candidates, rows ``a`` before ``b``, ascending, with their scores, and which of them are linked; ``terms`` score
    any pairs."""

    terms: "Terms"
    a: Int64
    b: Int64
    score: Float64
    is_link: Bool


def texts_or_columns(connection: Any, fields: Sequence[LinkField], *, found_none: bool = False) -> str | None:
    """Why the records of ``source(row, c0, ...)`` are linked as texts, in a sentence; None: by their columns.

    Parameters
    ----------
    found_none : whether hardly any records agree in enough columns. Then words are all there is, unless a column is of
        given names, or tells things apart besides the one that names them.
    """
    counts = ", ".join(
        f"count(c{number}), approx_count_distinct(c{number}), avg(len(string_split(trim(c{number}), ' ')))"
        for number in range(len(fields))
    )
    n, *values = connection.execute(f"SELECT count(*), {counts} FROM source").fetchall()[0]
    texts, identifying = [], []
    for number, field in enumerate(fields):
        filled, distinct, words = values[3 * number : 3 * number + 3]
        if not filled or filled < _COMMON * n:
            continue
        rows = filled / max(distinct, 1)
        is_text = field.kind in _LEAST_WORDS and (found_none or words >= _LEAST_WORDS[field.kind])
        if is_text and rows <= 3 and filled >= n / 2:
            texts.append((words, field.name))
        if rows <= _SELECTIVE.get(field.kind, 0):
            identifying.append(field.name)
    best = max(texts, default=(0, ""))[1]
    others = {*identifying} - {best}
    if found_none:
        of_people = any(field.kind == "given" for field in fields)
        if others or of_people:
            return None
        return (
            f"{BY_WORDS}: hardly any two agree in enough columns. Variants look alike then: judge some links"
        )
    if not texts or len(others) > 1:
        return None
    return f"{BY_WORDS}: {best!r} says most, and no two other columns tell things apart"


def read_texts(connection: Any, fields: Sequence[LinkField]) -> tuple[list[str], list[str]]:
    """Of each row of ``hashes``, from ``source(row, c0, ...)``, its words, and its numbers and dates in one writing."""
    register(connection)
    plain = [number for number, field in enumerate(fields) if field.kind not in ("number", "date", "boolean")]

    def joined(cells: Iterable[str]) -> str:
        every = ", ".join(["''", *cells])
        return f"regexp_replace(lower(strip_accents(concat_ws(' ', {every}))), '\\s+', ' ', 'g')"

    words = (f"left(c{number}, {_MOST_CHARS})" for number in plain)
    others = (
        field.definition.normal(f"c{number}") for number, field in enumerate(fields) if number not in plain
    )
    rows = connection.execute(
        f"SELECT {joined(words)}, {joined(others)} FROM source SEMI JOIN hashes USING (row) ORDER BY row"
    ).fetchall()
    return [row[0] for row in rows], [row[1] for row in rows]


def link_texts(
    words: Sequence[str],
    numbers: Sequence[str],
    tables: Int64,
    is_alone: Bool,
    *,
    cut: float = CUT,
    one_to_one: bool = False,
    beats_chance: bool = False,
) -> TextLinks:
    """Candidates among records, scored and linked.

    Parameters
    ----------
    words, numbers : as `read_texts` gives them. tables : (n,) of each row.
    is_alone : of each table, whether none of its rows can be linked to another of it.
    cut : links score above it. one_to_one : links are each other's best.
    beats_chance : at or above the least score of a link, tables whose words are in other rows have `_BY_CHANCE` of its
        links at most (Elias and Gygi 2007, "Target-decoy search strategy"). Fewer than four links are none then; where
        the tables but the largest have fewer rows, they stay: nothing tells chance there.
    """
    terms = Terms.of(words, numbers, begun=_BEGUN if is_alone.all() else 0.0)

    def link(terms: Terms) -> TextLinks:
        a, b = terms.keys.pairs(tables, is_alone, _MOST_POSTINGS, _COMMON)
        score = terms.scores(a, b)
        return TextLinks(terms, a, b, score, _links(a, b, score, tables.size, cut, one_to_one))

    links = link(terms)
    if beats_chance and tables.size - np.bincount(tables, minlength=1).max() >= 1 / _BY_CHANCE:
        by_chance = link(terms.by_chance(tables))
        least = _least_score(links.score[links.is_link], by_chance.score[by_chance.is_link])
        links.is_link[links.score < least] = False
    return links


class Terms(NamedTuple):
    """Terms of rows, words and trigrams, their ``weights``, and which of them are codes that few have; numbers of
    codes, ``longer``, which begin with others, ``shorter``; by which part of the way to 1 records of such two are
    nearer: ``begun``.
    """

    keys: RankedKeys
    weights: Float64
    is_code: Bool
    longer: Int64
    shorter: Int64
    begun: float

    @classmethod
    def of(
        cls, words: Sequence[str], numbers: Sequence[str], queries: Int64 | None = None, begun: float = 0.0
    ) -> "Terms":
        """Terms of rows, by their words and numbers; of all rows, or those that the rows ``queries`` have."""
        n = len(words)
        texts = _with_plain_codes("\n".join(words)).split("\n") if n else []
        cells = tokenize_texts([*texts, *numbers])
        long = np.diff(cells.token_starts)
        is_number = (cells.flags & tokens.NUMBER) > 0
        is_code = (cells.flags & tokens.MODEL > 0) & (long >= np.where(is_number, _LEAST_NUMBER, _LEAST_CODE))
        # Numbers and dates are no codes, and neither are prices in a text.
        is_code[cells.row_tokens[n] :] = False
        points = np.flatnonzero(cells.squeezed == ord("."))
        is_code[np.searchsorted(cells.token_starts, points, side="right") - 1] = False
        both, grams = np.ones(2, dtype=np.bool_), min(_GRAM_CHARS, _MOST_GRAMS // max(n, 1))
        keys, rows = cell_keys(cells, n, both, grams)
        if queries is not None:
            common = np.unique(keys[np.isin(rows, queries)])
            places = np.minimum(np.searchsorted(common, keys), common.size - 1)
            keys, rows = (of[common[places] == keys] for of in (keys, rows))
        ranked = RankedKeys.of(keys, rows, n)
        is_rare = ranked.counts <= min(_FEW, max(n // 100, _LEAST_CODE))
        codes = is_rare & np.isin(ranked.keys, cells.hashes[is_code] & ~np.int64(1))
        weights = np.where(ranked.is_gram, 0.0, np.log((1 + n) / (1 + ranked.counts)))
        # A price that nobody else has may be one that changed.
        numeric = np.isin(ranked.keys, cells.hashes[cells.row_tokens[n] :] & ~np.int64(1))
        weights[numeric & (ranked.counts == 1)] /= 2
        pairs = _begun(cells, np.flatnonzero(is_code), ranked.keys, np.flatnonzero(codes))
        return cls(ranked, weights, codes, *pairs, begun)

    def nearest(self, rows: Int64, tables: Int64, is_alone: Bool, n_nearest: int) -> Int64:
        """`RankedKeys.nearest`: no rule of candidates has a say in it."""
        return self.keys.nearest(rows, tables, is_alone, n_nearest, _MOST_POSTINGS, _COMMON)

    def by_chance(self, tables: Int64) -> "Terms":
        """The terms of all tables but the first in other rows of their tables, each of which has as many rare and
        frequent ones as it had: what is alike then is so by chance."""
        n, size = tables.size, self.keys.counts.size
        row, ranks = np.repeat(np.arange(n), np.diff(self.keys.starts)), self.keys.ranks.copy()
        moving = np.flatnonzero(tables[row] > 0)
        kind = 2 * np.log2(self.keys.counts).astype(np.int64) + self.keys.is_gram
        like = kind[ranks[moving]], tables[row[moving]]
        any_order = np.lexsort((np.random.default_rng(0).random(moving.size), *like))
        ranks[moving[np.lexsort(like)]] = ranks[moving[any_order]]
        codes = distinct_codes(row * size + ranks)
        starts, ranks = np.searchsorted(codes, np.arange(n + 1) * size), (codes % size).astype(np.int32)
        counts = np.bincount(ranks, minlength=size)
        keys = self.keys._replace(starts=starts, ranks=ranks, counts=counts)
        # A code of another thing is no code by chance.
        return self._replace(keys=keys, is_code=np.zeros_like(self.is_code))

    def scores(self, a: Int64, b: Int64) -> Float64:
        """Cosines of pairs of rows, with what their codes say."""
        words = self._matrix(self.weights)
        norms = np.sqrt(words.power(2).sum(axis=1))
        score = _products(words, words, a, b) / np.maximum(norms[a] * norms[b], _LEAST_NORM)
        codes = self._matrix(self.is_code.astype(np.float64))
        places, shape = (self.longer, self.shorter), (self.is_code.size, self.is_code.size)
        shorter = codes @ csr_array((np.ones(self.longer.size), places), shape=shape)
        is_shared = _products(codes, codes, a, b) > 0
        is_begun = (_products(codes, shorter, a, b) > 0) | (_products(shorter, codes, a, b) > 0)
        has_code = np.diff(codes.indptr) > 0
        is_other = has_code[a] & has_code[b]
        scores = [(1 + score) / 2, score + self.begun * (1 - score), score / 2]
        return np.asarray(np.select([is_shared, is_begun, is_other], scores, score))

    def _matrix(self, weights: NDArray[Any]) -> Any:
        """(n, t) sparse rows of the terms that weigh something."""
        starts, ranks = self.keys.starts, self.keys.ranks
        matrix = csr_array((weights[ranks], ranks, starts), shape=(starts.size - 1, weights.size), copy=True)
        matrix.eliminate_zeros()
        return matrix


def _with_plain_codes(text: str) -> str:
    """A text in which codes have no punctuation, and no blanks where it has them without."""
    text = _HYPHENS.sub("", text)
    codes = frozenset(_MIXED.findall(text))
    return _PARTS.sub(lambda found: found[1] if found[1] + found[2] in codes else found[0], text)


def _begun(cells: Cells, places: Int64, keys: Int64, codes: Int64) -> tuple[Int64, Int64]:
    """Numbers of codes, and of others that they begin with, but not within a number.

    Parameters
    ----------
    places : of tokens that may be codes. keys : by number. codes : numbers of those that are.
    """
    numbers = {int(keys[number]): int(number) for number in codes}
    named = {}
    for place in places:
        number = numbers.get(int(cells.hashes[place]) & ~1)
        if number is not None:
            token = cells.squeezed[cells.token_starts[place] : cells.token_starts[place + 1]]
            named["".join(map(chr, token))] = number
    pairs = [
        (number, named[code[:end]])
        for code, number in named.items()
        for end in range(_LEAST_CODE, len(code))
        if code[:end] in named and not code[end - 1 : end + 1].isdigit()
    ]
    longer, shorter = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return longer, shorter


def _products(rows: Any, others: Any, a: Int64, b: Int64) -> Float64:
    """Of pairs of sparse rows, some at a time."""
    parts = np.array_split(np.stack([a, b]), 1 + a.size // _PAIRS_AT_ONCE, axis=1)
    return np.concatenate([rows[one].multiply(others[other]).sum(axis=1) for one, other in parts])


def _least_score(scores: Float64, nulls: Float64) -> float:
    """The least score of a link; infinite where chance brings too many."""
    ranked, nulls = np.sort(scores), np.sort(nulls)
    n_nulls, n_links = (of.size - np.searchsorted(of, ranked) for of in (nulls, ranked))
    return float(ranked[n_nulls + 1 <= _BY_CHANCE * n_links].min(initial=np.inf))


def _links(a: Int64, b: Int64, score: Float64, n: int, cut: float, one_to_one: bool) -> Bool:
    """Which candidates are linked."""
    pairs = np.arange(a.size)
    row, pair = np.concatenate([a, b]), np.concatenate([pairs, pairs])
    # By row, largest score first; of equal ones the first pair.
    order = np.lexsort((pair, -score[pair], row))
    row, pair = row[order], pair[order]
    starts = np.searchsorted(row, np.arange(n + 1))
    first, second = np.full(n, -1), np.zeros(n)
    has, has_next = np.diff(starts) > 0, np.diff(starts) > 1
    first[has] = pair[starts[:-1][has]]
    second[has_next] = score[pair[starts[:-1][has_next] + 1]]
    is_mutual = (first[a] == pairs) & (first[b] == pairs)
    ahead = score - np.maximum(second[a], second[b])
    linked = is_mutual & ((score > cut) | ((ahead > _AHEAD) & (score > min(LEAST_SCORE, cut))))
    if not one_to_one:
        least, most = (side(score[first[a]], score[first[b]]) for side in (np.minimum, np.maximum))
        linked |= (score > cut) & (score >= least) & (score >= _NEARLY * most)
    return np.asarray(linked)
