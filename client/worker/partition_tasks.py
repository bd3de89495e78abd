"""The tasks of one partition: unfinished records, finished offsets, and the value to commit. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from ..records import ConsumerRecord, TopicPartition
from .commit_metadata import (
    BYTES_MAX,
    ID_BYTES,
    PREFIX,
    BeyondCommit,
    bytes_at_most,
    decode,
    encode_first,
    encoded_bytes,
    number_bytes,
)
from .lane_choice import BrokenLane
from .watermark import FinishedOffsets

NO_TOPIC_ID = bytes(ID_BYTES)
RUNS_THAT_FIT = 64
EPOCHS_THAT_FIT = 16
"""Numbers of runs and epochs that fit into the metadata, whatever the offsets."""
LARGEST_KEPT: Final = 15 / 16
"""The share of the size of the largest record that each later record leaves of it."""
assert bytes_at_most(RUNS_THAT_FIT, EPOCHS_THAT_FIT, (1 << 63) - 1) <= BYTES_MAX


class Task:
    """A record to work on, and its progress."""

    __slots__ = (
        "broken",
        "deferred",
        "dropped",
        "failures",
        "lane",
        "record",
        "running",
        "settling",
        "size",
        "taken_s",
        "tasks",
        "was_started",
    )

    def __init__(
        self, record: ConsumerRecord, tasks: PartitionTasks, lane: Hashable, size: int, taken_s: float
    ) -> None:
        """`lane`: None for a lane of its own. `size`: the bytes of key, value and headers."""
        self.record = record
        self.tasks = tasks
        """The tasks of its partition."""
        self.broken: Exception | None = lane.error if isinstance(lane, BrokenLane) else None
        """The exception of the function that chooses lanes; the handler is not called for such a record."""
        self.lane: Hashable = self if lane is None or self.broken is not None else lane
        self.size = size
        self.taken_s = taken_s
        self.failures = 0
        """The number of attempts that have failed."""
        self.running = False
        """True while the handler works on it."""
        self.settling = False
        """True after the handler, until the results are in the cluster."""
        self.was_started = False
        self.deferred = False
        """True while it waits outside of its lane."""
        self.dropped = False
        """True once it starts no more."""


class PartitionTasks:
    """The tasks of a partition while it is assigned."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.topic_id = NO_TOPIC_ID
        self.gone = False
        """True once the partition was given up: results no longer count."""
        self.leaving = False
        """True while the partition is given up: no further task starts."""
        self.unfinished: dict[int, Task] = {}
        """The unfinished tasks by offset."""
        self.arrived = 0
        """The number of unfinished records that have no task yet."""
        self.blocked: list[Task] = []
        """The tasks that may not start, since the metadata of the commit is full."""
        self.held_bytes = 0
        self.largest = 0
        """The size of the largest record among those held and those read last."""
        self.uncommitted = 0
        """The number of finished records that no commit has covered."""
        self.version = 0
        """A number that grows with each change of the value to commit."""
        self._committed_version = 0
        self._begun = 0
        """The number of unfinished tasks that were started."""
        self._finished: FinishedOffsets | None = None
        self._exact_bytes: int | None = None

    # where reading begins

    @property
    def has_position(self) -> bool:
        """True once it is known where reading has begun."""
        return self._finished is not None

    @property
    def position(self) -> int:
        """The lowest offset that was not taken yet."""
        assert self._finished is not None
        return self._finished.position

    @property
    def watermark(self) -> int:
        """The offset before which everything is finished."""
        assert self._finished is not None
        return self._finished.watermark

    def resume(self, offset: int, text: str, log_end: int) -> str | None:
        """Begin at a committed offset with its metadata. Return the reason if the metadata tells of finished offsets
        and is not believed."""
        self._finished = FinishedOffsets(offset)
        if not text.startswith(PREFIX):
            return "it has another format" if text else None
        try:
            beyond = decode(text)
        except ValueError as error:
            return str(error)
        if beyond.offset != offset:
            return f"it belongs to offset {beyond.offset}"
        if beyond.topic_id != self.topic_id:
            return "it belongs to an earlier topic of this name"
        if beyond.runs[-1][1] > log_end:
            return f"it tells of offsets beyond the end of the log ({log_end})"
        self._finished = FinishedOffsets(offset, beyond.runs, beyond.epochs)
        return None

    # records

    @property
    def records(self) -> int:
        """The number of records that were read and not committed."""
        return self.held + self.uncommitted

    @property
    def held(self) -> int:
        """The number of records that were read and are not finished."""
        return len(self.unfinished) + self.arrived

    @property
    def oldest_s(self) -> float | None:
        """The time at which the oldest unfinished record was read; None if there is none."""
        # A copy, as other threads may ask while the loop changes the tasks.
        oldest = next(iter(list(self.unfinished.values())), None)
        return None if oldest is None else oldest.taken_s

    def take(self, records: Sequence[ConsumerRecord], warnings: list[str]) -> Sequence[ConsumerRecord]:
        """Take the next records, in the order of their offsets. Return those to be worked on; others are finished
        already."""
        first, last = records[0], records[-1]
        finished = self._finished
        if finished is None:
            finished = self._finished = FinishedOffsets(first.offset)
        before = finished.watermark
        # Leader epochs never fall in a log, so two equal epochs have no other epoch between them.
        is_plain = last.offset - first.offset == len(records) - 1 and first.leader_epoch == last.leader_epoch
        if not (is_plain and finished.take_all(first.offset, last.offset + 1, first.leader_epoch)):
            records = [record for record in records if self._take(finished, record, warnings)]
        if finished.watermark != before:
            self._changed()
        return records

    def _take(self, finished: FinishedOffsets, record: ConsumerRecord, warnings: list[str]) -> bool:
        if not finished.fits(record.offset, record.leader_epoch):
            warnings.append(
                f"{record.topic}-{record.partition} has another record at offset {record.offset} than an earlier "
                "worker has seen: the log was cut there, and its records from there on are worked on"
            )
            finished.cut(record.offset)
        return not finished.take(record.offset, record.leader_epoch)

    def arrive(self, sizes: Sequence[int]) -> None:
        """Hold records of these sizes, which `take` has returned."""
        self.arrived += len(sizes)
        self.held_bytes += sum(sizes)
        self.largest = max(int(self.largest * LARGEST_KEPT ** len(sizes)), max(sizes))

    def begin(self, task: Task) -> None:
        """Hold a record that has arrived as a task."""
        self.arrived -= 1
        self.unfinished[task.record.offset] = task

    def started(self, task: Task) -> None:
        """Note that a task was started."""
        if not task.was_started:
            task.was_started = True
            self._begun += 1

    def finish(self, task: Task) -> None:
        """Count the task's offset as finished."""
        assert self._finished is not None
        offset = task.record.offset
        self._finished.finish(offset)
        del self.unfinished[offset]
        self.held_bytes -= task.size
        self.uncommitted += 1
        self._begun -= task.was_started
        self._changed()

    def finish_all(self, first: int, last: int, sizes: Sequence[int]) -> None:
        """Count the offsets of records without tasks as finished: those of the first, the last, and all between."""
        assert self._finished is not None
        self._finished.finish_all(first, last, len(sizes))
        self.arrived -= len(sizes)
        self.held_bytes -= sum(sizes)
        self.uncommitted += len(sizes)
        self._changed()

    def has_room_for(self, offset: int) -> bool:
        """Return whether the metadata has room for this offset, or a series from there on, beside all tasks begun.

        The lowest unfinished offset needs no room: it moves the committed offset.
        """
        finished = self._finished
        assert finished is not None
        if finished.is_first(offset):
            return True
        more = self._begun + 1
        if finished.run_count + more <= RUNS_THAT_FIT and finished.epoch_count <= EPOCHS_THAT_FIT:
            return True
        if bytes_at_most(finished.run_count + more, finished.epoch_count, finished.span) <= BYTES_MAX:
            return True
        if self._exact_bytes is None:
            self._exact_bytes = encoded_bytes(self._beyond(finished.watermark))
        return self._exact_bytes + more * 2 * number_bytes(finished.span) <= BYTES_MAX

    # commits

    @property
    def is_dirty(self) -> bool:
        """True if the value to commit has changed since the last commit."""
        return self.version != self._committed_version

    def metadata(self, begin: int) -> tuple[str, int]:
        """Return the text to commit beside the offset `begin`, and the number of runs that do not fit into it."""
        return encode_first(self._beyond(begin))

    def committed(self, version: int, count: int) -> None:
        """Note that the value of this version was committed, which covers `count` more records."""
        self._committed_version = max(self._committed_version, version)
        self.uncommitted -= count

    def _beyond(self, begin: int) -> BeyondCommit:
        finished = self._finished
        assert finished is not None
        ahead = [(begin, finished.watermark)] if begin < finished.watermark else []
        return BeyondCommit(self.topic_id, begin, finished.epochs(), ahead + finished.runs())

    def _changed(self) -> None:
        self.version += 1
        self._exact_bytes = None
