"""Random draws that are equal on every machine, since draws through logarithms and powers may
differ in the last bit.
"""

from __future__ import annotations

from random import Random

_DIGITS = 6


def exponential(random: Random, per_second: float) -> float:
    """Return the seconds until the next event of a Poisson process."""
    return round(random.expovariate(per_second), _DIGITS)


def between_powers(random: Random, least: float, most: float) -> float:
    """Return 10 to a random power between the two."""
    return float(round(10 ** random.uniform(least, most), _DIGITS))
