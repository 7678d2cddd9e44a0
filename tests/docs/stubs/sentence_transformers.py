"""sentence-transformers' `encode`, as `docs/how-to/adapters.md` calls it: a text's first word is its intent."""

import made_up
import numpy as np


class SentenceTransformer:
    def __init__(self, name: str) -> None:
        assert name

    def encode(self, texts: list[str], normalize_embeddings: bool) -> np.ndarray:
        assert normalize_embeddings
        return np.stack([made_up.vector(text.split()[0], text) for text in texts])
