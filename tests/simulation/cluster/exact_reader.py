"""A hand-written reader that sends the epoch of its last record with each fetch (KIP-320), and learns of truncations
and log starts.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

from ottla.client.connections.cluster import Cluster
from ottla.client.consuming.fetched import FetchedRecords
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.records.record_batch import walk_batches
from tests.histories.invariants import InvariantBroken
from tests.histories.operations import Poll, Position, Reason
from tests.simulation.cluster.workload import REQUEST_TIMEOUT_MS, Workload, started

TIMEOUT_MS = 700
WAIT_MS = 100
EARLIEST, LATEST = -2, -1
BY_NAME = 12
"""Last version of Fetch that names topics, and first version that reports a diverging epoch."""
LIST_VERSION = 7
MANY = 1 << 30
TAKEN_BYTES = (300, 3000, 1 << 20)


class ExactReader:
    """A reader of one partition from its beginning, in one session for the whole run, and finally to its end.

    Each fetch carries the leader epoch of the last record. If that epoch ended earlier, the broker reports it, and the
    reader goes on from there. If the offset does not exist, the reader restarts at the beginning.
    """

    def __init__(self, workload: Workload, name: str, place: TopicPartition) -> None:
        self._workload, self._name, self._place = workload, name, place
        self._chance: Random = workload.chance()
        self._position: int | None = None
        # : leader epoch of the record before the position; -1 without a record
        self._epoch = -1

    async def run(self) -> None:
        """Read until the workload is over and everything has been read."""
        workload = self._workload
        self._cluster = await started(
            lambda: Cluster(workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        )
        self._cluster.follow(self, [self._place.topic])
        while True:
            after = workload.over
            try:
                if self._position is None:
                    self._jump(await self._look(EARLIEST), Reason.START)
                elif await self._fetch() and after and self._position >= await self._look(LATEST):
                    break
            except KafkaError as error:
                await self._cure(error)
            if not after:
                await self._dally()
        await self._cluster.close()

    async def _dally(self) -> None:
        """Fall far behind now and then."""
        pause_s = self._chance.uniform(0.3, 1.5) if self._chance.random() < 0.02 else 0.05
        await asyncio.sleep(pause_s)

    async def _cure(self, error: KafkaError) -> None:
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            with suppress(KafkaError):
                self._jump(await self._look(EARLIEST), Reason.RESET)
                return
        await asyncio.sleep(0.03)
        with suppress(KafkaError):
            await self._cluster.refresh()

    def _jump(self, offset: int, reason: Reason, epoch: int = -1) -> None:
        self._position, self._epoch = offset, epoch
        now = self._workload.now()
        self._workload.history.add(Position(self._name, self._name, *self._place, offset, reason, now))

    async def _fetch(self) -> bool:
        """Fetch once, and return whether there were no more records."""
        assert self._position is not None
        data = await self._ask(self._position)
        if data.error_code:
            raise KafkaError(ErrorCode(data.error_code))
        if data.diverging_epoch.end_offset >= 0:
            offset = min(self._position, data.diverging_epoch.end_offset)
            self._jump(offset, Reason.TRUNCATION, data.diverging_epoch.epoch)
            return False
        found = memoryview(data.records or b"")
        taken = FetchedRecords(self._place, found, self._position).take(MANY)
        markers = {
            header.base_offset: header.partition_leader_epoch
            for _, header in walk_batches(found, partial_tail=True)
            if header.is_control
        }
        now = self._workload.now()
        for record in taken:
            self._pass_over(markers)
            if record.offset != self._position:
                what = f"{self._name} at {self._position} of {self._place}, told nothing, got {record.offset} next"
                raise InvariantBroken("no offset is left out", what)
            self._workload.history.add(
                Poll(
                    self._name,
                    self._name,
                    *self._place,
                    record.offset,
                    record.leader_epoch,
                    record.value or b"",
                    now,
                )
            )
            self._position, self._epoch = record.offset + 1, record.leader_epoch
        self._pass_over(markers)
        return not taken

    def _pass_over(self, markers: dict[int, int]) -> None:
        """Skip the offsets of transaction markers, which hold no records."""
        while self._position in markers:
            self._position, self._epoch = self._position + 1, markers[self._position]

    async def _ask(self, offset: int) -> PartitionData:
        leader, epoch = self._leader()
        part = FetchPartition(
            partition=self._place.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=self._epoch,
            partition_max_bytes=self._chance.choice(TAKEN_BYTES),
        )
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=self._place.topic, partitions=[part])],
        )
        connection = await self._cluster.connection(leader, "read")
        answer = await connection.request(request, version=BY_NAME, timeout_ms=TIMEOUT_MS)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        return answer.responses[0].partitions[0]

    async def _look(self, what: int) -> int:
        """Return the log start, or the offset up to which consumers may read."""
        leader, epoch = self._leader()
        part = ListOffsetsPartition(
            partition_index=self._place.partition, current_leader_epoch=epoch, timestamp=what
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self._place.topic, partitions=[part])]
        )
        connection = await self._cluster.connection(leader, "read")
        answer = await connection.request(request, version=LIST_VERSION, timeout_ms=TIMEOUT_MS)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return found.offset

    def _leader(self) -> tuple[int, int]:
        info = self._cluster.metadata.partition(*self._place)
        if info is None or info.leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        return info.leader, info.leader_epoch
