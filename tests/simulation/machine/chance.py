"""Draws that are the same on every machine: those through logarithms and powers may differ in the last bit."""

from __future__ import annotations

from random import Random

_DIGITS = 6


def exponential(random: Random, per_second: float) -> float:
    """Seconds until the next of what happens so often."""
    return round(random.expovariate(per_second), _DIGITS)


def between_powers(random: Random, least: float, most: float) -> float:
    """10 to some power between the two."""
    return float(round(10 ** random.uniform(least, most), _DIGITS))
