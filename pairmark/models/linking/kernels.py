"""Texts that share rare terms, in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def list_rows(starts, terms, offsets, rows):
    """Rows by term, ascending, from terms by row.

    Parameters
    ----------
    starts, terms : terms of row r are ``terms[starts[r]:starts[r + 1]]``. offsets : (t + 1,) where the rows of each
        term begin; the place of its next row while they are listed, and that of the next term after. rows : int32.
    """
    for row in range(starts.shape[0] - 1):
        for i in range(starts[row], starts[row + 1]):
            rows[offsets[terms[i]]] = row
            offsets[terms[i]] += 1


@kernel
def nominate(starts, terms, offsets, rows, worth, tables, is_alone, queries, most_postings, best, sums):
    """The rows that share most with each of some rows, by the worth of what they share, rarest terms first.

    Parameters
    ----------
    starts, terms : as in `list_rows`, the terms of a row by how often they occur, the rarest first.
    offsets, rows : as in `list_rows`. worth : (t,) int64 of each term; 0 is left out.
    tables : (n,) of each row. is_alone : of each table, whether none of its rows is nominated for another of it.
    queries : (q,) int64 of rows. most_postings : rows that are looked at for each.
    best : (q, k) int64 of rows, -1 where there are no more. sums : (q, k) int64, what they share.
    """
    totals = np.zeros(tables.shape[0], dtype=np.int64)
    touched = np.empty(most_postings, dtype=np.int64)
    for query in range(queries.shape[0]):
        own = queries[query]
        left, size = most_postings, 0
        for i in range(starts[own], starts[own + 1]):
            term = terms[i]
            n = offsets[term + 1] - offsets[term]
            if n > left:
                break
            left -= n
            if worth[term] == 0:
                continue
            for k in range(offsets[term], offsets[term + 1]):
                row = rows[k]
                if row == own or (tables[row] == tables[own] and is_alone[tables[own]]):
                    continue
                if totals[row] == 0:
                    touched[size] = row
                    size += 1
                totals[row] += worth[term]
        for i in range(size):
            row = touched[i]
            total = totals[row]
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


@kernel
def compare_terms(starts, terms, weights, is_code, left, right, scores, codes):
    """Cosines of pairs of rows, and what their codes say: 1 where they share one, -1 where both have others, else 0.

    Parameters
    ----------
    starts, terms : as in `list_rows`, terms ascending in each row. weights, is_code : (t,) of each term.
    left, right : (p,) rows. scores : (p,) float64. codes : (p,) int8.
    """
    n = starts.shape[0] - 1
    norms, coded = np.zeros(n), np.zeros(n, dtype=np.bool_)
    for row in range(n):
        for i in range(starts[row], starts[row + 1]):
            norms[row] += weights[terms[i]] * weights[terms[i]]
            coded[row] = coded[row] or is_code[terms[i]]
    for pair in range(left.shape[0]):
        i, stop_i = starts[left[pair]], starts[left[pair] + 1]
        j, stop_j = starts[right[pair]], starts[right[pair] + 1]
        total = 0.0
        codes[pair] = -1 if coded[left[pair]] and coded[right[pair]] else 0
        while i < stop_i and j < stop_j:
            if terms[i] == terms[j]:
                total += weights[terms[i]] * weights[terms[i]]
                if is_code[terms[i]]:
                    codes[pair] = 1
                i += 1
                j += 1
            elif terms[i] < terms[j]:
                i += 1
            else:
                j += 1
        norm = np.sqrt(norms[left[pair]] * norms[right[pair]])
        scores[pair] = total / norm if norm > 0 else 0.0
