"""Deletion of the first records of a partition (DeleteRecords). The leader hides records and notifies its followers.
The client waits until no live replica has these records any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ....protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ...log import PartitionLog
    from ..roles.leader import LeaderState

Trimmed = Callable[[ErrorCode], None]


class Replica(Protocol):
    """The replica whose first records are deleted: its log and its leadership."""

    @property
    def log(self) -> PartitionLog: ...
    @property
    def leader(self) -> LeaderState | None: ...
    def leading(self) -> LeaderState:
        """Return the leadership of this replica. Raises KafkaError: NOT_LEADER_OR_FOLLOWER."""

    def log_start_moved(self) -> None:
        """Notify consumers' fetches and followers' sessions that the leader's log start offset has risen."""

    def note_moved(self) -> None:
        """Add the replica to the set of changed replicas, which periodic checks visit."""


class RecordDeletion:
    """Record deletion in one replica. Each waiting callback is called once, in the leadership in which it began to
    wait. Callers set their own deadlines."""

    __slots__ = ("_partition", "_waiting")

    def __init__(self, partition: Replica) -> None:
        self._partition = partition
        self._waiting: list[tuple[int, Trimmed]] = []

    @property
    def waiting(self) -> int:
        """Number of callbacks that wait for the low watermark."""
        return len(self._waiting)

    # For the leader

    def trim(self, offset: int | None) -> int:
        """Hide the records below `offset` (None: the high watermark), and notify the followers. Returns the offset.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER; OFFSET_OUT_OF_RANGE above the high watermark, since records that are
        not on the whole ISR are not deleted.
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
        """Return the partition's low watermark: the lowest log start offset of all its live replicas. Raises
        KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        return self._partition.leading().low_watermark(self._partition.log.log_start_offset)

    def on_low_watermark(self, offset: int, done: Trimmed) -> None:
        """Call `done` once: with NONE when the low watermark reaches `offset`, possibly within this call, or with the
        error that ends this leadership."""
        if self._partition.leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.low_watermark() >= offset:
            done(ErrorCode.NONE)
        else:
            self._waiting.append((offset, done))
            self._partition.note_moved()

    def stop_waiting(self, done: Trimmed) -> None:
        """Remove a callback that waits for the low watermark."""
        self._waiting = [waiting for waiting in self._waiting if waiting[1] is not done]

    def trimmed_by(self, broker_id: int, log_start_offset: int) -> None:
        """Store the log start offset that the follower `broker_id` has reported, and call the callbacks that it
        satisfies.
        """
        leader = self._partition.leader
        if leader is not None:
            leader.followers[broker_id].log_start_offset = log_start_offset
            if self._waiting:
                self.look()

    # Calls from the partition

    def look(self) -> None:
        """Call the callbacks that waited for offsets up to the low watermark. It may have moved because a follower
        fetched, or no longer counts as live.
        """
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
        """Call all callbacks that wait for the low watermark, with the error that ended the leadership."""
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(error)
