"""A kind of quota: its limits, and the measured rate of each client that has a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ...protocol.settings.config_key import INT_MAX
from .limits import Limit, QuotaLimits
from .windows import MeasuredRate, MutationTokens, QuotaWindows

# The number of measures at which idle ones are dropped for the first time. The next time is at twice the number left.
_MEASURES_MIN = 1024
MEASURES_MAX = 50_000
"""The most measures of each quota. Beyond it, the measure that was begun first is dropped."""
_NAME_CHARACTERS_MAX = 512
"""The number of characters of a client id that count: longer ids with the same beginning share a measure."""

_M = TypeVar("_M", MeasuredRate, MutationTokens)


class _Kept(Generic[_M]):
    __slots__ = ("last_ms", "limit", "measure")

    def __init__(self, limit: float, measure: _M) -> None:
        self.limit = limit
        self.measure: _M = measure
        self.last_ms = 0.0


class _Measures(Generic[_M]):
    """The measured rates of all clients of one quota, or of groups of clients that share a limit. Clients choose their
    ids, so idle measures are dropped.
    """

    def __init__(
        self, windows: QuotaWindows, limits: QuotaLimits, make: Callable[[QuotaWindows], _M]
    ) -> None:
        self.windows = windows
        self.limits = limits
        self._make: Callable[[QuotaWindows], _M] = make
        self._kept: dict[tuple[str | None, str | None], _Kept[_M]] = {}
        self._sweep_at = _MEASURES_MIN

    def of(self, limit: Limit, now_ms: float) -> _M:
        user, client_id = limit.counted_as
        if client_id is not None and len(client_id) > _NAME_CHARACTERS_MAX:
            client_id = client_id[:_NAME_CHARACTERS_MAX]
        counted_as = user, client_id
        kept = self._kept.get(counted_as)
        if kept is None:
            if len(self._kept) >= self._sweep_at:
                self._sweep(now_ms)
            if len(self._kept) >= MEASURES_MAX:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[counted_as] = _Kept(limit.value, self._make(self.windows))
        kept.limit, kept.last_ms = limit.value, now_ms
        return kept.measure

    def _sweep(self, now_ms: float) -> None:
        idle_ms = 2 * self.windows.samples * self.windows.sample_ms
        self._kept = {
            who: kept
            for who, kept in self._kept.items()
            if now_ms - kept.last_ms < idle_ms or kept.measure.throttle_ms(kept.limit, now_ms)
        }
        self._sweep_at = max(_MEASURES_MIN, 2 * len(self._kept))


class RateQuota:
    """A quota that limits an amount per second, such as bytes, for each client."""

    def __init__(self, windows: QuotaWindows, limits: QuotaLimits, *, throttle_ms_max: int = INT_MAX) -> None:
        self._measures = _Measures(windows, limits, MeasuredRate)
        self._throttle_ms_max = throttle_ms_max

    def limit_by(self, limits: QuotaLimits) -> None:
        """Apply other limits from now on; the clients' measured rates stay."""
        self._measures.limits = limits

    def charge(self, user: str, client_id: str | None, amount: float, now_ms: float) -> int:
        """Record an amount that a client has used. Returns the milliseconds that the client has to wait now."""
        limit = self._measures.limits.of(user, client_id or "")
        if limit is None:
            return 0
        rate = self._measures.of(limit, now_ms)
        rate.record(amount, now_ms)
        return self._bounded(rate.throttle_ms(limit.value, now_ms))

    def admit(self, user: str, client_id: str | None, amount: float, now_ms: float) -> int:
        """Record an amount that a client is about to get, and return 0; or record nothing, and return the milliseconds
        to wait.

        An amount that exceeds the limit by itself is granted to a client that got nothing in the whole window, since it
        would never be granted otherwise.
        """
        return self._admit(self._measures.limits.of(user, client_id or ""), amount, now_ms)

    def admit_address(self, address: str, amount: float, now_ms: float) -> int:
        """Record or refuse an amount like `admit`, for all clients of an IP address together."""
        return self._admit(self._measures.limits.of_address(address), amount, now_ms)

    def _admit(self, limit: Limit | None, amount: float, now_ms: float) -> int:
        if limit is None:
            return 0
        rate = self._measures.of(limit, now_ms)
        throttle_ms = self._bounded(rate.throttle_ms(limit.value, now_ms, amount))
        if throttle_ms and rate.total > 0:
            return throttle_ms
        rate.record(amount, now_ms)
        return 0

    def most_in_window(self, user: str, client_id: str | None) -> float | None:
        """Return the amount that the client's limit allows in all complete samples of the window together; None if the
        client has no limit.
        """
        limit = self._measures.limits.of(user, client_id or "")
        return None if limit is None else limit.value * self._measures.windows.whole_ms / 1000

    def _bounded(self, throttle_ms: int) -> int:
        return min(throttle_ms, self._throttle_ms_max)


class MutationQuota:
    """The quota controller_mutation_rate: a limit on the partitions that a client creates or deletes per second
    (KIP-599).
    """

    def __init__(self, windows: QuotaWindows, limits: QuotaLimits) -> None:
        self._measures = _Measures(windows, limits, MutationTokens)

    def limit_by(self, limits: QuotaLimits) -> None:
        """Apply other limits from now on; the clients' buckets stay."""
        self._measures.limits = limits

    def charge(
        self, user: str, client_id: str | None, partitions: int, now_ms: float, *, strict: bool
    ) -> int:
        """Record that a client creates or deletes `partitions` partitions. Returns the milliseconds that the client has
        to wait.

        With `strict`, nothing is recorded for a client that has to wait already: the caller must refuse its change.
        """
        limit = self._measures.limits.of(user, client_id or "")
        if limit is None:
            return 0
        bucket = self._measures.of(limit, now_ms)
        owed_ms = bucket.throttle_ms(limit.value, now_ms)
        if strict and owed_ms:
            return owed_ms
        bucket.take(partitions, limit.value, now_ms)
        return 0 if strict else bucket.throttle_ms(limit.value, now_ms)
