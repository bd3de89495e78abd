"""The wait of a Produce request with acks=all: from its appends until the high watermark has passed all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ...protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ..replication.replica.partition import Partition
    from ..server.purgatory import Purgatory

_Batch = TypeVar("_Batch")


class CommitWait(Generic[_Batch]):
    """Of one request, whose batches are appended and not all committed yet.

    `done` is called once, with the batches of which nobody knows whether they stay, and why.
    """

    __slots__ = ("_done", "_open", "_parked", "_unknown")

    def __init__(
        self,
        waiting: Sequence[tuple[Partition, int, _Batch]],
        purgatory: Purgatory,
        deadline: float,
        done: Callable[[Sequence[tuple[_Batch, ErrorCode]]], None],
    ) -> None:
        """`waiting` has where each batch was appended, the offset behind it, and what `done` is to be told of it."""
        self._done = done
        self._unknown: list[tuple[_Batch, ErrorCode]] = []
        # The batches that are not settled, by their number; none once the request is answered.
        self._open = dict(enumerate(waiting))
        self._parked = purgatory.park(deadline, self._expired)
        for number, (partition, end, _) in enumerate(waiting):
            partition.on_high_watermark(end, partial(self._settled, number))

    def _settled(self, number: int, error: ErrorCode) -> None:
        settled = self._open.pop(number, None)
        if settled is None:
            return
        if error is not ErrorCode.NONE:
            self._unknown.append((settled[2], error))
        if not self._open:
            self._parked.cancel()
            self._done(self._unknown)

    def _expired(self) -> None:
        """The request's time is over: what is not settled has an unknown outcome."""
        for _, _, batch in self._open.values():
            self._unknown.append((batch, ErrorCode.REQUEST_TIMED_OUT))
        self._open.clear()
        self._done(self._unknown)
