"""librdkafka after batches that were refused for now, with answers that the broker's producer state decides."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence

from confluent_kafka import Producer

from ottla.dataplane.log import ProducerStates
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.records.record_batch import BatchHeader
from tests.client.fake_cluster import FakeCluster, Fault

REFUSED = b"refused for now"
UNKNOWN = b"appended, and the answer leaves it open"


class Cluster(FakeCluster):
    """A broker whose disk has no room for one batch, and that appends another batch with an answer that leaves its
    outcome open."""

    def __init__(self) -> None:
        faults = itertools.chain([Fault.NONE] * 2, [Fault.TIMED_OUT_AFTER], itertools.repeat(Fault.NONE))
        super().__init__("t", 2, lambda: next(faults))
        self.served.append(FetchRequest)  # Without it librdkafka sends no record batches.
        self.arrived = 0
        """Number of Produce requests that were read."""
        self.goes_on = asyncio.Event()
        """The broker answers two Produce requests, and further requests once this is set."""
        self.epochs: set[int] = set()
        """Epochs of the produced batches."""
        self.refused: list[int] = []
        """Sequences of the refused batches."""
        self._states = [ProducerStates(), ProducerStates()]

    async def before_answer(self, api_key: int) -> None:
        if api_key == ProduceRequest.api_key:
            self.arrived += 1
            if self.arrived > 2:
                await self.goes_on.wait()

    def admits(self, request: ProduceRequest, version: int, index: int, header: BatchHeader) -> ErrorCode:
        self.epochs.add(header.producer_epoch)
        states = self._states[index]
        try:
            original = states.original_of(header)
            if index == 0 and header.base_sequence == 1 and not self.refused:
                states.will_come_again(header, ErrorCode.KAFKA_STORAGE_ERROR)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        except KafkaError as error:
            self.refused.append(header.base_sequence)
            return error.code
        if original is None:
            states.record(header, len(self.logs[index].values), now_ms=0)
        return ErrorCode.NONE


async def produced(pause_s: float) -> Cluster:
    """Send a batch whose outcome stays open, then a batch that is refused with other batches behind it, and return the
    cluster. The broker answers `pause_s` after all batches were given to the client."""
    cluster = Cluster()
    await cluster.start(1)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "log_level": 0,
        }
    )

    def send(partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            producer.produce("t", value, partition=partition)

    try:
        for partition in range(2):
            send(partition, [b"first"])
            assert await asyncio.to_thread(producer.flush, 20) == 0
        send(1, [UNKNOWN])
        async with asyncio.timeout(20):
            while cluster.arrived < 3:
                await asyncio.sleep(0.01)
        send(0, [REFUSED, b"behind it", b"last"])
        await asyncio.sleep(pause_s)
        cluster.goes_on.set()
        assert await asyncio.to_thread(producer.flush, 20) == 0
    finally:
        await cluster.stop()
    return cluster


async def test_a_batch_behind_a_refused_one_does_not_make_librdkafka_repeat_other_batches() -> None:
    """After OUT_OF_ORDER_SEQUENCE_NUMBER it would begin a new epoch, and send the open batch again under it."""
    deadline, pause_s = time.monotonic() + 60, 0.1
    while True:
        cluster = await produced(pause_s)
        assert cluster.logs[0].values == [b"first", REFUSED, b"behind it", b"last"]
        assert cluster.logs[1].values == [b"first", UNKNOWN]
        assert cluster.epochs == {0}
        if len(cluster.refused) > 1:
            return
        assert time.monotonic() < deadline, "no batch was sent behind the refused one"
        pause_s *= 2
