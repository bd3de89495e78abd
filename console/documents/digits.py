"""The digits of decimals and of 32-bit floats, as documents decoded by a schema show them. Pure."""

from __future__ import annotations

import struct
from typing import Final

_SINGLE: Final = struct.Struct("<f")


def shortest_single(value: float) -> float:
    """Return the number with the fewest digits that is the same 32-bit float, as Java and protoc write it.

    For example 0.1, where the equal 64-bit float is 0.10000000149011612.
    """
    if value - value != 0:  # Infinite, or not a number.
        return value
    stored = _SINGLE.pack(value)
    return next(
        (
            nearest
            for digits in range(6, 9)
            if _SINGLE.pack(nearest := float(f"{value:.{digits}g}")) == stored
        ),
        float(f"{value:.9g}"),
    )


def decimal_text(unscaled: int, scale: int) -> str:
    """Format the decimal number unscaled / 10**scale with exactly `scale` digits after its point: 1250 with scale 2 is
    12.50."""
    digits = f"{abs(unscaled):0{scale + 1}d}"
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return ("-" if unscaled < 0 else "") + whole + (f".{fraction}" if scale else "")
