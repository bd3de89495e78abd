"""What is told of a message's segments, told as of one record. Pure."""

from __future__ import annotations

from ...protocol.errors import KafkaError
from ..producing.sender import Delivery, RecordMetadata


class SplitDelivery:
    """Waits for all segments of a message in the place of who waits for the message: that one is told where the last
    segment stands, once all are acknowledged, or the first failure.
    """

    def __init__(self, message: Delivery, segments: int) -> None:
        self._message = message
        self._left = segments
        self._last: RecordMetadata | None = None

    def done(self) -> bool:
        """Whether nothing more can change: a segment has failed, or all are told of."""
        return self._message.done()

    def set_result(self, result: RecordMetadata, /) -> None:
        """A segment stands there."""
        self._left -= 1
        if self._last is None or result.offset >= self._last.offset:
            self._last = result
        if not self._left:
            self._message.set_result(self._last)

    def set_exception(self, exception: KafkaError, /) -> None:
        """A segment does not: the others are of no use."""
        self._message.set_exception(exception)

    def exception(self) -> object:
        """What the message failed with."""
        return self._message.exception()
