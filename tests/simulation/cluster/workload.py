"""Clients of a simulated cluster, each a separate process; all their operations and observations go
into one history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Protocol, TypeVar
from zlib import crc32

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.producing.deliveries import RecordDelivery
from ottla.client.records import ConsumerRecord, TopicPartition
from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC
from ottla.dataplane.coordinated_log.key_hash import partition_for
from ottla.protocol.errors import KafkaError
from tests.histories.operations import (
    ALL_IN_SYNC,
    CommittedRead,
    FinalRead,
    History,
    Poll,
    Position,
    Reason,
    Send,
    StableEnd,
)
from tests.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.machine.chance import exponential

REQUEST_TIMEOUT_MS = 1500
DELIVERY_TIMEOUT_MS = 6000
POLL_MS = 200
IDLE_STEP_S = 0.1
KEYS = 8
"""Number of keys in compacted topics."""
ResultT = TypeVar("ResultT")


class Workload:
    """Shared state of a run's clients: the cluster, the history, and the signal to stop."""

    def __init__(self, cluster: SimulatedCluster, history: History, topics: dict[str, int]) -> None:
        self.cluster = cluster
        self.machine = cluster.machine
        self.history = history
        #: partitions of each topic
        self.topics = topics
        self.over = False
        # : clients that have begun, by name, and whether they have ended
        self.ended: dict[str, bool] = {}
        #: what topics have beside the settings that all have
        self.configs: dict[str, dict[str, str]] = {}
        # : topics that may lose records, of which readers must be notified
        self.lossy = set[str]()
        # : topics whose old records retention removes
        self.trimmed = set[str]()
        # : compacted topics, whose records need a key
        self.compacted = set[str]()
        # : topics that a pipeline fills, each with its source
        self.copies: dict[str, str] = {}
        # : True if members of both protocols are in one group. Its generations say nothing then, since they restart at
        # each change of the group's protocol (as in Kafka).
        self.mixed = False
        #: group, member id and generation or epoch of every member, again and again
        self.memberships: list[tuple[str, str, int]] = []

    def now(self) -> float:
        return self.machine.now

    def is_led_by_one(self, place: TopicPartition) -> bool:
        """Return whether no replaced leader of the partition still considers itself the leader, and answers with
        outdated state.
        """
        image = self.cluster.newest_image()
        topic = None if image is None else image.topics.get(place.topic)
        state = None if topic is None else topic.partitions.get(place.partition)
        return state is not None and not any(
            (partition.topic, partition.index) == place and partition.leader_epoch < state.leader_epoch
            for node in self.cluster.brokers.values()
            if node.up
            for partition in node.led()
        )

    def is_coordinated_by_one(self, group: str) -> bool:
        """Return whether no replaced coordinator still considers itself the group's coordinator."""
        image = self.cluster.newest_image()
        offsets = None if image is None else image.topics.get(OFFSETS_TOPIC)
        return offsets is not None and self.is_led_by_one(
            TopicPartition(OFFSETS_TOPIC, partition_for(group, len(offsets.partitions)))
        )

    def key(self, topic: str, value: bytes) -> bytes | None:
        """Return the key for a value."""
        return b"key %d" % (crc32(value) % KEYS) if topic in self.compacted else None

    async def idle(self, seconds: float) -> None:
        """Wait for a number of seconds, or until the workload is over."""
        until = self.now() + seconds
        while not self.over and (left := until - self.now()) > 0:
            await asyncio.sleep(min(left, IDLE_STEP_S))

    def chance(self) -> Random:
        """Return the random source of one client."""
        return Random(self.machine.random.getrandbits(64))

    @property
    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, index) for topic, count in self.topics.items() for index in range(count)
        ]


async def create_topics(workload: Workload, configs: dict[str, str], replication_factor: int) -> None:
    """Create topics, with retries, since the cluster may still be forming."""

    def settings(name: str) -> dict[str, str]:
        return configs | workload.configs.get(name, {})

    topics = [
        NewTopic(name, num_partitions=count, replication_factor=replication_factor, configs=settings(name))
        for name, count in workload.topics.items()
    ]
    async with Admin(bootstrap_servers=workload.cluster.bootstrap) as admin:
        while True:
            try:
                await admin.create_topics(topics)
            except KafkaError as error:
                if error.code.name != "TOPIC_ALREADY_EXISTS":
                    await asyncio.sleep(0.05)
                    continue
            return


async def produce(workload: Workload, actor: str, acks: int, per_second: float) -> None:
    """Send records at random moments until the workload is over, and one more to each partition, which must be
    writable. Note every outcome.
    """
    chance, history, sequence = workload.chance(), workload.history, 0
    producer = await started(
        lambda: Producer(
            bootstrap_servers=workload.cluster.bootstrap,
            acks=ALL_IN_SYNC if acks == ALL_IN_SYNC else 1,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=2000,
            linger_ms=chance.choice((0, 0, 5)),
        )
    )
    places = [place for place in workload.partitions if place.topic not in workload.copies]
    last: list[TopicPartition] | None = None
    while last is None or last:
        if last is None and workload.over:
            last = list(places)
        place = chance.choice(places) if last is None else last.pop()
        value = f"{actor}:{sequence}".encode() + b"." * chance.choice((0, 10, 60, 300))
        send = Send(actor, actor, *place, value, acks, acks == ALL_IN_SYNC, sequence, workload.now())
        sequence += 1
        send.key = workload.key(place.topic, value)
        history.add(send)
        try:
            delivery = await producer.send(place.topic, value, send.key, partition=place.partition)
        except KafkaError as error:
            send.finish(workload.now(), error.code.name, tried_before=True)
            continue
        delivery.add_done_callback(partial(delivered, workload, send))
        if last is None and chance.random() < 0.7:
            await asyncio.sleep(exponential(chance, per_second))
    await producer.stop()


def delivered(workload: Workload, send: Send, done: RecordDelivery) -> None:
    """Note the outcome of a send."""
    error = done.exception()
    if error is None:
        send.finish(workload.now(), offset=done.result().offset)
    elif isinstance(error, KafkaError):
        send.finish(workload.now(), error.code.name, tried_before=True)
    else:
        raise error


async def consume(workload: Workload, actor: str, *, committed: bool = False) -> None:
    """Read all partitions from their beginning, and start over now and then; `committed` reads only
    committed records.
    """
    chance, history, round_ = workload.chance(), workload.history, 0
    places = [place for place in workload.partitions if place.topic not in workload.lossy]
    while not workload.over:
        round_ += 1
        session = f"{actor}/{round_}"
        consumer = await started(
            lambda: Consumer(
                bootstrap_servers=workload.cluster.bootstrap,
                auto_offset_reset="earliest",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                fetch_max_wait_ms=POLL_MS,
                fetch_max_bytes=chance.choice((500, 5000, 1 << 20)),
                isolation_level="read_committed" if committed else "read_uncommitted",
            )
        )
        if committed:
            await _look_at_ends(workload, actor, consumer, places)
        for topic, index in places:
            history.add(Position(actor, session, topic, index, None, Reason.START, workload.now()))
        consumer.assign(places)
        until = workload.now() + chance.uniform(0.5, 5.0)
        while not workload.over and workload.now() < until:
            with suppress(KafkaError):
                taken = await consumer.getmany(timeout_ms=POLL_MS)
                note_polls(workload, actor, session, taken, committed=committed)
        await consumer.stop()


async def _look_at_ends(
    workload: Workload, actor: str, consumer: Consumer, places: list[TopicPartition]
) -> None:
    asked_s, sure = workload.now(), [place for place in places if workload.is_led_by_one(place)]
    with suppress(KafkaError):
        for place, offset in (await consumer.end_offsets(places)).items():
            if place in sure and workload.is_led_by_one(place):
                workload.history.add(StableEnd(actor, *place, offset, asked_s, workload.now()))


def note_polls(
    workload: Workload,
    actor: str,
    session: str,
    taken: dict[TopicPartition, list[ConsumerRecord]],
    *,
    committed: bool,
    transaction: str | None = None,
) -> None:
    """Add polls to the history; `transaction`: the name of the transaction in which the records were read."""
    now = workload.now()
    for place, records in taken.items():
        for record in records:
            assert record.value is not None
            workload.history.add(
                Poll(
                    actor,
                    session,
                    *place,
                    record.offset,
                    record.leader_epoch,
                    record.value,
                    now,
                    committed,
                    transaction,
                )
            )


async def read_all(workload: Workload, *, committed: bool = False) -> None:
    """Read every partition from its earliest offset to its end, or to the end of the committed records."""
    consumer = await started(
        lambda: Consumer(
            bootstrap_servers=workload.cluster.bootstrap,
            auto_offset_reset="earliest",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
    )
    places = workload.partitions
    starts = await _until_answered(lambda: consumer.beginning_offsets(places))
    ends = await _until_answered(lambda: consumer.end_offsets(places))
    found: dict[TopicPartition, list[tuple[int, bytes]]] = {place: [] for place in places}
    consumer.assign(places)
    while not all([await consumer.position(place) >= ends[place] for place in places]):
        with suppress(KafkaError):
            for place, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
                found[place] += [(record.offset, record.value or b"") for record in records]
    if trimmed := [place for place in places if place.topic in workload.trimmed]:
        starts |= await _until_answered(lambda: consumer.beginning_offsets(trimmed))
    kind = CommittedRead if committed else FinalRead
    for place in places:
        read = kind(*place, found[place], log_start=starts[place], end=ends[place], at_s=workload.now())
        read.reached = await consumer.position(place)
        workload.history.add(read)
    await consumer.stop()


async def _until_answered(ask: Callable[[], Awaitable[ResultT]]) -> ResultT:
    while True:
        try:
            return await ask()
        except KafkaError:
            await asyncio.sleep(0.05)


class Startable(Protocol):
    """A producer or a consumer."""

    async def start(self) -> None: ...


ClientT = TypeVar("ClientT", bound=Startable)


async def started(make: Callable[[], ClientT]) -> ClientT:
    """Return a started client; make new ones until one reaches the cluster."""
    while True:
        client = make()
        try:
            await client.start()
        except KafkaError:
            await asyncio.sleep(0.1)
        else:
            return client
