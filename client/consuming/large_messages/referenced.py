"""The values that a consumer's records refer to: fetched from an object store ahead of the reads, within a bound.

A read takes records up to the first whose value is not here yet, and the read after the arrival goes on with it. So
values are handed out in the order of their records, and a position never lies behind a value that is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ...failures import ClientError, NoObjectStore, UnreadableValue
from ...objects.fetching import fetch_object
from ...objects.references import ObjectReference, is_reference, read_reference, without_mark
from ...objects.store import ObjectStore
from ...records import ConsumerRecord, TopicPartition
from .assembly import LargeMessageStats

FETCHES_MAX: Final = 16
"""The number of objects that a consumer fetches at a time."""
_WITHOUT_STORE: Final = (
    "its value is an object of a store: name the store with the option large_message_store, or read the reference "
    "itself with large_messages=False"
)
_LEFT_OUT: Final = "transactions(passing_over=[error]) leaves it out"


class Resolved(NamedTuple):
    """Records with their values, and the reason why the records after them are left."""

    records: list[ConsumerRecord]
    stop: int | None = None
    """The offset of the first record whose value is not here; None if all values are here."""
    failure: UnreadableValue | None = None
    """The error of that record; None if its value is on the way, or if records come before it."""


@dataclass(slots=True, eq=False)
class _Fetched:
    reference: ObjectReference
    task: asyncio.Task[bytes]


@dataclass(slots=True)
class _Reads:
    """The state of the reads of one partition."""

    values: dict[int, _Fetched] = field(default_factory=dict)
    """The values on the way or here, by offset."""
    waits_at: int = -1
    """The offset at which the last read stopped."""
    waits_since: int = -1
    """The number of changes at that time."""


class ReferencedValues:
    """The values of one consumer's records that are objects of a store. Values that are here or on the way take at most
    `bytes_max` bytes together."""

    def __init__(
        self, store: ObjectStore | None, bytes_max: int, stats: LargeMessageStats, arrived: Callable[[], None]
    ) -> None:
        """Without a `store` a record with a reference is an error. `arrived` is called when a value, or its failure, is
        there."""
        self._store = store
        self._bytes_max = bytes_max
        self._stats = stats
        self._arrived = arrived
        self._at_once = asyncio.Semaphore(FETCHES_MAX)
        self._reads: dict[TopicPartition, _Reads] = {}
        self._bytes = 0
        self._changes = 0
        self._is_buffered: Callable[[TopicPartition], bool] = lambda _: True

    def begin_read(
        self, is_wanted: Callable[[TopicPartition], bool], is_buffered: Callable[[TopicPartition], bool]
    ) -> None:
        """Drop the values of partitions that this read does not want, as they would take the room of others.

        `is_buffered` says whether fetched records of a partition are here, so that its values can be taken soon.
        """
        self._is_buffered = is_buffered
        for partition, reads in self._reads.items():
            if reads.values and not is_wanted(partition):
                self._drop(reads, list(reads.values))

    def waits(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a read of a partition at this offset has to wait for a value, or for room."""
        reads = self._reads.get(partition)
        if reads is None or reads.waits_at != offset:
            return False
        value = reads.values.get(offset)
        return reads.waits_since == self._changes if value is None else not value.task.done()

    def resolve(
        self, partition: TopicPartition, records: Sequence[ConsumerRecord], most: int | None = None
    ) -> Resolved:
        """Return the records up to the first whose value is not here, with their values; at most `most` records. That
        value, and the next ones, are on the way then."""
        reads = self._reads.setdefault(partition, _Reads())
        done: list[ConsumerRecord] = []
        for place, record in enumerate(records):
            if len(done) == most:
                return Resolved(done, record.offset)
            if not is_reference(record.headers):
                done.append(record)
                continue
            try:
                reference = self._checked(record)
                value = reads.values.get(record.offset)
                if value is None or value.reference != reference or not value.task.done():
                    self._fetch(partition, reads, records[place:])
                    reads.waits_at, reads.waits_since = record.offset, self._changes
                    return Resolved(done, record.offset)
                if done and value.task.exception() is not None:
                    return Resolved(done, record.offset)
                self._drop(reads, [record.offset])
                done.append(self._with_value(record, value.task.result()))
            except KafkaError as error:
                failure = None if done else _unreadable(record, error)
                return Resolved(done, record.offset, failure)
        return Resolved(done)

    async def resolved(
        self,
        records: dict[TopicPartition, list[ConsumerRecord]],
        bytes_max: int,
        passing_over: Collection[tuple[TopicPartition, int]],
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the records of a transaction with their values, of at most `bytes_max` bytes together.

        Leaves out the records at the offsets `passing_over`. Raises UnreadableValue for a value that is missing or
        wrong, and RECORD_LIST_TOO_LARGE.
        """
        if not any(record.headers for some in records.values() for record in some):
            return records
        left = bytes_max
        result: dict[TopicPartition, list[ConsumerRecord]] = {}
        for partition, some in records.items():
            result[partition] = whole = []
            for record in some:
                if not is_reference(record.headers):
                    whole.append(record)
                elif (partition, record.offset) not in passing_over:
                    found = await self._now(record, left)
                    left -= len(found.value)
                    whole.append(found)
        return result

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the values of all partitions except these."""
        for partition in self._reads.keys() - set(partitions):
            reads = self._reads.pop(partition)
            self._drop(reads, list(reads.values))

    # inside

    async def _now(self, record: ConsumerRecord, bytes_left: int) -> ConsumerRecord:
        try:
            reference = self._checked(record)
            if reference.size > bytes_left:
                raise KafkaError(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    "the values that a transaction refers to have more bytes than buffer_bytes_max: a larger "
                    "buffer_bytes_max reads on",
                )
            return self._with_value(record, await self._download(reference))
        except KafkaError as error:
            raise _unreadable(record, error, _LEFT_OUT) from error

    def _checked(self, record: ConsumerRecord) -> ObjectReference:
        """Return the reference in a record. Raises KafkaError for one that cannot be followed."""
        if self._store is None:
            raise NoObjectStore(_WITHOUT_STORE)
        try:
            reference = read_reference(record.value)
        except ValueError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        if reference.size > self._bytes_max:
            raise ClientError(
                f"its object {reference.key} has {reference.size} bytes, and large_message_buffer_bytes is "
                f"{self._bytes_max}"
            )
        return reference

    def _with_value(self, record: ConsumerRecord, value: bytes) -> ConsumerRecord:
        self._stats.fetched += 1
        return record._replace(value=value, headers=without_mark(record.headers))

    def _fetch(self, partition: TopicPartition, reads: _Reads, records: Sequence[ConsumerRecord]) -> None:
        """Begin to fetch the values of these records, in order, while there is room."""
        wanted = self._references(records)
        stale = [
            offset
            for offset, value in reads.values.items()
            if offset not in wanted or wanted[offset] != value.reference
        ]
        if records[0].offset not in reads.values:
            stale = list(reads.values)  # The later values would take the room of the first.
        self._drop(reads, stale)
        for offset, reference in wanted.items():
            if offset in reads.values:
                continue
            if self._bytes + reference.size > self._bytes_max and offset == records[0].offset:
                self._make_room(partition)
            if self._bytes + reference.size > self._bytes_max:
                return
            task = asyncio.ensure_future(self._download(reference))
            task.add_done_callback(self._ended)
            reads.values[offset] = _Fetched(reference, task)
            self._bytes += reference.size

    def _references(self, records: Iterable[ConsumerRecord]) -> dict[int, ObjectReference]:
        """Return the references of records up to the first that cannot be followed, by offset."""
        found: dict[int, ObjectReference] = {}
        for record in records:
            if is_reference(record.headers):
                try:
                    found[record.offset] = self._checked(record)
                except KafkaError:
                    break
        return found

    def _make_room(self, reader: TopicPartition) -> None:
        """Drop the values that are here and cannot be taken now, as the leader of their partition may be away."""
        for partition, reads in self._reads.items():
            if partition != reader and not self._is_buffered(partition):
                self._drop(reads, [offset for offset, value in reads.values.items() if value.task.done()])

    def _drop(self, reads: _Reads, offsets: Iterable[int]) -> None:
        for offset in offsets:
            value = reads.values.pop(offset)
            self._bytes -= value.reference.size
            self._changes += 1
            value.task.cancel()

    def _ended(self, task: asyncio.Task[bytes]) -> None:
        self._changes += 1
        if not task.cancelled():
            task.exception()  # It is raised by the read, if there is one; asyncio would log it otherwise.
            self._arrived()

    async def _download(self, reference: ObjectReference) -> bytes:
        assert self._store is not None
        async with self._at_once:
            return await fetch_object(self._store, reference)


def _unreadable(record: ConsumerRecord, error: KafkaError, way_on: str | None = None) -> UnreadableValue:
    partition = TopicPartition(record.topic, record.partition)
    return UnreadableValue(
        error, partition, record.offset, record.offset + 1, what="the record", way_on=way_on
    )
