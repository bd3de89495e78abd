"""The deliveries of a message's segments, combined into one delivery. Pure."""

from __future__ import annotations

from ..deliveries import BatchResult, RecordDelivery


class SplitMessage:
    """A message that was split.

    Its `result` is the place of the last segment, once all segments are acknowledged, or the first failure.
    """

    def __init__(self, result: BatchResult, segments: int) -> None:
        self.result = result
        self._left = segments
        self._end = -1

    def follow(self, segment: RecordDelivery) -> None:
        """Add a segment of the message, which was just handed over to the sender."""
        segment.tell(_Segment(self, segment))

    def settled(self, segment: RecordDelivery) -> None:
        """Note that a segment was acknowledged or failed. After a failure the other segments have no effect."""
        if self.result.is_settled:
            return
        error = segment.exception()
        if error is not None:
            self.result.failed(error)
            return
        self._left -= 1
        self._end = max(self._end, segment.result().offset)
        if not self._left:
            self.result.acknowledged(self._end, segment.append_time_ms)


class _Segment:
    __slots__ = ("_message", "_segment")

    def __init__(self, message: SplitMessage, segment: RecordDelivery) -> None:
        self._message = message
        self._segment = segment

    def settled(self) -> None:
        self._message.settled(self._segment)
