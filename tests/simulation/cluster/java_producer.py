"""An idempotent producer that pipelines as the Java client does; `java_sequences` decides about its batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from random import Random

from ottla.client.connections.cluster import Cluster
from ottla.client.connections.connection import Connection
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.records.record import encode_batch
from tests.histories.operations import ALL_IN_SYNC, Send
from tests.simulation.cluster.java_sequences import Batch, JavaSequences, Number
from tests.simulation.cluster.stock_producer import YEARS_MS
from tests.simulation.cluster.workload import DELIVERY_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Workload, started
from tests.simulation.machine.chance import exponential

SHARE = 0.35
"""Share of the runs whose first producer is a `JavaProducer`."""
TIMEOUT_MS, ACKNOWLEDGED_WITHIN_MS = 900, 500
PAUSE_S = 0.02
PRODUCE_VERSION, INIT_VERSION = 11, 4
REFUSED = 0.12
"""Share of batches that are invalid and refused, with other batches in flight after them."""
BURST = 6


def has_java_producer(seed: int) -> bool:
    """Return whether the run of a seed has such a producer."""
    return Random(f"java producer {seed}").random() < SHARE


class JavaProducer:
    """A process of the producer."""

    def __init__(self, workload: Workload, name: str, per_second: float) -> None:
        self._workload, self._name, self._per_second = workload, name, per_second
        self._chance: Random = workload.chance()
        self._places = [place for place in workload.partitions if place.topic not in workload.copies]
        self._sequences = JavaSequences(self._places)
        self._numbers = 0
        self._ends = False
        self._asks = False
        """True if an error may mean that another broker leads by now."""
        self._producer_id = -1
        self._cluster: Cluster

    async def run(self) -> None:
        """Send at random moments until the workload is over, and one record more to each partition."""
        workload, chance = self._workload, self._chance
        self._cluster = await started(
            lambda: Cluster(workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        )
        self._cluster.follow(self, workload.topics)
        await self._initialise()
        sending = [asyncio.create_task(self._send_all(place)) for place in self._places]
        while not workload.over:
            place = chance.choice(self._places)
            for _ in range(chance.choice((1, 1, BURST))):
                self._add(place, chance.randint(1, 2), refused=chance.random() < REFUSED)
            await asyncio.sleep(exponential(chance, self._per_second / 2))
        for place in self._places:
            self._add(place, 1, refused=False)
        self._ends = True
        await asyncio.gather(*sending)
        await self._cluster.close()

    async def _initialise(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=-1, producer_id=-1, producer_epoch=-1
        )
        while self._producer_id < 0:
            with suppress(KafkaError):
                connection = await self._cluster.any_connection()
                answer = await connection.request(request, version=INIT_VERSION, timeout_ms=TIMEOUT_MS)
                if not answer.error_code:
                    self._producer_id = answer.producer_id
                    continue
            await asyncio.sleep(PAUSE_S)

    def _add(self, place: TopicPartition, count: int, *, refused: bool) -> None:
        workload, sends = self._workload, list[Send]()
        for _ in range(count):
            value = f"{self._name}:{self._numbers}".encode() + b"." * self._chance.choice((0, 10, 100))
            send = Send(
                self._name, self._name, *place, value, ALL_IN_SYNC, True, self._numbers, workload.now()
            )
            send.key = workload.key(place.topic, value)
            self._numbers += 1
            workload.history.add(send)
            sends.append(send)
        timestamp_ms = int(time.time() * 1000) + (YEARS_MS if refused else 0)
        self._sequences.partitions[place].queue.append(Batch(sends, workload.now(), timestamp_ms))

    async def _send_all(self, place: TopicPartition) -> None:
        """Send until the partition has no more batches."""
        partition = self._sequences.partitions[place]
        while not self._ends or partition.numbered or partition.queue:
            self._give_up(place)
            for broker, connection in await self._led_by(place):
                self._sequences.tend()
                while (batch := self._sequences.next_batch(place)) is not None:
                    if not self._send(broker, connection, place, batch):
                        break
            await asyncio.sleep(PAUSE_S)

    def _give_up(self, place: TopicPartition) -> None:
        partition = self._sequences.partitions[place]
        for batch in [*partition.numbered, *partition.queue]:
            if self._is_expired(batch):
                self._sequences.given_up(place, batch)
                for send in batch.sends:
                    send.finish(self._workload.now(), ErrorCode.REQUEST_TIMED_OUT.name, tried_before=True)

    def _is_expired(self, batch: Batch) -> bool:
        return self._workload.now() >= batch.created_s + DELIVERY_TIMEOUT_MS / 1000

    async def _led_by(self, place: TopicPartition) -> list[tuple[int, Connection]]:
        """Return a list with the leader's id and the connection to it, or an empty list."""
        leader = self._cluster.metadata.leader(*place)
        with suppress(KafkaError):
            if leader is not None and not self._asks:
                return [(leader, await self._cluster.connection(leader, "produce"))]
        with suppress(KafkaError):
            self._asks = False
            await self._cluster.refresh()
        return []

    def _send(self, broker: int, connection: Connection, place: TopicPartition, batch: Batch) -> bool:
        """Send a batch, and return whether the connection took it."""
        number = batch.number
        assert number is not None
        records = encode_batch(
            [(send.key, send.value, batch.timestamp_ms) for send in batch.sends],
            producer_id=self._producer_id,
            producer_epoch=number.epoch,
            base_sequence=number.base_sequence,
        )
        data = PartitionProduceData(index=place.partition, records=records)
        request = ProduceRequest(
            transactional_id=None,
            acks=ALL_IN_SYNC,
            timeout_ms=ACKNOWLEDGED_WITHIN_MS,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )
        try:
            answer = connection.send(request, version=PRODUCE_VERSION, timeout_ms=TIMEOUT_MS)
        except KafkaError:
            return False
        self._sequences.sent(place, batch, broker)
        answer.add_done_callback(partial(self._answered, place, batch, number))
        return True

    def _answered(
        self, place: TopicPartition, batch: Batch, sent_as: Number, answer: asyncio.Future[ProduceResponse]
    ) -> None:
        if answer.cancelled():
            return
        offset, error = -1, answer.exception()
        if error is None:
            response = answer.result().responses[0].partition_responses[0]
            code, offset = ErrorCode(response.error_code), response.base_offset
        elif isinstance(error, KafkaError):
            code = error.code
        else:
            raise error
        if batch.is_over:
            return
        now = self._workload.now()
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._sequences.acknowledged(place, batch)
            for send, at in _placed(batch, offset):
                send.finish(now, code.name, offset=at)
        elif not self._sequences.is_tried_again(place, batch, sent_as, code, expired=self._is_expired(batch)):
            for send in batch.sends:
                send.finish(now, code.name, tried_before=True)
        else:
            self._asks = True


def _placed(batch: Batch, offset: int) -> Iterator[tuple[Send, int | None]]:
    for number, send in enumerate(batch.sends):
        yield send, offset + number if offset >= 0 else None
