"""Reads records for a page: within a number, a time and bytes, by a consumer of its own without a group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from ....client.consumer import Consumer
from ....client.consuming.outcomes import TransactionOutcome
from ....client.failures import UnreadableRecords
from ....client.records import ConsumerRecord, TopicPartition
from ....protocol.errors import KafkaError
from ...schemas.decoding import Decoded
from .filters import Test

READERS_MAX: Final = 4
"""Pages that read at a time; others wait for their turn."""
READ_S: Final = 8.0
SCANNED_RECORDS_MAX: Final = 200_000
SCANNED_BYTES_MAX: Final = 256 * 1024 * 1024
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of records that pass: what a page keeps until it is rendered."""
OUTCOMES_S: Final = 3.0
OUTCOMES_BYTES_MAX: Final = 64 * 1024 * 1024
"""What is read for the markers of the transactions of one page."""
_FETCH_BYTES: Final = 1024 * 1024
"""Of one partition at a time."""
_FETCHES_BYTES: Final = 4 * _FETCH_BYTES
"""Of all partitions that a broker leads."""
_POLL_MS: Final = 500

Decode = Callable[[bytes | None], Awaitable[Decoded | None]]

_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
"""One for each console, whoever is signed in there: each has an event loop of its own."""


@dataclass(slots=True)
class MessagesRead:
    """What was read. `next` is where each partition goes on; `trouble` says why it ended early, if it did."""

    records: list[ConsumerRecord] = field(default_factory=list)
    scanned: int = 0
    next: dict[TopicPartition, int] = field(default_factory=dict)
    trouble: str = ""
    undecoded: int = 0
    """Values that their schemas did not help with, so that no filter found anything in them."""
    first_undecoded: str = ""
    _scanned_bytes: int = 0
    _kept_bytes: int = 0

    def take(self, one: ConsumerRecord, tests: Sequence[Test], decoded: Decoded | None = None) -> None:
        """Keep it if it passes."""
        if decoded is not None and decoded.trouble:
            self.undecoded += 1
            self.first_undecoded = self.first_undecoded or f"{decoded.label}: {decoded.trouble}"
        size = len(one.key or b"") + len(one.value or b"")
        size += sum(len(name) + len(value or b"") for name, value in one.headers)
        self.scanned += 1
        self._scanned_bytes += size
        self.next[TopicPartition(one.topic, one.partition)] = one.offset + 1
        if all(passes(one, decoded) for passes in tests):
            self.records.append(one)
            self._kept_bytes += size

    @property
    def bound_reached(self) -> str:
        """Which bound says that it is enough; empty while none does."""
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
    tests: Sequence[Test],
    *,
    count: int | None,
    is_committed_only: bool = False,
    decode: Decode | None = None,
) -> MessagesRead:
    """From `begin` on, up to `ends`: at most `count` records that pass, or all of them. Raises KafkaError.

    With `decode` the tests get what values mean by their schemas.
    """
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
    """What became of the transactions of these records, as far as it is found within a time and bytes."""
    stretches: dict[TopicPartition, tuple[int, int]] = {}
    for one in records:
        place = TopicPartition(one.topic, one.partition)
        begin, end = stretches.get(place, (one.offset, one.offset + 1))
        stretches[place] = (min(begin, one.offset), max(end, one.offset + 1))
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
    except (TimeoutError, KafkaError):  # the records are worth more than what became of them
        return {}


async def _read_on(
    consumer: Consumer,
    reading: MessagesRead,
    ends: Mapping[TopicPartition, int],
    tests: Sequence[Test],
    count: int | None,
    decode: Decode | None,
) -> None:
    left = set(reading.next)
    while left and (count is None or len(reading.records) < count) and not reading.trouble:
        some = await consumer.getmany(timeout_ms=_POLL_MS, max_records=500)
        for partition, records in some.items():
            for one in records:
                if one.offset >= ends[partition] or (count is not None and len(reading.records) >= count):
                    break
                reading.take(one, tests, None if decode is None else await decode(one.value))
        reading.trouble = reading.bound_reached
        # Markers and what compaction took have offsets, and no records.
        left = {one for one in left if await consumer.position(one) < ends[one]}
