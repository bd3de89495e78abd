"""Limits of the rate at which records start: token buckets, for all records and for each key. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

SWEEP_AT_LEAST: Final = 1_000
"""The number of keys with a bucket before full buckets are looked for and dropped."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit of the records that a worker starts in a time:

        Rate(100, per_s=1, burst=20)

    On average at most `records` start in `per_s` seconds. After a pause `burst` records may start at once, by default
    as many as `records`. With `per_key=True` the limit holds for each key by itself. Retries count like first attempts.
    """

    records: float
    per_s: float = 1.0
    burst: int | None = None
    per_key: bool = False

    def __post_init__(self) -> None:
        """Raise TypeError and ValueError for an invalid value, by its name."""
        for name in ("records", "per_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise TypeError(f"Rate: {name} is a number, not {value!r}")
            if not (isfinite(value) and value > 0):
                raise ValueError(f"Rate: {name} is above 0, not {value}")
        if not isinstance(self.per_key, bool):
            raise TypeError(f"Rate: per_key is True or False, not {self.per_key!r}")
        if self.burst is None:
            return
        if not isinstance(self.burst, int) or isinstance(self.burst, bool):
            raise TypeError(f"Rate: burst is a whole number or None, not {self.burst!r}")
        if self.burst < 1:
            raise ValueError(f"Rate: burst is 1 or more, not {self.burst}")

    @property
    def most_at_once(self) -> float:
        """The records that may start at once after a pause."""
        return max(1.0, self.records) if self.burst is None else float(self.burst)

    @property
    def per_second(self) -> float:
        """The records that may start in a second on average."""
        return self.records / self.per_s


class StartTokens:
    """The tokens of one limit: a record takes one, and they come back over time."""

    __slots__ = ("_at_s", "_rate", "_tokens")

    def __init__(self, rate: Rate, now_s: float) -> None:
        self._rate = rate
        self._tokens = rate.most_at_once
        self._at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until there is a token; 0 if there is one now."""
        self._refill(now_s)
        # A rounding error must not cause a further wait of less than a clock tick.
        return max(0.0, (1 - self._tokens) / self._rate.per_second) if self._tokens < 1 - 1e-9 else 0.0

    def take(self, now_s: float) -> None:
        """Take a token."""
        self._refill(now_s)
        self._tokens -= 1

    def is_full(self, now_s: float) -> bool:
        """Return whether all tokens are there, so that a new bucket would be equal."""
        self._refill(now_s)
        return self._tokens >= self._rate.most_at_once

    def _refill(self, now_s: float) -> None:
        if now_s > self._at_s:
            gained = (now_s - self._at_s) * self._rate.per_second
            self._tokens = min(self._rate.most_at_once, self._tokens + gained)
            self._at_s = now_s


class StartRates:
    """The limits of one worker: those of all records, and those of each key."""

    def __init__(self, rates: Sequence[Rate]) -> None:
        self._common = [rate for rate in rates if not rate.per_key]
        self._per_key = [rate for rate in rates if rate.per_key]
        self._buckets: list[StartTokens] | None = None
        self._of_keys: dict[Hashable, list[StartTokens]] = {}
        self._sweep_at = SWEEP_AT_LEAST

    def __bool__(self) -> bool:
        return bool(self._common or self._per_key)

    def common_wait_s(self, now_s: float) -> float:
        """Return the seconds until any record may start; 0 if one may start now."""
        if self._buckets is None:
            self._buckets = [StartTokens(rate, now_s) for rate in self._common]
        return max((bucket.wait_s(now_s) for bucket in self._buckets), default=0.0)

    def key_wait_s(self, key: Hashable, now_s: float) -> float:
        """Return the seconds until a record of this key may start; 0 if one may start now."""
        return max((bucket.wait_s(now_s) for bucket in self._of_keys.get(key, ())), default=0.0)

    def take(self, key: Hashable, now_s: float) -> None:
        """Count a record of this key that starts now."""
        for bucket in self._buckets or ():
            bucket.take(now_s)
        if not self._per_key:
            return
        if key not in self._of_keys:
            self._of_keys[key] = [StartTokens(rate, now_s) for rate in self._per_key]
            if len(self._of_keys) > self._sweep_at:
                self._sweep(now_s)
        for bucket in self._of_keys[key]:
            bucket.take(now_s)

    def _sweep(self, now_s: float) -> None:
        """Drop the buckets of keys that are full, as new ones would be equal."""
        newest = next(reversed(self._of_keys))
        self._of_keys = {
            key: buckets
            for key, buckets in self._of_keys.items()
            if key == newest or not all(bucket.is_full(now_s) for bucket in buckets)
        }
        self._sweep_at = max(SWEEP_AT_LEAST, 2 * len(self._of_keys))
