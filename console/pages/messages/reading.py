"""Reading of records for a page, by a dedicated consumer without a group, within limits on number, time and bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from ....client.consumer import Consumer
from ....client.consuming.outcomes import TransactionOutcome
from ....client.failures import UnreadableRecords
from ....client.record_filters import RecordTest
from ....client.records import ConsumerRecord, TopicPartition
from ....protocol.errors import KafkaError
from ...schemas.decoding import Decoded

READERS_MAX: Final = 4
"""The most pages that read at a time; other pages wait."""
READ_S: Final = 8.0
SCANNED_RECORDS_MAX: Final = 200_000
SCANNED_BYTES_MAX: Final = 256 * 1024 * 1024
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes of matching records that a page keeps until it is rendered."""
OUTCOMES_S: Final = 3.0
OUTCOMES_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes that are read to find the markers of one page's transactions."""
_FETCH_BYTES: Final = 1024 * 1024
"""The most bytes of one partition per fetch."""
_FETCHES_BYTES: Final = 4 * _FETCH_BYTES
"""The most bytes per fetch from a broker."""
_POLL_MS: Final = 500

Decode = Callable[[bytes | None], Awaitable[Decoded | None]]

_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
"""The limits of concurrent readers, one for each console, which has its own event loop."""


@dataclass(slots=True)
class MessagesRead:
    """The records that a page read.

    `scanned` is the number of records read, `records` are those that passed the filters. `next` maps partitions to the
    next offset; `trouble` is the reason for an early end, or empty.
    """

    records: list[ConsumerRecord] = field(default_factory=list)
    scanned: int = 0
    next: dict[TopicPartition, int] = field(default_factory=dict)
    trouble: str = ""
    undecoded: int = 0
    """The number of values that could not be decoded, so that filters found nothing in them."""
    first_undecoded: str = ""
    _scanned_bytes: int = 0
    _kept_bytes: int = 0

    def take(
        self, record: ConsumerRecord, tests: Sequence[RecordTest], decoded: Decoded | None = None
    ) -> None:
        """Count a record that was read, and keep it if it passes the tests.

        `decoded` is its value decoded by a schema.
        """
        if decoded is not None and decoded.trouble:
            self.undecoded += 1
            self.first_undecoded = self.first_undecoded or f"{decoded.label}: {decoded.trouble}"
        size = len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
        self.scanned += 1
        self._scanned_bytes += size
        self.next[TopicPartition(record.topic, record.partition)] = record.offset + 1
        if all(passes(record, decoded) for passes in tests):
            self.records.append(record)
            self._kept_bytes += size

    @property
    def bound_reached(self) -> str:
        """The limit on records or bytes that reading has reached, as text; empty if there is none."""
        if self.scanned >= SCANNED_RECORDS_MAX:
            return f"stopped after {SCANNED_RECORDS_MAX:,} records"
        if self._scanned_bytes >= SCANNED_BYTES_MAX:
            return f"stopped after {SCANNED_BYTES_MAX >> 20} MiB"
        if self._kept_bytes >= KEPT_BYTES_MAX:
            return f"stopped after {KEPT_BYTES_MAX >> 20} MiB of records for this page"
        return ""


async def read(
    connection: Mapping[str, Any],
    begin: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    tests: Sequence[RecordTest],
    *,
    count: int | None,
    is_committed_only: bool = False,
    decode: Decode | None = None,
) -> MessagesRead:
    """Read records from the offsets `begin` up to `ends`, and keep those that pass all `tests`: at most `count`, or all
    if it is None."""
    turns = _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(READERS_MAX))
    reading = MessagesRead(next=dict(begin))
    if not begin:
        return reading
    async with (
        turns,
        Consumer(
            **connection,
            isolation_level="read_committed" if is_committed_only else "read_uncommitted",
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_bytes=_FETCHES_BYTES,
        ) as consumer,
    ):
        consumer.assign(begin)
        for partition, offset in begin.items():
            consumer.seek(partition, offset)
        try:
            async with asyncio.timeout(READ_S):
                await _read_on(consumer, reading, ends, tests, count, decode)
        except TimeoutError:
            reading.trouble = f"stopped after {READ_S:g} s"
        except UnreadableRecords as error:
            reading.trouble = error.message
            reading.next[error.partition] = error.next_offset
    return reading


async def outcomes_of(
    connection: Mapping[str, Any], records: Sequence[ConsumerRecord]
) -> dict[TopicPartition, list[TransactionOutcome]]:
    """Return the outcomes of the transactions that wrote these records, by partition.

    Outcomes that are not found within OUTCOMES_S seconds and OUTCOMES_BYTES_MAX bytes are missing.
    """
    stretches: dict[TopicPartition, tuple[int, int]] = {}
    for record in records:
        place = TopicPartition(record.topic, record.partition)
        begin, end = stretches.get(place, (record.offset, record.offset + 1))
        stretches[place] = (min(begin, record.offset), max(end, record.offset + 1))
    if not stretches:
        return {}
    turns = _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(READERS_MAX))
    try:
        async with (
            asyncio.timeout(OUTCOMES_S),
            turns,
            Consumer(
                **connection, max_partition_fetch_bytes=_FETCH_BYTES, fetch_max_bytes=_FETCHES_BYTES
            ) as consumer,
        ):
            return await consumer.transaction_outcomes(stretches, bytes_max=OUTCOMES_BYTES_MAX)
    except (TimeoutError, KafkaError):  # Missing outcomes must not hide the records.
        return {}


async def _read_on(
    consumer: Consumer,
    reading: MessagesRead,
    ends: Mapping[TopicPartition, int],
    tests: Sequence[RecordTest],
    count: int | None,
    decode: Decode | None,
) -> None:
    left = set(reading.next)
    while left and (count is None or len(reading.records) < count) and not reading.trouble:
        some = await consumer.getmany(timeout_ms=_POLL_MS, max_records=500)
        for partition, records in some.items():
            for record in records:
                if record.offset >= ends[partition] or (count is not None and len(reading.records) >= count):
                    break
                reading.take(record, tests, None if decode is None else await decode(record.value))
        reading.trouble = reading.bound_reached
        # Markers and compacted records have offsets, but no records are returned for them.
        left = {partition for partition in left if await consumer.position(partition) < ends[partition]}
