"""The limit for the size of a topic's batches. Pure.

A batch that a broker refuses for its size is split (KIP-126). The broker compares the compressed size with the topic's
`max.message.bytes`, and does not report that limit. So half of the refused size is tried and kept, so that the next
batches are not refused, too. The topic's limit may be raised, and other data may compress better. So the size is
doubled again from time to time, up to the configured size.
"""

from __future__ import annotations

HOLDS_S = 300.0
"""Time in seconds for which a learned limit holds. Then twice as much is tried: at worst one batch is refused again."""


class BatchLimit:
    """The size limit of a topic's batches, in estimated bytes before compression."""

    def __init__(self, asked: int) -> None:
        """`asked` is the producer's `batch_size`."""
        self._asked = asked
        self._bytes = asked
        self._until_s = 0.0

    @property
    def bytes_max(self) -> int:
        """The current limit."""
        return self._bytes

    def for_new_batch(self, now_s: float) -> int:
        """Return the size limit for a batch that begins now."""
        if self._bytes < self._asked and now_s >= self._until_s:
            self._bytes = min(2 * self._bytes, self._asked)
            self._until_s = now_s + HOLDS_S
        return self._bytes

    def refused(self, size: int, now_s: float) -> None:
        """Note that a broker refused a batch of `size` estimated bytes with several records."""
        self._bytes = min(self._bytes, max(1, size // 2))
        self._until_s = now_s + HOLDS_S
