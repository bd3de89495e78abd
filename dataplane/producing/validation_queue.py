"""Validation of produced batches in a few threads, and their compression if their topic has a compression.type.

Only batches that take long come here. In each partition they are appended in the order of arrival: a batch waits for
the one before it, even if its own thread is done first. So producers with several requests under way keep their
sequences, and a connection keeps the order of its answers.

Clients have fair turns at the threads, by the time that their batches have taken; see `FairTurns`. That time counts
towards the quota `request_percentage`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.produced_batch import VALIDATION, ExpandsTooFar
from ...protocol.records.record import recompressed
from ...protocol.records.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    BatchHeader,
    parse_header,
    validate_produced,
)
from ..log import LogConfig, TakesLong
from ..log.append_checks import check_limits, check_records, check_records_on_loop
from ..log.config import StoredCompression
from ..replication.replica.partition import Partition
from ..server.connection import ClientConnection
from .fair_turns import FairTurns

UNCOMPRESSED_ON_LOOP_MAX: Final = 2 << 20 if VALIDATION == "C" else 64 << 10
"""Largest uncompressed batch that is validated on the event loop: about 1 ms at most in C."""
_COMPRESSED_ON_LOOP_MAX: Final = 32 << 10
"""Largest compressed batch that is validated on the event loop. Its expanded size is limited as well."""
_THREADS: Final = 2
_RECOMPRESSED_BYTES_MAX: Final = 64 << 20
"""Largest expanded size of a batch that is compressed with another codec, since it is held in memory."""
HELD_BYTES_MAX: Final = 128 << 20
"""Maximum bytes of waiting batches in all partitions. More are refused, and the producer retries."""
_MUTED_BYTES: Final = HELD_BYTES_MAX // 4
_MUTED_MS: Final = 100
"""Waiting bytes, and the milliseconds for which a connection that brings more batches is not read."""

logger = logging.getLogger(__name__)


class ValidatedBatch(NamedTuple):
    """A validated batch in the form in which it is appended, perhaps compressed in another way than its producer sent
    it."""

    records: memoryview
    max_timestamp: int | None
    """Largest timestamp of its records; None for a duplicate, which is only acknowledged again."""


Outcome = ValidatedBatch | KafkaError
Append = Callable[[Outcome], None]


Spend = Callable[[float], None]
"""A function that counts seconds of a thread for the client of a batch."""


class _Batch:
    """A produced batch in the validation queue. `outcome` is the batch to append, or the reason not to."""

    __slots__ = ("append", "client", "data", "outcome", "partition", "spend")

    def __init__(
        self, partition: Partition, data: memoryview, append: Append, client: tuple[object, str], spend: Spend
    ) -> None:
        self.partition = partition
        self.data = data
        """The batch as it arrived."""
        self.append = append
        self.client = client
        """Principal and address of the client."""
        self.spend = spend
        self.outcome: Outcome | None = None


class ValidationQueue:
    """Produced batches that wait for a thread to validate them, or for earlier batches of their partition. Owned by the
    event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="validate")
        self.waiting: dict[Partition, deque[_Batch]] = {}
        """Batches under way, by partition; partitions without batches are removed."""
        self.turns: FairTurns[_Batch] = FairTurns()
        """Batches that wait for a thread."""
        self._held_bytes = 0
        self._working = 0
        self._closed = False

    def takes(self, partition: Partition, records: memoryview) -> bool:
        """Return whether this produced batch must go through the queue for validation.

        It must if it is large, if its topic stores it with another compression, or if other batches of its partition
        are under way.
        """
        if partition in self.waiting:
            return True
        return (
            partition.leader is not None
            and len(records) >= HEADER_SIZE
            and _needs_thread(parse_header(records), len(records), partition)
        )

    def submit(
        self,
        partition: Partition,
        records: memoryview,
        connection: ClientConnection,
        append: Append,
        takes_long: bool = False,
        spend: Spend = lambda _seconds: None,
    ) -> None:
        """Call `append` once with the batch in the form to append, or with the error: after earlier batches, possibly
        within this call.

        `records` are copied. With `takes_long` even a small batch goes to a thread. `spend` is called with the seconds
        that a thread has spent on the batch. Raises KafkaError: REQUEST_TIMED_OUT if too many bytes wait already;
        nothing is appended then.
        """
        size = len(records)
        if self._held_bytes + size > HELD_BYTES_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{self._held_bytes} bytes wait to be validated already"
            )
        data = memoryview(bytearray(records))
        session = connection.session
        batch = _Batch(partition, data, append, (session.principal, session.host), spend)
        self._held_bytes += size
        if self._held_bytes > _MUTED_BYTES:
            connection.mute(_MUTED_MS)
        self.waiting.setdefault(partition, deque()).append(batch)
        outcome = _outcome_on_loop(data, partition, partition.wall_ms(), takes_long)
        if outcome is not None:
            self._done(partition, batch, outcome)
            return
        self.turns.add(batch.client, connection, batch)
        self._give_turns()

    def _give_turns(self) -> None:
        while self._working < _THREADS and not self._closed and (batch := self.turns.take()) is not None:
            self._work_on(batch)

    def _work_on(self, batch: _Batch) -> None:
        self._working += 1
        partition = batch.partition
        work = asyncio.get_running_loop().run_in_executor(
            self._threads,
            _timed_outcome,
            batch.data,
            partition.settings.stored,
            partition.log.config,
            partition.wall_ms(),
        )
        work.add_done_callback(lambda done: self._worked(partition, batch, done))

    def _worked(
        self, partition: Partition, batch: _Batch, work: asyncio.Future[tuple[Outcome, float]]
    ) -> None:
        self._working -= 1
        if not work.cancelled() and work.exception() is None:
            seconds = work.result()[1]
            self.turns.spend(batch.client, seconds)
            batch.spend(seconds)
        self._give_turns()
        if work.cancelled():
            self._done(partition, batch, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker stops"))
        elif error := work.exception():
            logger.error("a batch of %r cannot be validated", partition, exc_info=error)
            self._done(partition, batch, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            self._done(partition, batch, work.result()[0])

    def _done(self, partition: Partition, batch: _Batch, outcome: Outcome) -> None:
        batch.outcome = outcome
        waiting = self.waiting[partition]
        while waiting and (ready := waiting[0].outcome) is not None:
            first = waiting.popleft()
            self._held_bytes -= len(first.data)
            if isinstance(ready, KafkaError) and partition.log.produced.has(first.data):
                # The batch was sent before, and appended while this one waited. It is a duplicate, whatever error it
                # has now.
                ready = ValidatedBatch(first.data, None)
            first.append(ready)
        # An append may answer requests, so that the next ones arrive within the loop above.
        if not waiting and self.waiting.get(partition) is waiting:
            del self.waiting[partition]

    def close(self) -> None:
        """Stop the threads that validate batches. Batches that no thread has begun are refused."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        while (batch := self.turns.take()) is not None:
            stops = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker stops")
            self._done(batch.partition, batch, stops)


def _needs_thread(header: BatchHeader, size: int, partition: Partition, takes_long: bool = False) -> bool:
    codec, stored = header.attributes & COMPRESSION_MASK, partition.settings.stored
    changes = stored is not None and codec != stored.codec
    large = size > (_COMPRESSED_ON_LOOP_MAX if codec else UNCOMPRESSED_ON_LOOP_MAX)
    return (takes_long or changes or large) and not partition.log.producers.is_duplicate(header)


def _outcome_on_loop(data: memoryview, partition: Partition, now_ms: int, takes_long: bool) -> Outcome | None:
    """Return the outcome of a batch that can be validated on the event loop; None if it takes a thread.

    Duplicates are left to the append, however clock and configuration have changed since.
    """
    try:
        if _needs_thread(parse_header(data), len(data), partition, takes_long):
            return None
        ((_, header),) = validate_produced(data)
        if partition.log.producers.is_duplicate(header):
            return ValidatedBatch(data, None)
        config = partition.log.config
        check_limits([(0, header)], len(data), config)
        return ValidatedBatch(data, check_records_on_loop(data, header, config, now_ms))
    except TakesLong:
        return None
    except KafkaError as error:
        return error


def _timed_outcome(
    data: memoryview, stored: StoredCompression | None, config: LogConfig, now_ms: int
) -> tuple[Outcome, float]:
    """Return the outcome, and the processor time in seconds that it took."""
    begun_s = time.thread_time()
    outcome = _outcome_in_thread(data, stored, config, now_ms)
    return outcome, time.thread_time() - begun_s


def _outcome_in_thread(
    data: memoryview, stored: StoredCompression | None, config: LogConfig, now_ms: int
) -> Outcome:
    try:
        parsed = validate_produced(data)
        check_limits(parsed, len(data), config)
        ((_, header),) = parsed
        if stored is None or header.compression == stored.codec:
            return ValidatedBatch(
                data, check_records(data, header, config, now_ms, config.expanded_bytes_max)
            )
        return _recompressed(data, header, stored, config, now_ms)
    except ExpandsTooFar as error:
        return KafkaError(ErrorCode.INVALID_RECORD, str(error))
    except KafkaError as error:
        return error
    except MemoryError:
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "there is no memory to validate the batch")


def _recompressed(
    data: memoryview, header: BatchHeader, stored: StoredCompression, config: LogConfig, now_ms: int
) -> ValidatedBatch:
    """Return the batch in the stored compression. It is expanded only once. Its size changes, which the append
    checks."""
    expanded: list[bytes] = []
    bytes_max = min(_RECOMPRESSED_BYTES_MAX, config.expanded_bytes_max)
    largest = check_records(data, header, config, now_ms, bytes_max, expanded)
    records = b"".join(expanded) if header.compression else data[HEADER_SIZE:]
    return ValidatedBatch(memoryview(recompressed(header, records, stored.codec, stored.level)), largest)
