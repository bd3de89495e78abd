"""How large the batches of a topic may become. Pure.

A batch that a broker refuses for its size is split (KIP-126). The broker compares what travels, compressed, with the
topic's `max.message.bytes`, and does not tell that limit. So half of what was refused is tried, and remembered: the
next batches are not to be refused too. The topic's limit may be raised, and other data may compress better. So the
size is doubled again from time to time, up to what the producer was asked for.
"""

from __future__ import annotations

HOLDS_S = 300.0
"""A limit that was learned holds for so long. Then twice as much is tried: at worst one batch is refused again."""


class BatchLimit:
    """Of one topic, in estimated bytes before compression."""

    def __init__(self, asked: int) -> None:
        """`asked`: the producer's `batch_size`."""
        self._asked = asked
        self._bytes = asked
        self._until_s = 0.0

    @property
    def bytes_max(self) -> int:
        """What was learned last."""
        return self._bytes

    def for_new_batch(self, now_s: float) -> int:
        """How large a batch may become that begins now."""
        if self._bytes < self._asked and now_s >= self._until_s:
            self._bytes = min(2 * self._bytes, self._asked)
            self._until_s = now_s + HOLDS_S
        return self._bytes

    def refused(self, size: int, now_s: float) -> None:
        """A broker refused a batch of `size` estimated bytes, which holds several records."""
        self._bytes = min(self._bytes, max(1, size // 2))
        self._until_s = now_s + HOLDS_S
