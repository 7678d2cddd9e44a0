"""Vectors in the place of a model's: near each other for one person, who is named by the folder or the text."""

import zlib

import numpy as np


def vector(person: str, sample: str) -> np.ndarray:
    own, noise = (np.random.default_rng(zlib.crc32(text.encode())) for text in (person, sample))
    made = own.normal(size=16) + 0.2 * noise.normal(size=16)
    return (made / np.linalg.norm(made)).astype(np.float32)
