"""Throttling of replicas that are out of sync and catch up (KIP-73), so that moving them leaves bandwidth for clients.

The rates are broker configs (bytes/s, for all partitions together). The throttled replicas are listed in topic configs.
A leader counts the bytes that it sends to throttled followers, a follower the bytes that it fetches. Members of the ISR
are neither counted nor throttled. Pure: times, in seconds, are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ...protocol.messages.config_commands import ResourceType

UNLIMITED = 2**63 - 1
"""Kafka's default of both rates."""

HELD_MAX_S = 1.0
"""Longest wait of a throttled partition before it checks again, since the rate may have changed."""

_REPLICAS_KEYS = {
    "leader": "leader.replication.throttled.replicas",
    "follower": "follower.replication.throttled.replicas",
}

_BURST_S = 0.2
_BURST_LEAST_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ThrottledPartitions:
    """The partitions of a topic whose replica on this broker is throttled; None stands for all partitions."""

    indexes: frozenset[int] | None = frozenset()

    @classmethod
    def parse(cls, text: str, broker_id: int) -> ThrottledPartitions:
        """Return the partitions of this broker from a list `partition:broker,...`; `*` stands for all. The text was
        validated before."""
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        if entries == ["*"]:
            return cls(None)
        pairs = [entry.split(":") for entry in entries]
        return cls(frozenset(int(index) for index, broker in pairs if int(broker) == broker_id))

    def __contains__(self, index: int) -> bool:
        return self.indexes is None or index in self.indexes


NOT_THROTTLED = ThrottledPartitions()


def throttled_partitions(texts: Mapping[str, str], side: str, broker_id: int) -> ThrottledPartitions:
    """Return the throttled partitions from a topic's configs. `side` is "leader" or "follower"."""
    text = texts.get(_REPLICAS_KEYS[side], "")
    return ThrottledPartitions.parse(text, broker_id) if text else NOT_THROTTLED


class TokenBucket:
    """A rate limit in bytes/s.

    One batch may overdraw it; then nothing passes until the deficit is made up. Invariant: tokens <= burst. The burst
    is the rate of a fifth of a second, at least 16 KiB.
    """

    __slots__ = ("_at_s", "_tokens", "rate")

    def __init__(self) -> None:
        self.rate = UNLIMITED
        self._tokens = 0.0
        self._at_s = 0.0

    @property
    def limited(self) -> bool:
        """True if a rate in bytes/s is set, so that the bucket may be empty."""
        return self.rate < UNLIMITED

    def set_rate(self, rate: int, now_s: float) -> None:
        """Set the rate. A deficit remains, up to a second of the new rate."""
        if rate == self.rate:
            return
        had = self.limited
        self._refill(now_s)
        self.rate = rate
        self._tokens = max(self._tokens, -float(rate)) if had else self._burst
        self._refill(now_s)

    @property
    def _burst(self) -> float:
        return max(self.rate * _BURST_S, _BURST_LEAST_BYTES) if self.rate else 0.0

    def _refill(self, now_s: float) -> None:
        if self.limited:
            self._tokens = min(self._burst, self._tokens + max(0.0, now_s - self._at_s) * self.rate)
        self._at_s = now_s

    def allowance(self, now_s: float) -> int:
        """Return the number of bytes that may be sent or received at `now_s`; 0 means wait. Without a rate it is
        UNLIMITED.
        """
        if not self.limited:
            return UNLIMITED
        self._refill(now_s)
        return max(0, int(self._tokens))

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until further bytes are permitted, at most `HELD_MAX_S`."""
        if self.allowance(now_s) > 0:
            return 0.0
        return min(HELD_MAX_S, (1.0 - self._tokens) / self.rate) if self.rate else HELD_MAX_S

    def spend(self, size: int, now_s: float) -> None:
        """Subtract `size` sent or received bytes from the tokens."""
        if self.limited:
            self._refill(now_s)
            self._tokens -= size


class Throttle:
    """The replication throttle of one direction (sending or fetching): a token bucket together with its clock."""

    __slots__ = ("_bucket", "_now_s", "limited")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._bucket = TokenBucket()
        self._now_s = now_s
        self.limited = self._bucket.limited
        """True if a rate is set. Callers check this attribute first, as a rate is rarely set."""

    def set_rate(self, rate: int) -> None:
        """Set the rate in bytes/s."""
        self._bucket.set_rate(rate, self._now_s())
        self.limited = self._bucket.limited

    def allowance(self) -> int:
        """Return the number of bytes that may now be sent or fetched; 0 means wait."""
        return self._bucket.allowance(self._now_s())

    def wait_s(self) -> float:
        """Return the seconds until further bytes are permitted."""
        return self._bucket.wait_s(self._now_s())

    def spend(self, size: int) -> None:
        """Subtract `size` sent or fetched bytes from the permitted amount."""
        self._bucket.spend(size, self._now_s())


def rate_of(configs: Mapping[tuple[int, str], Mapping[str, str]], broker_id: int, key: str) -> int:
    """Return the rate set for this broker, else the rate set for all brokers, else UNLIMITED."""
    for name in (str(broker_id), ""):
        text = configs.get((ResourceType.BROKER, name), {}).get(key)
        if text is not None:
            return int(text)
    return UNLIMITED


def is_held(throttled: ThrottledPartitions, index: int, broker_id: int, isr: Collection[int]) -> bool:
    """Return whether the replication rate limits this follower's bytes of the partition `index`. Members of the ISR are
    never limited.
    """
    return index in throttled and broker_id not in isr
