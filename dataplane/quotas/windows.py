"""Measures for quotas: a rate over a sliding window of samples, and a bucket of tokens. Both work as in Kafka.

Times are milliseconds on a monotonic clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ...protocol.settings.config_fields import ms_of_seconds, setting
from ...protocol.settings.config_key import INT_MAX


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """A window of quota.window.num samples of quota.window.size.seconds each; the last sample is being filled."""

    samples: int = setting("quota.window.num")
    sample_ms: int = setting("quota.window.size.seconds", ms_of_seconds)

    @property
    def whole_ms(self) -> int:
        """The length of all complete samples, which is the shortest time over which a rate is measured."""
        return (self.samples - 1) * self.sample_ms


def _whole_ms(wait_ms: float) -> int:
    """Return a wait in whole milliseconds, at most the largest that an answer can hold. Limits may be arbitrarily
    small, and waits unbounded."""
    return round(min(wait_ms, INT_MAX))


class _Sample:
    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, start_ms: float) -> None:
        self.start_ms = self.last_ms = start_ms
        self.amount = 0.0


class MeasuredRate:
    """An amount per second, measured over a window of samples. A sample begins when an amount is recorded, so a pause
    creates no samples.
    """

    __slots__ = ("_samples", "_windows", "total")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()
        #: the sum of the kept samples; each call drops samples that are too old
        self.total = 0.0

    def record(self, amount: float, now_ms: float) -> None:
        """Record an amount."""
        self._forget(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.sample_ms:
            samples.append(_Sample(now_ms))
        samples[-1].amount += amount
        samples[-1].last_ms = now_ms
        self.total += amount

    def measured_over_ms(self, now_ms: float) -> float:
        """Return the milliseconds over which the rate is measured: from the oldest sample until now, but at least the
        length of all complete samples.
        """
        self._forget(now_ms)
        windows = self._windows
        elapsed = now_ms - self._samples[0].start_ms if self._samples else 0.0
        missing = windows.samples - 1 - int(elapsed // windows.sample_ms)
        return max(elapsed + max(missing, 0) * windows.sample_ms, 1.0)

    def throttle_ms(self, limit: float, now_ms: float, more: float = 0.0) -> int:
        """Return the milliseconds until the rate falls to `limit` per second without further use; 0 if the rate is
        lower now. The amount `more` is added to the recorded amounts.
        """
        over_ms = self.measured_over_ms(now_ms)
        rate = (self.total + more) * 1000 / over_ms
        return _whole_ms((rate - limit) / limit * over_ms) if rate > limit else 0

    def _forget(self, now_ms: float) -> None:
        samples = self._samples
        keep_ms = self._windows.samples * self._windows.sample_ms
        while samples and now_ms - samples[0].last_ms >= keep_ms:
            self.total -= samples.popleft().amount
        if not samples:
            self.total = 0.0  # Removes rounding errors of the additions and subtractions.


class MutationTokens:
    """A bucket of tokens that come at a rate (KIP-599). A burst may take more tokens than there are, and then has to
    wait."""

    __slots__ = ("_last_ms", "_tokens", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._tokens: float | None = None
        self._last_ms = 0.0

    def take(self, amount: float, limit: float, now_ms: float) -> None:
        """Take `amount` tokens from the bucket, into which `limit` tokens come per second."""
        tokens = self._refill(limit, now_ms)
        self._tokens = min(self._most(limit), tokens - amount)

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """Return the milliseconds until the bucket owes no tokens any more; 0 if it owes none."""
        tokens = self._refill(limit, now_ms)
        return _whole_ms(-tokens / limit * 1000) if tokens < 0 else 0

    def _most(self, limit: float) -> float:
        return self._windows.samples * self._windows.sample_ms / 1000 * limit

    def _refill(self, limit: float, now_ms: float) -> float:
        most = self._most(limit)
        if self._tokens is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + (now_ms - self._last_ms) / 1000 * limit)
        self._last_ms = now_ms
        return self._tokens
