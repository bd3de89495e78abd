"""The delivery of a spool: chunk after chunk, each in a transaction that also commits the position after it.

Every failure is handled the same way. A new transactional producer fences the former one and ends its transaction; then
the position is read from the cluster. It is after the chunk that was in flight, or before it: the chunk was committed
as a whole, or is sent again.

A chunk ends before the first record whose partition has no leader. A transaction that makes no progress is aborted
within seconds: see `readiness`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, ParamSpec, Protocol, TypeVar

from ...network import threads
from ...protocol.errors import ErrorCode, KafkaError
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..failures import (
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    SpoolFileDeleted,
    SpoolUnusable,
    TransactionFailed,
)
from ..producing.deliveries import RecordDelivery
from ..producing.record_writer import WriterParts
from ..producing.send_steps import SendSteps
from ..records import OffsetAndMetadata, TopicPartition
from .error_classes import ErrorClass, verdict
from .folder import Checkpoint, Folder
from .frames import SpooledRecord
from .futures import WaitingFutures
from .position import ClusterPosition, resolve
from .readiness import ANY_PARTITION, Place, Placed, ReadyPartitions
from .rejected_records import RejectedRecords
from .spool_log import SpoolLog

CHUNK_RECORDS: Final = 8192
CHUNK_BYTES: Final = 1 << 20
"""Maximum size of a transaction; it has at least one record."""
KNOWN_S: Final = 3600.0
"""Time in seconds after which a committed position is committed again before a chunk, since the cluster may be about to
delete it."""
CLOSE_S: Final = 2.0
"""Time in seconds that a discarded producer may take to abort its transaction. The next producer ends it in any
case."""
TELL_AGAIN_S: Final = 60.0
ATTEMPT_S: Final = 5.0
"""Time in seconds after which an unacknowledged chunk is aborted. The next chunk has twice the time, for slow links."""
LOOK_S: Final = 0.2
"""Interval in seconds at which an open transaction checks that its partitions have leaders."""
P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger(__name__)


class Courier(Protocol):
    """The methods of a transactional producer that delivery uses."""

    parts: WriterParts
    steps: SendSteps

    async def start(self) -> None:
        """Start the producer, and fence the former producer with its transactional id."""

    async def stop(self) -> None:
        """Close the producer."""

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of `topic`; waits until it exists."""

    async def begin_transaction(self) -> None:
        """Begin a transaction; see Producer."""

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> RecordDelivery:
        """Send a record; see Producer."""

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str
    ) -> None:
        """Add offsets to the transaction; see Producer."""

    async def flush(self) -> None:
        """Wait for all acknowledgements; see Producer."""

    async def commit_transaction(self) -> None:
        """Commit the transaction; see Producer."""

    async def abort_transaction(self) -> None:
        """Abort the transaction; see Producer."""


Sent = list[tuple[SpooledRecord, RecordDelivery]]


class Delivery:
    """The delivery of spooled records to the cluster, one chunk per transaction, while the spool's folder is open."""

    def __init__(
        self,
        folder: Folder,
        log: SpoolLog,
        rejected: RejectedRecords,
        waiting: WaitingFutures,
        cluster: Cluster,
        courier: Callable[[str], Courier],
        patience_s: float,
        attempt_s_max: float,
    ) -> None:
        """`courier` creates a producer for a transactional id. `patience_s` is the wait for a partition that a record
        names and that does not exist. `attempt_s_max` is the longest that a transaction may wait for
        acknowledgements."""
        self.position = folder.checkpoint.delivered
        """Position before which all records are delivered or rejected."""
        self.error: Exception | None = None
        """The reason why records are not delivered now."""
        self.dead = False
        """True if this producer delivers no more records, because of the error."""
        self.appended = asyncio.Event()
        """An event that is set when the log has new records."""
        self._doubtful = folder.checkpoint.open
        if not log.count_from(self.position):
            self.position, self._doubtful = log.end, False
        self._folder = folder
        self._log = log
        self._rejected = rejected
        self._waiting = waiting
        self._cluster = cluster
        self._courier = courier
        self._name = folder.identity.name
        self._known = ClusterPosition(cluster, self._name)
        self._unanswered: Sent = []  # records of a commit whose outcome is unknown
        self._knows_owner = False
        self._committed_s = -KNOWN_S  # loop time of the last commit of the position
        self._limit = CHUNK_RECORDS
        self._absent: dict[tuple[str, int | None], KafkaError] = {}
        self._patience_s = patience_s
        self._attempt_s_max = attempt_s_max
        self._attempt_s = min(ATTEMPT_S, attempt_s_max)
        self._readiness = ReadyPartitions(random.choice)
        self._backoff = Backoff(cluster.retry_backoff_max_ms)
        self._warned_s = -TELL_AGAIN_S
        self._waiters: dict[asyncio.Future[None], None] = {}

    @property
    def done(self) -> bool:
        """True if all spooled records are delivered or rejected."""
        return self.position >= self._log.end

    @property
    def clean_checkpoint(self) -> Checkpoint:
        """The checkpoint (progress of delivery) to write to the folder when delivery has ended."""
        return Checkpoint(self.position, self._folder.checkpoint.under_way, self._doubtful)

    async def run(self) -> None:
        """Deliver spooled records until cancelled or `dead`."""
        try:
            while True:
                try:
                    await self._session()
                except Exception as error:
                    if isinstance(error, SpoolFileDeleted):
                        self.dead = True
                        # Records in other files are sent by the next producer.
                        self._waiting.all_failed(error)
                    if self.dead:
                        self.error = error
                        logger.error("spool %s: delivery has ended: %s", self._folder.path, error)
                        return
                    self._warn(error)
                    await asyncio.sleep(self._backoff.next_s())
        finally:
            self._wake()

    async def moved(self) -> None:
        """Wait until more records are delivered or rejected, or delivery has ended."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    # ------------------------------------------------------------ one producer

    async def _session(self) -> None:
        await self._something_waits()
        await in_thread(self._log.check_files)
        courier = self._courier(self._name)
        try:
            await courier.start()
            await self._find_position()
            while True:
                await self._something_waits()
                await self._deliver_next(courier)
        finally:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await courier.stop()

    async def _something_waits(self) -> None:
        while self.done:
            self.appended.clear()
            await self.appended.wait()

    async def _find_position(self) -> None:
        """Find the position to continue from. No older producer has an open transaction, so the cluster's answer is
        final."""
        known = await self._known.read()
        lowest = max([self.position, *(entry.position for entry in known.values())])
        ahead = await in_thread(self._log.read, lowest, CHUNK_RECORDS, CHUNK_BYTES)
        known = await self._known.read({record.topic for record in ahead.records})
        checkpoint = self._folder.checkpoint._replace(delivered=self.position, open=self._doubtful)
        try:
            position = resolve(known, self._folder.identity, checkpoint)
        except SpoolUnusable:
            self.dead = True
            raise
        if not self._knows_owner:
            newest = max(known.values(), default=None)
            await in_thread(self._folder.begin_owner, newest.owner if newest else "")
            self._knows_owner = True
        if not known:
            self._committed_s = -KNOWN_S
        unanswered, self._unanswered, self._doubtful = self._unanswered, [], False
        if position > self.position:
            self._settle(unanswered, position)
            self._advance(position)
        self._folder.keep(Checkpoint(position, position))

    async def _deliver_next(self, courier: Courier) -> None:
        chunk = await in_thread(self._log.read, self.position, self._limit, CHUNK_BYTES)
        records = [record for record in chunk.records if record.position not in self._rejected]
        records = await self._for_topics_there_are(courier, records)
        end = chunk.end
        if records:
            known = courier.parts.cluster.metadata.topics
            run = self._readiness.run(known, records, courier.steps.partition_of_key)
            if not run.records:
                assert run.waits_for is not None
                await self._led(courier, *run.waits_for)
                return
            if len(run.records) < len(records):
                end = records[len(run.records)].position
            await self._commit_position(courier, records[0].topic)
            await self._keep_open(end)
            sent = await self._send(courier, run.records, end)
            if sent is None:
                return
            self._settle(sent, end)
            self._limit = min(2 * self._limit, CHUNK_RECORDS)
        self._advance(end)
        self.error = None
        self._backoff.reset()

    async def _led(self, courier: Courier, topic: str, partition: int) -> None:
        """Wait until a partition has a leader, or the topic is gone. No transaction is open meanwhile."""
        cluster = courier.parts.cluster
        backoff = Backoff(cluster.retry_backoff_max_ms)
        while True:
            info = cluster.metadata.topics.get(topic)
            if info is None or not info.partitions:
                return
            if info.available if partition == ANY_PARTITION else partition in info.available:
                return
            self._warn(_leaderless(topic, partition))
            await asyncio.sleep(backoff.next_s())
            await cluster.refresh([topic])

    async def _commit_position(self, courier: Courier, topic: str) -> None:
        """Commit the position alone if the last commit is long ago, so that the cluster still has it if the next
        commit's outcome is unknown."""
        now = asyncio.get_running_loop().time()
        if now - self._committed_s < KNOWN_S:
            return
        await courier.begin_transaction()
        await self._with_position(courier, [topic], self.position)
        try:
            await self._commit(courier)
        finally:
            self._doubtful = False  # No record was in that transaction, whether it was committed or not.
        self._committed_s = now

    async def _with_position(self, courier: Courier, topics: Iterable[str], position: int) -> None:
        """Add the spool's delivered position and the owner's name to the transaction."""
        place = OffsetAndMetadata(position, self._folder.identity.next_owner)
        await courier.send_offsets_to_transaction(
            {TopicPartition(topic, 0): place for topic in topics}, self._name
        )

    async def _keep_open(self, under_way: int) -> None:
        """Note in the folder that records up to position `under_way` may be delivered from now on. The flag `open` is
        made durable once, so it survives a power failure."""
        opened = Checkpoint(self.position, under_way, open=True)
        if self._folder.checkpoint.open:
            self._folder.keep(opened)
        else:
            await in_thread(self._folder.keep, opened, durably=True)

    async def _send(self, courier: Courier, records: list[Placed], end: int) -> Sent | None:
        """Deliver these records, and the position after them. Returns None if some records must be left out first, or
        are delivered later."""
        sent: Sent = []
        await courier.begin_transaction()
        try:
            async with asyncio.timeout(self._attempt_s):
                await self._hand_all_over(courier, records, sent)
                if sent:
                    await self._with_position(courier, {record.topic for record, _ in sent}, end)
                await self._acknowledged(courier, sent)
            self._unanswered = sent
            await self._commit(courier)
        except _LeaderLost as lost:
            await self._put_off(courier, sent, _leaderless(*lost.place))
            return None
        except TimeoutError:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(_places_late(sent)))
            late = f"{names or 'the cluster'} took no record within {self._attempt_s:g} s"
            self._attempt_s = min(2 * self._attempt_s, self._attempt_s_max)
            await self._put_off(courier, sent, RequestTimedOut(late))
            return None
        except KafkaError:
            self._readiness.missed(_places_late(sent))
            if self._doubtful or not await self._leave_out(sent):
                raise
            await courier.abort_transaction()
            return None
        self._unanswered = []
        self._committed_s = asyncio.get_running_loop().time()
        self._readiness.took(_place(future) for _, future in sent)
        self._attempt_s = min(ATTEMPT_S, self._attempt_s_max)
        return sent

    async def _hand_all_over(self, courier: Courier, records: list[Placed], sent: Sent) -> None:
        refused: list[tuple[SpooledRecord, KafkaError]] = []
        for record, partition in records:
            try:
                sent.append((record, await self._hand_over(courier, record, partition)))
            except _Refused as error:
                refused.append((record, error.reason))
        await self._reject(refused)

    async def _acknowledged(self, courier: Courier, sent: Sent) -> None:
        """Wait until all records are acknowledged or have failed. Raises _LeaderLost once a record waits for a
        partition without a leader."""
        flushing = asyncio.ensure_future(courier.flush())
        try:
            while not (await asyncio.wait([flushing], timeout=LOOK_S))[0]:
                topics = courier.parts.cluster.metadata.topics
                for topic, partition in _places_late(sent):
                    if topic in topics and partition not in topics[topic].available:
                        raise _LeaderLost(topic, partition)
            await flushing
        finally:
            flushing.cancel()

    async def _put_off(self, courier: Courier, sent: Sent, error: KafkaError) -> None:
        """Abort a transaction that makes no progress. Its records are sent again in smaller transactions. Records for
        late partitions are sent in separate transactions."""
        late = _places_late(sent)
        self._readiness.missed(late)
        self._limit = max(1, len(sent) // 2)
        self._warn(error)
        await courier.abort_transaction()
        await asyncio.sleep(self._backoff.next_s())
        await courier.parts.cluster.refresh({topic for topic, _ in late})

    async def _hand_over(
        self, courier: Courier, record: SpooledRecord, partition: int | None
    ) -> RecordDelivery:
        try:
            return await courier.send(
                record.topic,
                record.value,
                record.key,
                partition=partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
        except KafkaError as error:
            told = verdict(error)
            if told is ErrorClass.AGAIN or (
                told is ErrorClass.NOT_THE_TOPIC and await self._may_exist(record)
            ):
                raise  # The metadata of the topic is outdated: the next producer fetches it again.
            raise _Refused(error) from error
        except Exception as error:  # a partitioner is a function of the program
            raise _Refused(ClientError(f"the record cannot be sent: {error!r}")) from error

    async def _may_exist(self, record: SpooledRecord) -> bool:
        """Return False if the topic is known, and does not have the partition that the record names."""
        if record.partition is None:
            return True
        await self._cluster.refresh([record.topic])
        self._cluster.unfollow([record.topic])
        info = self._cluster.metadata.topics.get(record.topic)
        return info is None or not info.partitions or record.partition in info.partitions

    async def _commit(self, courier: Courier) -> None:
        self._doubtful = True
        while True:
            try:
                await courier.commit_transaction()
            except RequestTimedOut as error:
                self._warn(error)  # Ask again: nothing else is possible.
            except KafkaError as error:
                self._doubtful = not _is_undone(error)
                raise
            else:
                self._doubtful = False
                return

    # ------------------------------------------------------------ what is never taken

    async def _for_topics_there_are(
        self, courier: Courier, records: list[SpooledRecord]
    ) -> list[SpooledRecord]:
        against: dict[tuple[str, int | None], KafkaError] = {}
        for topic, partition in dict.fromkeys((record.topic, record.partition) for record in records):
            error = await self._against(courier, topic, None)
            if error is None and partition is not None:
                error = await self._against(courier, topic, partition)
            if error is not None:
                against[topic, partition] = error
        await self._reject(
            [
                (record, error)
                for record in records
                if (error := against.get((record.topic, record.partition))) is not None
            ]
        )
        return [record for record in records if (record.topic, record.partition) not in against]

    async def _against(self, courier: Courier, topic: str, partition: int | None) -> KafkaError | None:
        """Return the error of a topic, or of its partition, that accepts no records; else None. A partition that has
        not appeared is looked up again, without a second wait."""
        place = topic, partition
        if place in self._absent:
            if not await self._is_there(topic, partition):
                return self._absent[place]
            del self._absent[place]
        try:
            known = await courier.partitions_for(topic)
            if partition is not None and partition not in known:
                await self._partition_appears(topic, partition)
        except KafkaError as error:
            if verdict(error) is not ErrorClass.NOT_THE_TOPIC:
                raise
            self._absent[place] = error
            return error
        return None

    async def _partition_appears(self, topic: str, partition: int) -> None:
        try:
            await self._cluster.partitions_of(
                topic, patience_s=self._patience_s, backoff_max_ms=100, partition=partition
            )
        finally:
            self._cluster.unfollow([topic])

    async def _is_there(self, topic: str, partition: int | None) -> bool:
        await self._cluster.refresh([topic])
        self._cluster.unfollow([topic])
        info = self._cluster.metadata.topics.get(topic)
        return info is not None and bool(info.partitions) and partition in (None, *info.partitions)

    async def _leave_out(self, sent: Sent) -> bool:
        """After a failed chunk, reject the records at fault, or shrink the chunks to find them. Returns False if no
        record was at fault."""
        failed = [
            (record, error)
            for record, future in sent
            if future.done() and isinstance(error := future.exception(), KafkaError)
            if verdict(error) is not ErrorClass.AGAIN
        ]
        topics = {
            record.topic: error for record, error in failed if verdict(error) is ErrorClass.NOT_THE_TOPIC
        }
        if topics:
            await self._reject(
                [(record, topics[record.topic]) for record, _ in sent if record.topic in topics]
            )
        elif len(failed) == 1:
            await self._reject(failed)
        elif failed:
            self._limit = max(1, len(sent) // 2)
        return bool(failed)

    async def _reject(self, records: list[tuple[SpooledRecord, KafkaError]]) -> None:
        if not records:
            return
        await in_thread(self._rejected.add, records)
        first, reason = records[0]
        logger.warning(
            "spool %s: %d records were rejected and stand in the file 'rejected', the first of them for topic %r: %s",
            self._folder.path, len(records), first.topic, reason,
        )  # fmt: skip
        for record, error in records:
            self._waiting.failed(record.position, error)

    # ------------------------------------------------------------ progress

    def _settle(self, sent: Sent, end: int) -> None:
        for record, future in sent:
            if record.position < end and future.done() and future.exception() is None:
                self._waiting.delivered(record.position, future.result())

    def _advance(self, position: int) -> None:
        self.position = position
        self._folder.keep(Checkpoint(position, position, self._folder.checkpoint.open))
        self._rejected.delivered(position)
        self._wake()  # Wake them even if the deletion of files fails.
        self._log.delivered(position)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _warn(self, error: Exception) -> None:
        """Log why the records wait, for the program's operators; no record is lost."""
        now = asyncio.get_running_loop().time()
        other = type(error) is not type(self.error)
        self.error = error
        if other or now - self._warned_s >= TELL_AGAIN_S:
            self._warned_s = now
            fault = None if isinstance(error, (KafkaError, OSError)) else error
            logger.warning(
                "spool %s: records wait, and will be sent again: %s", self._folder.path, error, exc_info=fault
            )


class _LeaderLost(Exception):
    """An error: a partition has lost its leader while a transaction was open."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.place = topic, partition


class _Refused(Exception):
    """An error: the cluster will never accept the record."""

    def __init__(self, reason: KafkaError) -> None:
        super().__init__(reason)
        self.reason = reason


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work on a disk in a thread. A cancelled caller still waits until the work is done."""
    running = asyncio.ensure_future(threads.in_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _leaderless(topic: str, partition: int) -> KafkaError:
    where = f"topic {topic!r}" if partition == ANY_PARTITION else f"{topic}-{partition}"
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} has no leader")


def _place(delivery: RecordDelivery) -> Place:
    return delivery.batch.topic, delivery.batch.partition


def _places_late(sent: Sent) -> set[Place]:
    """Return the partitions with a record that is not acknowledged, or whose acknowledgement was given up."""
    return {
        _place(delivery)
        for _, delivery in sent
        if not delivery.done() or isinstance(delivery.exception(), (RequestTimedOut, ConnectionLost))
    }


def _is_undone(error: KafkaError) -> bool:
    """Return whether a commit that failed with this error certainly has no effect."""
    return isinstance(error, TransactionFailed)
