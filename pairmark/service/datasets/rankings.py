"""Parses rankings: ``b>a>c``, with ties ``b>a=c``; absent labels are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.service.datasets.writer import MAX_NAME, MAX_RANKED
from pairmark.service.errors import InvalidInput, TooLarge


class RankingColumn:
    """A column of rankings; ``texts`` are its distinct ones, and `labels` their labels, sorted."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._parsed = {text: _parse(text) for text in texts}
        if all(parsed is None or len(parsed) == 1 for parsed in self._parsed.values()):
            raise InvalidInput(
                f"the ranking column orders fewer than two labels, as in {(*texts, '')[0][:60]!r}; expected labels "
                "best first with > between them (= where they tie), such as b>a>c",
                field="ranking",
            )
        self.labels = sorted({label for parsed in self._parsed.values() if parsed for label in parsed})
        if len(self.labels) > MAX_RANKED:
            raise TooLarge(f"the rankings order {len(self.labels)} labels; at most {MAX_RANKED} are taken")
        at = {label: number for number, label in enumerate(self.labels)}
        self._rows: dict[str, NDArray[np.float64]] = {}
        for text, parsed in self._parsed.items():
            row = np.full(len(self.labels), np.nan)
            for label, position in (parsed or {}).items():
                row[at[label]] = position
            self._rows[text] = row

    def positions(self, values: Sequence[Any], first_row: int) -> NDArray[np.float64]:
        """(rows, labels) 0-based positions, NaN = absent; `InvalidInput` names the first row without a ranking."""
        out = np.empty((len(values), len(self.labels)))
        for offset, value in enumerate(values):
            if value is None or self._parsed[str(value)] is None:
                raise InvalidInput(
                    f"row {first_row + offset + 1}: {'' if value is None else str(value)[:100]!r} is not a ranking; "
                    "expected labels, each once, best first, such as b>a>c or b>a=c",
                    row=first_row + offset + 1,
                    field="ranking",
                )
            out[offset] = self._rows[str(value)]
        return out


def _parse(text: str) -> dict[str, int] | None:
    positions: dict[str, int] = {}
    for position, tied in enumerate(text.split(">")):
        for part in tied.split("="):
            label = part.strip()
            if not label or label in positions or len(label) > MAX_NAME:
                return None
            positions[label] = position
    return positions
