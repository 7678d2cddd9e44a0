"""insightface's `FaceAnalysis`, as `docs/how-to/adapters.md` calls it."""

from pathlib import Path
from types import SimpleNamespace

import made_up


class FaceAnalysis:
    def __init__(self, name: str) -> None:
        assert name

    def prepare(self, ctx_id: int, det_size: tuple[int, int]) -> None:
        assert ctx_id == -1
        assert det_size == (640, 640)

    def get(self, picture: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(normed_embedding=made_up.vector(Path(picture).parent.name, picture))]
