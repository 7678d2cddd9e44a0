"""Networks on sparse rows, and pairs of their outputs, compiled: one order of sums, whatever the batch.

A matrix product of a library rounds differently for different numbers of rows, which would break the symmetry of
scores and their agreement between pairs and grids.
"""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def first_layer(starts, columns, values, features, weights, out):
    """Sparse rows times weights, (features, k); columns that are not among ``features`` (ascending) count nothing."""
    for row in range(starts.shape[0] - 1):
        total = out[row]
        total[:] = 0.0
        place = 0
        for at in range(starts[row], starts[row + 1]):
            # Both lists ascend: the search goes on from where the last column was.
            place += np.searchsorted(features[place:], columns[at])
            if place == features.shape[0]:
                break
            if features[place] == columns[at]:
                x = np.float64(values[at])
                for k in range(total.shape[0]):
                    total[k] += x * weights[place, k]


@kernel
def squashed(rows, bias):
    """tanh(rows + bias), in place."""
    for row in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            rows[row, k] = math.tanh(rows[row, k] + bias[k])


@kernel
def product(rows, weights, out):
    """rows @ weights, each row by itself."""
    for row in range(rows.shape[0]):
        total = out[row]
        total[:] = 0.0
        for j in range(rows.shape[1]):
            x = rows[row, j]
            for k in range(total.shape[0]):
                total[k] += x * weights[j, k]


@kernel
def inner(left, right, at_left, at_right, out):
    """Inner products of rows of float32, in float64: pair i is left[at_left[i]], right[at_right[i]]."""
    for pair in range(out.shape[0]):
        a, b = left[at_left[pair]], right[at_right[pair]]
        total = 0.0
        for k in range(a.shape[0]):
            total += np.float64(a[k]) * np.float64(b[k])
        out[pair] = total


@kernel
def _output(first, second, sizes, flat, inputs, outputs):
    """What the network makes of one ordered pair, from its first layer's two halves.

    ``flat`` holds the bias of the first layer, then weights and bias of each further one.
    """
    at = sizes[0]
    for k in range(sizes[0]):
        inputs[k] = math.tanh(first[k] + second[k] + flat[k])
    for layer in range(1, sizes.shape[0]):
        n_in, n_out = sizes[layer - 1], sizes[layer]
        bias = at + n_in * n_out
        for k in range(n_out):
            outputs[k] = flat[bias + k]
        for j in range(n_in):
            x = inputs[j]
            for k in range(n_out):
                outputs[k] += x * flat[at + j * n_out + k]
        for k in range(n_out):
            inputs[k] = math.tanh(outputs[k])
        at = bias + n_out
    return inputs[0]


@kernel
def symmetrised(left_first, left_second, right_first, right_second, at_left, at_right, sizes, flat, out):
    """Half the network's output for each pair in either order."""
    inputs, outputs = np.empty(sizes.max()), np.empty(sizes.max())
    for pair in range(out.shape[0]):
        i, j = at_left[pair], at_right[pair]
        # The first layer is linear, so its two halves are made once a row and added pair by pair.
        forward = _output(left_first[i], right_second[j], sizes, flat, inputs, outputs)
        backward = _output(right_first[j], left_second[i], sizes, flat, inputs, outputs)
        out[pair] = 0.5 * (forward + backward)
