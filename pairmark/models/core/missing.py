"""What stands for nothing, and how a label is spelled: one definition for files, requests, frames and commands."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64, Int64

PLACEHOLDERS = frozenset({
    "n/a", "na", "none", "null", "nan", "-", "--", "?", ".", "unknown", "#n/a", "<na>", "(null)", "\\n", "nil", "tbd",
    "xxx", "0000-00-00", "1900-01-01",
})  # fmt: skip
"""Words that people write where there is no value, in any case and with spaces around them."""
OPEN_SET_FROM = 30
"""From so many labels on they are taken for people, with fewer perhaps for classes, whose one may be ``none``."""
_LONGEST = max(map(len, PLACEHOLDERS))
_LEADING_ZEROS, _NO_FRACTION = re.compile(r"(?<![\d.])0+(?=\d)"), re.compile(r"\.0+$")
_SHOWN = 5


def is_absent(value: Any) -> bool:
    """Whether there is no value: None, NaN, what pandas has for it, and text of spaces alone."""
    if isinstance(value, str):
        return not value or value.isspace()
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NaTType", "NAType")


def is_placeholder(text: str) -> bool:
    """Whether a text stands for no value, as ``N/A`` does; somebody may be called so."""
    return len(text) <= 2 * _LONGEST and text.strip().casefold() in PLACEHOLDERS


def label_of(text: str) -> str:
    """A label in the one form that it is compared in: Unicode's NFC, without spaces around it."""
    return (text if text.isascii() else normalize("NFC", text)).strip()


def refuse_placeholders(labels: Iterable[Any], counts: Iterable[int], what: str) -> None:
    """Refuse labels that stand for nothing, which would make one of many.

    Parameters
    ----------
    counts : how often each label occurs. what : what they occur in, such as rows.
    """
    n_all, found = 0, {}
    for label, n in zip(labels, counts, strict=True):
        n_all += int(n)
        if isinstance(label, str) and is_placeholder(label):
            found[label] = int(n)
    if found:
        raise ValueError(
            f"{sum(found.values()):,} of {n_all:,} {what} name nobody, but have a word in its place "
            f"({counted(found)}): they would all be one person's. Leave them out, or give each a label of its own; "
            "write the name in full if somebody is called so"
        )


def counted(found: Mapping[str, int]) -> str:
    """A few words with how often they occur, the most frequent first."""
    by_count = sorted(found.items(), key=lambda item: -item[1])
    more = len(by_count) - _SHOWN
    text = ", ".join(f"{word[:40]!r} {n:,}" for word, n in by_count[:_SHOWN])
    return text if more <= 0 else f"{text} and {more:,} more"


def like_labels(labels: Iterable[str]) -> str | None:
    """A warning that lists labels which only case, leading zeros, ``.0`` or spaces tell apart, if there are any."""
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for label in labels:
        plain = "".join(label.casefold().split())
        spellings[_NO_FRACTION.sub("", _LEADING_ZEROS.sub("", plain))].append(label)
    alike = [group for group in spellings.values() if len(group) > 1]
    if not alike:
        return None
    text = ", ".join(" and ".join(repr(label[:40]) for label in group[:3]) for group in alike[:_SHOWN])
    more = f" and {len(alike) - _SHOWN:,} more" if len(alike) > _SHOWN else ""
    return (
        f"labels that only case, leading zeros, .0 or spaces tell apart ({len(alike):,}): {text}{more}. They count as "
        "different: spell them alike where they are one"
    )


def merged_labels(names: NDArray[Any], codes: Int64) -> tuple[NDArray[Any], Int64]:
    """Distinct labels in their one form, and each row's code into them; those spelled alike then are one."""
    texts = names.tolist()
    if names.dtype.kind not in "OU" or not all(isinstance(text, str) for text in texts):
        return names, codes
    merged, place = np.unique(
        np.array([label_of(text) for text in texts], dtype=names.dtype), return_inverse=True
    )
    return merged, place[codes]


def row_of_unranked(positions: Float64) -> int | None:
    """The first row that marks absent labels by -1, as other formats do, or None: taken for a position that would be
    the best."""
    is_marked = positions == -1
    if is_marked.any() and (positions[~is_marked] >= 0).any() and not (positions[~is_marked] < 0).any():
        return int(np.flatnonzero(is_marked.any(axis=1))[0])
    return None
