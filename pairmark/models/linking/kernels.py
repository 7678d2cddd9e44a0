"""Texts that share rare terms, in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def nominate(starts, terms, offsets, rows, worth, tables, is_alone, queries, most_postings, best, sums):
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
