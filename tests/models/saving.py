"""Models that go to a folder and come back."""

from pathlib import Path
from typing import Any

import pairmark


def reloaded(model: Any, folder: Path) -> Any:
    """The model as it is read from the folder that it was saved to."""
    pairmark.save(model, folder)
    return pairmark.load(folder)
