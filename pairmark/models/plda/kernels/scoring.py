"""Log-likelihood ratios of pairs and of subjects, in compiled loops.

Columns of a row are its weighted latent coordinates, padded with zeros to a multiple of eight, then its offset at
place ``width``. Sums run in eight lanes in float64, so a score is the same to the last bit in either order, in a pair
or a grid.
"""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.core.compiled import kernel

LANES = 8


@kernel
def complete(latent, roots, square, width, out):
    """Columns from latent coordinates: ``roots`` weigh them, the offset is minus the sum of ``square z^2``."""
    for p in range(latent.shape[0]):
        row, total = out[p], 0.0
        for j in range(latent.shape[1]):
            z = np.float64(latent[p, j])
            row[j] = np.float32(z * roots[j])
            total += square[j] * z * z
        row[width] = np.float32(-total)
        row[width + 1] = np.float32(1.0)


@kernel
def _ratio(a, b, width, constant):
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for j in range(0, width, 8):
        s0 += np.float64(a[j]) * np.float64(b[j])
        s1 += np.float64(a[j + 1]) * np.float64(b[j + 1])
        s2 += np.float64(a[j + 2]) * np.float64(b[j + 2])
        s3 += np.float64(a[j + 3]) * np.float64(b[j + 3])
        s4 += np.float64(a[j + 4]) * np.float64(b[j + 4])
        s5 += np.float64(a[j + 5]) * np.float64(b[j + 5])
        s6 += np.float64(a[j + 6]) * np.float64(b[j + 6])
        s7 += np.float64(a[j + 7]) * np.float64(b[j + 7])
    # Two offsets are added first, then to the product: either order of the rows gives the same bits.
    offsets = np.float64(a[width]) + np.float64(b[width])
    return (((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + offsets) + constant


@kernel
def score(a, b, grid, width, constant, out):
    """Ratios of all pairs of rows of two arrays of columns, (n_a, n_b), or of pairs side by side, (n, 1).

    Side by side, a single row meets all of the other side's.
    """
    step_a, step_b = np.int64(a.shape[0] > 1), np.int64(b.shape[0] > 1)
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            i, j = (p, q) if grid else (p * step_a, p * step_b)
            out[p, q] = _ratio(a[i], b[j], width, constant)


@kernel
def score_subjects(counts_a, sums_a, step_a, counts_b, sums_b, step_b, psi, out):
    """Ratios of subjects of several samples, from their numbers and the sums of their latent coordinates.

    ``log p(all) - log p(left) - log p(right)``, where ``log p`` of n samples that sum to s is, by coordinate and up to
    what cancels, ``psi s^2 / (n psi + 1) / 2 - log(n psi + 1) / 2``.
    """
    for p in range(out.shape[0]):
        i, j = p * step_a, p * step_b
        n, m = np.float64(counts_a[i]), np.float64(counts_b[j])
        total = 0.0
        for k in range(psi.shape[0]):
            variance = psi[k]
            a, b = sums_a[i, k], sums_b[j, k]
            of_a, of_b, of_all = n * variance + 1.0, m * variance + 1.0, (n + m) * variance + 1.0
            joint = (a + b) * (a + b) / of_all
            total += variance * (joint - (a * a / of_a + b * b / of_b)) + (
                math.log(of_a * of_b) - math.log(of_all)
            )
        out[p] = 0.5 * total
