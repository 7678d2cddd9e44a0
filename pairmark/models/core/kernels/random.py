"""Random numbers inside of kernels."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def next_random(state):
    """Splitmix64: advances ``state[0]`` and returns 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
