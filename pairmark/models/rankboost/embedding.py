"""From a kernel to few dimensions: pivots, whitening, binary random projection ("kernels as features")."""

import warnings
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Float64, Int64

DEFAULT_PIVOTS = 1_000
_CANDIDATES_EACH = 10
"""Rows looked at for each pivot that is learned."""
_MOST_CANDIDATES = 20_000


def number_of_pivots(n_pivots: int | None, n_rows: int) -> int:
    """How many pivots to take.

    Raises
    ------
    ValueError
        When more are asked for than there are rows.
    """
    if n_pivots is None:
        return min(DEFAULT_PIVOTS, n_rows)
    if n_pivots > n_rows:
        raise ValueError(
            f"n_pivots is {n_pivots} and there are {n_rows} rows to draw pivots from: expected at most as many "
            "pivots as rows; ask for fewer or bring more unlabelled rows"
        )
    return n_pivots


def candidate_rows(rule: str, n_pivots: int, n_rows: int, rng: np.random.Generator) -> Int64:
    """Rows to draw, ascending: the pivots themselves, or what learned pivots are learned from."""
    if rule == "random":
        n_candidates = n_pivots
    else:
        n_candidates = min(n_rows, max(n_pivots, min(_MOST_CANDIDATES, _CANDIDATES_EACH * n_pivots)))
    return np.sort(rng.choice(n_rows, n_candidates, replace=False))


def chosen_pivots(
    rule: Literal["random", "kmeans"], candidates: csr_array, n_pivots: int, seed: int
) -> Float64:
    """Pivots in the space of the kernel, (n_pivots, width), from candidates in that space: the rows, or centres."""
    if rule == "random":
        return np.asarray(candidates.toarray(), dtype=np.float64)
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    size = max(1024, 2 * n_pivots)
    with warnings.catch_warnings():
        # Fewer distinct rows than centres is no harm here: the rest are copies.
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = MiniBatchKMeans(
            n_pivots, n_init=1, init="random", batch_size=size, max_iter=20, random_state=seed
        ).fit(candidates)
    return np.asarray(means.cluster_centers_, dtype=np.float64)


def whitening(pivots: Float64) -> Float64:
    """W, (r, rank), such that b W has the inner products of the orthogonal projections onto the pivots' span.

    b is a row's kernel with each of the r pivots; with the kernel matrix of the pivots U^T U (Cholesky, U upper
    triangular), b W = U^-T b. Of pivots that depend on others only a basis is kept (pivoted factorisation), so the
    kernel matrix may be singular.

    Parameters
    ----------
    pivots : (r, width), in the space of the kernel.
    """
    from scipy.linalg import lapack, solve_triangular

    gram = pivots @ pivots.T
    size = float(np.trace(gram)) / max(1, gram.shape[0])
    if size <= 0.0:
        return np.zeros((gram.shape[0], 1))
    upper, order, rank, _ = lapack.dpstrf(gram / size, tol=1e-10)
    basis = np.asarray(order[:rank], dtype=np.int64) - 1
    triangle = np.triu(upper[:rank, :rank])
    weights = np.zeros((gram.shape[0], int(rank)))
    weights[basis] = solve_triangular(triangle, np.eye(int(rank)), lower=False) / np.sqrt(size)
    return weights


def binary_projection(n_in: int, n_out: int, rng: np.random.Generator) -> Float64:
    """(n_in, n_out) of +-1/sqrt(n_out), each with probability one half (Achlioptas 2003, theorem 1.1)."""
    signs = 2.0 * rng.integers(0, 2, (n_in, n_out)) - 1.0
    return np.asarray(signs / np.sqrt(n_out))


def compose(
    chain: str, pivots: Float64 | None, width: int, whiten: bool, n_components: int, rng: np.random.Generator
) -> Float64 | None:
    """The whole way from the kernel's space to the embedding as one matrix, (width, k); None: no change.

    Every stage is linear there: B multiplies by the pivots, whitening and C by theirs.
    """
    matrix: Float64 | None = None
    if "B" in chain:
        assert pivots is not None
        matrix = pivots.T
        if whiten:
            matrix = matrix @ whitening(pivots)
    if "C" in chain:
        n_in = width if matrix is None else matrix.shape[1]
        projection = binary_projection(n_in, n_components, rng)
        matrix = projection if matrix is None else matrix @ projection
    return None if matrix is None else np.ascontiguousarray(matrix)
