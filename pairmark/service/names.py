"""Names that people give to datasets, models, aliases and calibrations."""

from __future__ import annotations

import re

from pairmark.service.errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def checked_name(name: str, field: str = "name") -> str:
    """The name, when it can stand in a path and a reference, or `InvalidInput` that names the field."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{field}: {name[:100]!r} cannot be a name; expected 1 to 100 letters, digits, '.', '_' or '-', starting "
            "with a letter or digit",
            field=field,
        )
    return name
