"""The assembly of segments into messages, partition by partition. Pure.

Other records pass through at once. A message comes as one record, in the place of its last segment. Incomplete messages
wait, up to a number of bytes over all partitions, and for a number of offsets. Then they are given up, counted, and
reported. Memory grows only with bytes that have arrived: announced sizes are compared with limits, and nothing else.

To resume at an offset without losing a message across it, the reader begins at the first segment of the earliest such
message (`start_of`), and skips the records handed out before (`give_from`). For that, the places of ended messages are
remembered for a while. Their ids are remembered, too, so that a segment that was written twice is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from ....protocol.checksum import crc32c
from ....protocol.errors import ErrorCode, KafkaError
from ...failures import UnreadableRecords
from ...records import ConsumerRecord, TopicPartition
from ...segment_header import SEGMENT_HEADER, SegmentHeader, read_segment, segment_of

REMEMBERED = 1_000
"""The minimum number of ended messages remembered per partition."""
MESSAGE_OVERHEAD = 512
"""The memory of an incomplete message, in bytes, beside its content."""
_HEADERS = attrgetter("headers")
_RESUMED = b""
"""A substitute for the ids of the messages among which reading was resumed."""


class AssemblyOptions(NamedTuple):
    """Limits of incomplete messages; `Consumer` documents the meaning of each."""

    buffer_bytes: int
    expiry_offsets: int


@dataclass(slots=True)
class LargeMessageStats:
    """Counts of large messages since the consumer was made."""

    assembled: int = 0
    """The number of messages handed out whole."""
    evicted: int = 0
    """The number of messages given up, since all together would have exceeded `large_message_buffer_bytes`."""
    expired: int = 0
    """The number of messages given up, since their end did not come within `large_message_expiry_offsets`: mostly of
    producers that died.
    """
    incomplete: int = 0
    """The number of messages skipped, since segments were missing: reading began in the middle, or the beginning was
    deleted.
    """
    duplicate_segments: int = 0
    """The number of repeated segments skipped: of producers without idempotence."""
    buffered_bytes: int = 0
    """The bytes of the messages that are incomplete now."""
    fetched: int = 0
    """The number of values handed out that were objects of a store."""


class GivenUp(NamedTuple):
    """A large message that this reader will never hand out, with its offsets and the reason."""

    partition: TopicPartition
    first_offset: int
    """The offset of its first segment seen."""
    last_offset: int
    reason: str


class DamagedRecord(NamedTuple):
    """A record at `offset` that cannot be part of any message."""

    offset: int
    error: KafkaError

    def unreadable(self, partition: TopicPartition) -> UnreadableRecords:
        """Return the exception with which reads report the damaged record."""
        return UnreadableRecords(self.error, partition, self.offset, self.offset + 1, what="the record")


class _Ended(NamedTuple):
    first: int
    last: int
    whole: bool


@dataclass(slots=True, eq=False)
class _Open:
    partition: TopicPartition
    segment: SegmentHeader
    """The newest segment."""
    first_offset: int
    last_offset: int
    parts: list[bytes]
    value_bytes: int


@dataclass(slots=True)
class _Partition:
    open: dict[bytes, _Open] = field(default_factory=dict)  # Invariant: ordered by first offset
    ended: dict[bytes, _Ended] = field(default_factory=dict)


class Assembly:
    """An assembler of large messages from their segments, for all partitions of one reader. Pass the records of a
    partition to `take_in`, in offset order."""

    def __init__(
        self,
        options: AssemblyOptions,
        stats: LargeMessageStats,
        given_up: Callable[[GivenUp], None],
    ) -> None:
        """Create an empty assembly.

        `stats` are updated; `given_up` is called for every message that will not be handed out.
        """
        self._options = options
        self._stats = stats
        self._tell = given_up
        self._buffered_bytes = 0  # of this assembly; the stats may include others
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._oldest: dict[_Open, None] = {}  # of all partitions, ordered by beginning

    def take_in(
        self, partition: TopicPartition, records: list[ConsumerRecord], give_from: int = 0
    ) -> tuple[list[ConsumerRecord], DamagedRecord | None]:
        """Return the records that can be handed out now, from `give_from` on, and the damaged record that stopped the
        assembly, or None.

        The rest of `records` was not examined then. Damage before `give_from` is skipped.
        """
        state = self._partitions.get(partition)
        waiting = state is not None and state.open
        if not (waiting or any(map(_HEADERS, records))) and (not records or records[0].offset >= give_from):
            return records, None
        given: list[ConsumerRecord] = []
        for record in records:
            whole: ConsumerRecord | None = record
            if record.headers and (content := segment_of(record.headers)) is not None:
                if state is None:
                    state = self._partitions[partition] = _Partition()
                try:
                    whole = self._segment(partition, state, record, content)
                except KafkaError as error:
                    if record.offset >= give_from:
                        return given, DamagedRecord(record.offset, error)
                    self._stats.incomplete += 1
                    whole = None
            if whole is not None and record.offset >= give_from:
                given.append(whole)
        if state is not None and state.open and records:
            self._expire(state, records[-1].offset)
        return given, None

    def start_of(self, partition: TopicPartition, offset: int, read_to: int, give_from: int = 0) -> int:
        """Return the place to resume so that everything from `offset` on can be handed out: `offset`, or an earlier
        one.

        `read_to`: the offset after the last record taken in. An offset beyond it is its own start.
        """
        state = self._partitions.get(partition, _Partition())
        starts = [
            offset,
            *(
                message.first
                for message in list(state.ended.values())
                if message.first < offset <= message.last
            ),
        ]
        if offset <= max(read_to, give_from):
            starts += [message.first_offset for message in list(state.open.values())[:1]]
        if read_to < offset <= give_from:
            starts.append(read_to)
        return min(starts)

    def resumed(self, partition: TopicPartition, start: int, give_from: int) -> None:
        """Note that reading continues at `start`, and that records before `give_from` were handed out before.

        Any message across an offset between them may have begun at `start`.
        """
        self.interrupted(partition)
        if start < give_from:
            state = self._partitions.setdefault(partition, _Partition())
            state.ended[_RESUMED] = _Ended(start, give_from - 1, whole=False)

    def interrupted(self, partition: TopicPartition) -> None:
        """Note that reading continues at another offset of the partition, and drop its incomplete messages, which will
        not end."""
        if (state := self._partitions.get(partition)) is not None:
            for message in list(state.open.values()):
                self._remove(state, message)

    def keep(self, partitions: Container[TopicPartition]) -> None:
        """Forget the large messages of all partitions except these."""
        for partition in [partition for partition in self._partitions if partition not in partitions]:
            self.interrupted(partition)
            del self._partitions[partition]

    def crowded(self, partition: TopicPartition) -> bool:
        """Return whether so many ended messages of the partition are remembered that it is time to `forget` some."""
        state = self._partitions.get(partition)
        return state is not None and len(state.ended) > 2 * REMEMBERED

    def forget(self, partition: TopicPartition, before: int) -> None:
        """Forget the large messages that ended before this offset, except the newest of them."""
        ended = self._partitions[partition].ended
        for message_id in list(ended)[:-REMEMBERED]:
            if ended[message_id].last < before:
                del ended[message_id]

    def finish(self) -> None:
        """Give up all unfinished messages, and count them as incomplete, since no more records will come."""
        for message in list(self._oldest):
            self._stats.incomplete += 1
            self._give_up(message, "its last segment is missing")

    # one segment

    def _segment(
        self, partition: TopicPartition, state: _Partition, record: ConsumerRecord, content: bytes
    ) -> ConsumerRecord | None:
        """Add a segment to its large message. Returns the message as a record if it is complete now. Raises
        CORRUPT_MESSAGE."""
        try:
            segment = read_segment(content)
        except ValueError as error:
            raise _damaged(partition, record.offset, record.offset, str(error)) from None
        message = state.open.get(segment.message_id)
        if message is None:
            if (
                self._has_ended(state, segment, record)
                or (message := self._begin(partition, state, segment, record)) is None
            ):
                return None
        elif segment.number <= message.segment.number:
            self._stats.duplicate_segments += 1
            return None
        elif segment.number > message.segment.number + 1:
            self._stats.incomplete += 1
            self._give_up(message, f"segment {segment.number} follows segment {message.segment.number}")
            return None
        self._extend(message, segment, record)
        if not segment.last:
            self._make_room(message)
            return None
        return self._whole(state, message, record)

    def _has_ended(self, state: _Partition, segment: SegmentHeader, record: ConsumerRecord) -> bool:
        """Return whether the message had ended before, so that its segments are read, or were written, again."""
        ended = state.ended.get(segment.message_id)
        if ended is None or record.offset <= ended.last:
            return False
        self._stats.duplicate_segments += ended.whole
        return True

    def _begin(
        self, partition: TopicPartition, state: _Partition, segment: SegmentHeader, record: ConsumerRecord
    ) -> _Open | None:
        offset = record.offset
        message = _Open(partition, segment, offset, offset, [], 0)
        if segment.number:
            if segment.last:
                self._stats.incomplete += 1
                self._end(state, message, "its beginning was not there, or was given up")
            return None
        if segment.value_bytes + MESSAGE_OVERHEAD > self._options.buffer_bytes:
            self._stats.evicted += 1
            self._end(
                state,
                message,
                f"its {segment.value_bytes} bytes are more than large_message_buffer_bytes holds "
                f"({self._options.buffer_bytes})",
            )
            return None
        state.open[segment.message_id] = message
        self._oldest[message] = None
        self._charge(MESSAGE_OVERHEAD)
        return message

    def _extend(self, message: _Open, segment: SegmentHeader, record: ConsumerRecord) -> None:
        part = record.value or b""
        first = message.segment
        same = segment[2:] == first[2:]
        if not same or message.value_bytes + len(part) > segment.value_bytes:
            says = "is longer than it announced" if same else "announces something else than the one before"
            raise self._torn(message, record.offset, f"a segment {says}")
        message.parts.append(part)
        message.value_bytes += len(part)
        message.segment, message.last_offset = segment, record.offset
        self._charge(len(part))

    def _whole(self, state: _Partition, message: _Open, record: ConsumerRecord) -> ConsumerRecord:
        segment = message.segment
        value = b"".join(message.parts)
        if len(value) != segment.value_bytes or crc32c(value) != segment.crc:
            why = f"{len(value)} bytes of {segment.value_bytes} came, or their CRC differs"
            raise self._torn(message, record.offset, why)
        self._remove(state, message)
        self._stats.assembled += 1
        _remember(state, message, whole=True)
        return ConsumerRecord(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=value,
            headers=tuple(header for header in record.headers if header[0] != SEGMENT_HEADER),
            leader_epoch=record.leader_epoch,
            timestamp_type=record.timestamp_type,
        )

    # giving up

    def _make_room(self, newest: _Open) -> None:
        """Give up the oldest messages while there are too many bytes.

        A single message always has room: it holds no more than it announced.
        """
        while self._buffered_bytes > self._options.buffer_bytes:
            oldest = next(iter(self._oldest))
            if oldest is newest:
                oldest = next(message for message in self._oldest if message is not newest)
            self._stats.evicted += 1
            self._give_up(
                oldest,
                f"large_message_buffer_bytes ({self._options.buffer_bytes}) were taken by younger ones",
            )

    def _expire(self, state: _Partition, offset: int) -> None:
        while state.open:
            oldest = next(iter(state.open.values()))
            if offset - oldest.first_offset <= self._options.expiry_offsets:
                break
            self._stats.expired += 1
            self._give_up(
                oldest,
                f"its end did not come within large_message_expiry_offsets ({self._options.expiry_offsets})",
            )

    def _give_up(self, message: _Open, reason: str) -> None:
        state = self._partitions[message.partition]
        self._remove(state, message)
        self._end(state, message, reason)

    def _torn(self, message: _Open, offset: int, why: str) -> KafkaError:
        state = self._partitions[message.partition]
        self._remove(state, message)
        message.last_offset = offset
        _remember(state, message, whole=False)
        return _damaged(message.partition, message.first_offset, offset, why)

    def _end(self, state: _Partition, message: _Open, reason: str) -> None:
        _remember(state, message, whole=False)
        self._tell(GivenUp(message.partition, message.first_offset, message.last_offset, reason))

    def _remove(self, state: _Partition, message: _Open) -> None:
        del state.open[message.segment.message_id]
        del self._oldest[message]
        self._charge(-message.value_bytes - MESSAGE_OVERHEAD)

    def _charge(self, count: int) -> None:
        self._buffered_bytes += count
        self._stats.buffered_bytes += count


def _remember(state: _Partition, message: _Open, *, whole: bool) -> None:
    message_id = message.segment.message_id
    state.ended.pop(message_id, None)  # the newest come last
    state.ended[message_id] = _Ended(message.first_offset, message.last_offset, whole)


def _damaged(partition: TopicPartition, first: int, last: int, why: str) -> KafkaError:
    where = f"offset {last}" if first == last else f"offsets {first} to {last}"
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{partition.topic}-{partition.partition}, {where}: a large message cannot be put together: {why}; "
        f"seek to {last + 1} passes it over, large_messages=False reads segments as they are",
    )
