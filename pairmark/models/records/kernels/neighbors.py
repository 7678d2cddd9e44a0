"""Neighbors of records, in compiled loops: their keys, what rows share, and what the rivals of a pair score."""

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.records.kernels.tokens import FNV_PRIME, FNV_START


@kernel
def neighbor_keys(chars, starts, hashes, row_tokens, n, is_text, max_chars, keys, rows):
    """Keys by which rows are neighbors, row after row; returns how many there are.

    Of a text the hash of each token, and of its trigrams where it has at most ``max_chars`` characters; of any other
    cell the hash of the whole. The lowest bit of a key is set for trigrams.

    Parameters
    ----------
    chars, starts, hashes, row_tokens : of `Cells`, field after field, ``n`` rows each.
    is_text : (F,) of each field. keys : int64. rows : int32.
    """
    size = 0
    for row in range(n):
        for field in range(is_text.shape[0]):
            cell = field * n + row
            first, last = starts[cell], starts[cell + 1]
            if first == last:
                continue
            if not is_text[field]:
                # With the field in it: equal cells of different columns have no key in common. Tokens and trigrams
                # have, whatever text they are of.
                code = FNV_START ^ np.uint64(field + 1)
                for i in range(first, last):
                    code = (code ^ np.uint64(chars[i])) * FNV_PRIME
                keys[size], rows[size] = np.int64(code) & ~np.int64(1), row
                size += 1
                continue
            for i in range(row_tokens[cell], row_tokens[cell + 1]):
                keys[size], rows[size] = hashes[i] & ~np.int64(1), row
                size += 1
            if last - first > max_chars:
                continue
            # From one character early to one late, spaces there: how a text begins and ends counts too.
            for i in range(first - 1, last - 1):
                code = FNV_START
                for k in range(i, i + 3):
                    char = np.uint64(chars[k]) if first <= k < last else np.uint64(32)
                    code = (code ^ char) * FNV_PRIME
                keys[size], rows[size] = np.int64(code) | np.int64(1), row
                size += 1
    return size


@kernel
def add_postings(rows, starts, stops, weights, considered, totals, touched):
    """Add each key's weight to its rows; returns how many rows got any.

    Parameters
    ----------
    rows : int32 of all keys. starts, stops, weights : (k,) of the keys to add. considered : (n,) which rows count, or
        nothing where all do. totals : (n,) uint32 zeros, become the sums. touched : (n,) int32, the rows that got any.
    """
    size = 0
    for key in range(starts.shape[0]):
        weight = weights[key]
        for i in range(starts[key], stops[key]):
            row = rows[i]
            if considered.shape[0] and not considered[row]:
                continue
            if totals[row] == 0:
                touched[size] = row
                size += 1
            totals[row] += weight
    return size


@kernel
def compare_with_rivals(starts, others, scores, row_of_pair, other, own_scores, out):
    """Of one side of some pairs: how many rivals score more, the best rival's score and the second's, NaN without.

    Parameters
    ----------
    starts : (n + 1,) int64; candidates of row r are ``others`` and ``scores`` from ``starts[r]`` to ``starts[r + 1]``.
    row_of_pair, other : (k,) int64, the row whose candidates are rivals, and the row on the other side, which is none.
    own_scores : (k,) float64 of the pairs. out : (k, 3) float64.
    """
    for k in range(row_of_pair.shape[0]):
        above, best, second = 0, -np.inf, -np.inf
        for place in range(starts[row_of_pair[k]], starts[row_of_pair[k] + 1]):
            if others[place] == other[k]:
                continue
            score = scores[place]
            if score > own_scores[k]:
                above += 1
            if score > best:
                best, second = score, best
            elif score > second:
                second = score
        out[k, 0] = above
        out[k, 1] = best if best > -np.inf else np.nan
        out[k, 2] = second if second > -np.inf else np.nan


@kernel
def nominate_each(starts, terms, offsets, rows, worth, tables, is_alone, queries, most_postings, best, sums):
    """The rows that share most with each of some rows, by the worth of what they share, rarest terms first.

    Parameters
    ----------
    starts, terms : terms of row r are ``terms[starts[r]:starts[r + 1]]``, the rarest first.
    offsets, rows : the other way round, rows of each term. worth : (t,) int64 of each term; 0 is left out.
    tables : (n,) of each row. is_alone : of each table, whether none of its rows is nominated for another of it.
    queries : (q,) int64 of rows. most_postings : rows that are looked at for each.
    best : (q, k) int64 of rows, -1 where there are no more. sums : (q, k) int64, what they share.
    """
    totals = np.zeros(tables.shape[0], dtype=np.int64)
    touched = np.empty(most_postings, dtype=np.int64)
    for query in range(queries.shape[0]):
        asked = queries[query]
        left, size = most_postings, 0
        for i in range(starts[asked], starts[asked + 1]):
            term = terms[i]
            n = offsets[term + 1] - offsets[term]
            # Terms that follow have as many rows or more.
            if n > left:
                break
            left -= n
            if worth[term] == 0:
                continue
            for k in range(offsets[term], offsets[term + 1]):
                row = rows[k]
                if row == asked or (tables[row] == tables[asked] and is_alone[tables[asked]]):
                    continue
                if totals[row] == 0:
                    touched[size] = row
                    size += 1
                totals[row] += worth[term]
        for i in range(size):
            row = touched[i]
            total = totals[row]
            # Zero again for the next query: only rows that were touched need it.
            totals[row] = 0
            # Kept in order as it is found: largest first, of equal sums the first row.
            place = best.shape[1]
            while place > 0 and (
                best[query, place - 1] < 0
                or sums[query, place - 1] < total
                or (sums[query, place - 1] == total and best[query, place - 1] > row)
            ):
                place -= 1
                if place + 1 < best.shape[1]:
                    best[query, place + 1], sums[query, place + 1] = best[query, place], sums[query, place]
            if place < best.shape[1]:
                best[query, place], sums[query, place] = row, total
