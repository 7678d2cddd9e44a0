"""Rates as people write them: 0.01, or 1%."""

from __future__ import annotations

from typing import Annotated

import typer


def rate(text: str) -> float:
    """A number between 0 and 1, also in percent; `typer.BadParameter` for anything else."""
    digits = str(text).strip()
    number, divisor = (digits[:-1], 100) if digits.endswith("%") else (digits, 1)
    try:
        value = round(float(number) / divisor, 15)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise typer.BadParameter(
            f"{digits!r} is no rate; expected a number between 0 and 1, such as 0.01 or 1%"
        )
    return value


Confidence = Annotated[float, typer.Option(parser=rate, metavar="RATE", help="Confidence of the guarantee.")]
