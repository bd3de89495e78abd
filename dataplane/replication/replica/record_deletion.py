"""Trimming one partition (DeleteRecords): the leader hides records, its followers hear of it, and whoever asked waits
until no live replica holds them any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ....protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ...log import PartitionLog
    from ..roles.leader import LeaderState

Trimmed = Callable[[ErrorCode], None]


class Replica(Protocol):
    """The replica that is trimmed, as far as that goes."""

    @property
    def log(self) -> PartitionLog: ...
    @property
    def leader(self) -> LeaderState | None: ...
    def leading(self) -> LeaderState:
        """KafkaError: NOT_LEADER_OR_FOLLOWER."""

    def log_start_moved(self) -> None:
        """The leader's log starts later now."""

    def note_moved(self) -> None:
        """Have it looked at from time to time."""


class RecordDeletion:
    """Of one replica. Whoever waits is called once, in the leadership in which it began to wait; a deadline is the
    caller's, who may come and go."""

    __slots__ = ("_partition", "_waiting")

    def __init__(self, partition: Replica) -> None:
        self._partition = partition
        self._waiting: list[tuple[int, Trimmed]] = []

    @property
    def waiting(self) -> int:
        """How many wait for the low watermark."""
        return len(self._waiting)

    # The leader's

    def trim(self, offset: int | None) -> int:
        """Hide the records below `offset` (None: the high watermark) here, and have the followers hear of it;
        the offset.

        KafkaError: NOT_LEADER_OR_FOLLOWER; OFFSET_OUT_OF_RANGE above the high watermark: what is not on the
        whole ISR yet is not deleted.
        """
        partition = self._partition
        leader = partition.leading()
        if offset is None:
            offset = leader.high_watermark
        if not 0 <= offset <= leader.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records of {partition!r} can be deleted up to {leader.high_watermark}, not to {offset}",
            )
        if offset > partition.log.log_start_offset:
            partition.log.advance_log_start_offset(offset)
            partition.log_start_moved()
        return offset

    def low_watermark(self) -> int:
        """The lowest log start offset of all live replicas. KafkaError: NOT_LEADER_OR_FOLLOWER."""
        return self._partition.leading().low_watermark(self._partition.log.log_start_offset)

    def on_low_watermark(self, offset: int, done: Trimmed) -> None:
        """Call `done` once: with NONE when the low watermark reaches `offset` (perhaps within this call), or
        with the error that ends this leadership."""
        if self._partition.leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.low_watermark() >= offset:
            done(ErrorCode.NONE)
        else:
            self._waiting.append((offset, done))
            self._partition.note_moved()

    def stop_waiting(self, done: Trimmed) -> None:
        """`done` waits for no low watermark any more."""
        self._waiting = [waiting for waiting in self._waiting if waiting[1] is not done]

    def trimmed_by(self, broker_id: int, log_start_offset: int) -> None:
        """A follower's log starts there."""
        leader = self._partition.leader
        if leader is not None:
            leader.followers[broker_id].log_start_offset = log_start_offset
            if self._waiting:
                self.look()

    # What the partition says

    def look(self) -> None:
        """The low watermark of this leader may have moved: a follower spoke, or need not be waited for."""
        if not self._waiting:
            return
        low_watermark = self.low_watermark()
        waiting, self._waiting = self._waiting, []
        for offset, done in waiting:
            if offset <= low_watermark:
                done(ErrorCode.NONE)
            else:
                self._waiting.append((offset, done))

    def failed(self, error: ErrorCode) -> None:
        """The leadership is over."""
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(error)
