"""The wait of a Produce request with acks=all: from its appends until the high watermark has passed all its batches."""

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
    """The wait of one Produce request, whose batches are appended and not all below the high watermark yet.

    `done` is called once, with the batches whose outcome is unknown, and the reason of each.
    """

    __slots__ = ("_done", "_open", "_parked", "_unknown")

    def __init__(
        self,
        waiting: Sequence[tuple[Partition, int, _Batch]],
        purgatory: Purgatory,
        deadline: float,
        done: Callable[[Sequence[tuple[_Batch, ErrorCode]]], None],
    ) -> None:
        """`waiting` contains the partition of each batch, the offset after the batch, and the value that identifies the
        batch to `done`."""
        self._done = done
        self._unknown: list[tuple[_Batch, ErrorCode]] = []
        # Uncommitted batches by number; empty once the request is answered.
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
        """Finish the request when its time is over. The outcome of the remaining batches is unknown."""
        for _, _, batch in self._open.values():
            self._unknown.append((batch, ErrorCode.REQUEST_TIMED_OUT))
        self._open.clear()
        self._done(self._unknown)
