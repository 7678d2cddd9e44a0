"""torchaudio, as `docs/how-to/adapters.md` calls it: the path stands for the sound."""

from pathlib import Path
from typing import Any


class Signal:
    """A sound of one channel."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mean(self, axis: int, keepdim: bool) -> "Signal":
        return self


def load(path: Path) -> tuple[Signal, int]:
    return Signal(path), 44_100


class functional:
    @staticmethod
    def resample(signal: Any, rate: int, to: int) -> Any:
        assert (rate, to) == (44_100, 16_000)
        return signal
