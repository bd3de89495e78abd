"""How fast replicas that are out of sync may catch up (KIP-73), so that moving them leaves room for clients.

The rates are configs of brokers (bytes/s, over all partitions together), the replicas they hold for are configs
of topics. A leader counts what it sends to throttled followers, a follower what it fetches; whoever is in the
ISR is neither counted nor held back. Pure: the time, in seconds, comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ...protocol.messages.config_commands import ResourceType

UNLIMITED = 2**63 - 1
"""Kafka's default of both rates."""

HELD_MAX_S = 1.0
"""After this long a partition that is held back looks again: the rate may have been changed."""

_REPLICAS_KEYS = {
    "leader": "leader.replication.throttled.replicas",
    "follower": "follower.replication.throttled.replicas",
}

_BURST_S = 0.2
_BURST_LEAST_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ThrottledPartitions:
    """The partitions of a topic whose replica on this broker is throttled; None stands for all of them."""

    indexes: frozenset[int] | None = frozenset()

    @classmethod
    def parse(cls, text: str, broker_id: int) -> ThrottledPartitions:
        """Of `partition:broker,...` those of this broker; `*` is everything. The text was checked before."""
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        if entries == ["*"]:
            return cls(None)
        pairs = [entry.split(":") for entry in entries]
        return cls(frozenset(int(index) for index, broker in pairs if int(broker) == broker_id))

    def __contains__(self, index: int) -> bool:
        return self.indexes is None or index in self.indexes


NOT_THROTTLED = ThrottledPartitions()


def throttled_partitions(texts: Mapping[str, str], side: str, broker_id: int) -> ThrottledPartitions:
    """What a topic's configs say; `side` is "leader" or "follower"."""
    text = texts.get(_REPLICAS_KEYS[side], "")
    return ThrottledPartitions.parse(text, broker_id) if text else NOT_THROTTLED


class TokenBucket:
    """A rate in bytes/s. What is sent may overdraw it by one batch; then nothing goes until that is made up.

    Invariant: tokens <= burst, which is what a fifth of a second lets through, and at least 16 KiB.
    """

    __slots__ = ("_at_s", "_tokens", "rate")

    def __init__(self) -> None:
        self.rate = UNLIMITED
        self._tokens = 0.0
        self._at_s = 0.0

    @property
    def limited(self) -> bool:
        """Whether there is a rate at all."""
        return self.rate < UNLIMITED

    def set_rate(self, rate: int, now_s: float) -> None:
        """The rate from now on; what is overdrawn stays so, up to a second of the new rate."""
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
        """Bytes that may go now; 0 means wait."""
        if not self.limited:
            return UNLIMITED
        self._refill(now_s)
        return max(0, int(self._tokens))

    def wait_s(self, now_s: float) -> float:
        """How long until something may go again, at most `HELD_MAX_S`."""
        if self.allowance(now_s) > 0:
            return 0.0
        return min(HELD_MAX_S, (1.0 - self._tokens) / self.rate) if self.rate else HELD_MAX_S

    def spend(self, size: int, now_s: float) -> None:
        """Bytes went."""
        if self.limited:
            self._refill(now_s)
            self._tokens -= size


class Throttle:
    """One direction's bucket with its clock."""

    __slots__ = ("_bucket", "_now_s", "limited")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._bucket = TokenBucket()
        self._now_s = now_s
        self.limited = self._bucket.limited
        """Whether there is a rate at all: asked first, as there hardly ever is one."""

    def set_rate(self, rate: int) -> None:
        """Bytes/s from now on."""
        self._bucket.set_rate(rate, self._now_s())
        self.limited = self._bucket.limited

    def allowance(self) -> int:
        """Bytes that may go now; 0 means wait."""
        return self._bucket.allowance(self._now_s())

    def wait_s(self) -> float:
        """How long until something may go."""
        return self._bucket.wait_s(self._now_s())

    def spend(self, size: int) -> None:
        """Bytes went."""
        self._bucket.spend(size, self._now_s())


def rate_of(configs: Mapping[tuple[int, str], Mapping[str, str]], broker_id: int, key: str) -> int:
    """The rate set for this broker, else for all, else none."""
    for name in (str(broker_id), ""):
        text = configs.get((ResourceType.BROKER, name), {}).get(key)
        if text is not None:
            return int(text)
    return UNLIMITED


def is_held(throttled: ThrottledPartitions, index: int, broker_id: int, isr: Collection[int]) -> bool:
    """Whether the rate holds for what this follower gets of the partition: not for members of the ISR."""
    return index in throttled and broker_id not in isr
