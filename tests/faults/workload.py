"""Clients at work while processes break: producers, readers and group members, each noting what it saw.

    with Workload(cluster.bootstrap, "orders") as workload:
        workload.wait_acknowledged(300)
        faults.kill(faults.leader("orders", 0))
        faults.heal()
    workload.check()

Values are unique: `<producer>:<number>`. All clients are confluent-kafka.
"""

from __future__ import annotations

import struct
import threading
import time
from abc import abstractmethod
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.cluster import wait_until
from tests.integration import history

SETTLE_S = 60.0
"""Within this time after the cluster is whole every send has its outcome and every consumer is at the end."""
QUEUED_MAX = 1_000
CLIENT = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 300,
    "socket.timeout.ms": 10_000,
}
PRODUCER = CLIENT | {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 300,
    "message.timeout.ms": 180_000,
}
CONSUMER = CLIENT | {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.error.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 2_000,
}
SESSIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Settings of brokers under which a dead group member is missed soon."""


class Sent(NamedTuple):
    """A record and what became of it; offset -1 where it has none."""

    value: bytes
    partition: int
    began: float
    ended: float
    offset: int
    error: KafkaError | None


class Polled(NamedTuple):
    """A record as a consumer got it."""

    at: float
    partition: int
    offset: int
    leader_epoch: int
    value: bytes


class Committed(NamedTuple):
    """A synchronous commit of one partition: the next offset to read."""

    began: float
    ended: float
    partition: int
    offset: int
    generation: int
    error: KafkaError | None


class Owned(NamedTuple):
    """Partitions that were given to a member, or taken from it."""

    at: float
    given: bool
    partitions: tuple[int, ...]
    generation: int
    member: str


class Actor:
    """A thread that works until it is told to stop; what goes wrong in it fails the test that ends it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self.crash: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def tell_to_stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        """Wait for the end; raises what ended it too early."""
        self._stop.set()
        self._thread.join(SETTLE_S)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        if self.crash is not None:
            raise self.crash

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.crash = error

    @abstractmethod
    def _run(self) -> None: ...


class Sender(Actor):
    """An idempotent producer that writes `<name>:<number>` round robin, at a steady rate."""

    def __init__(
        self, bootstrap: str, topic: str, name: str, partitions: int, per_second: int, **settings: Any
    ) -> None:
        super().__init__(name)
        self.sent: list[Sent] = []
        self.acknowledged = 0
        self._producer = Producer(PRODUCER | {"bootstrap.servers": bootstrap} | settings)
        self._topic = topic
        self._partitions = partitions
        self._per_second = per_second

    @property
    def failed(self) -> list[Sent]:
        """Records that were not acknowledged."""
        return [one for one in self.sent if one.error is not None]

    def _run(self) -> None:
        number = 0
        due = time.monotonic()
        while not self._stop.is_set():
            now = time.monotonic()
            while due <= now and len(self._producer) < QUEUED_MAX:
                self._send(number)
                number += 1
                due += 1 / self._per_second
            due = max(due, now - 1)  # what a fault held up is not made up for at once
            self._producer.poll(0.01)
        left = self._producer.flush(SETTLE_S)
        assert left == 0, f"{self.name}: {left} records have no outcome {SETTLE_S:g} s after the last"

    def _send(self, number: int) -> None:
        value = b"%s:%d" % (self.name.encode(), number)
        partition = number % self._partitions
        began = time.monotonic()

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            told = -1 if error is not None or offset is None else offset
            self.sent.append(Sent(value, partition, began, time.monotonic(), told, error))
            self.acknowledged += error is None

        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)


class Reading(Actor):
    """What readers have in common: a consumer, what it has polled, how far it is."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        super().__init__(name)
        self.polled: list[Polled] = []
        self.errors: list[KafkaError] = []
        """What the consumer said besides records, other than that something can be tried again."""
        self.next_offsets: dict[int, int] = {}
        self._consumer = Consumer(settings)

    def _take(self, timeout_s: float) -> None:
        for message in self._consumer.consume(1_000, timeout_s):
            error = message.error()
            if error is None:
                self._note(message)
            elif not error.retriable() and error.code() not in TRANSIENT:
                self.errors.append(error)

    def _note(self, message: Message) -> None:
        partition, offset, epoch = message.partition(), message.offset(), message.leader_epoch()
        assert partition is not None
        assert offset is not None
        value = message.value() or b""
        self.polled.append(Polled(time.monotonic(), partition, offset, -1 if epoch is None else epoch, value))
        self.next_offsets[partition] = offset + 1


TRANSIENT = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
}
"""Errors of connections and coordinators, which end by themselves."""


class Reader(Reading):
    """Reads all partitions by `assign`, from the beginning."""

    def __init__(self, bootstrap: str, topic: str, name: str, partitions: int) -> None:
        super().__init__(name, CONSUMER | {"bootstrap.servers": bootstrap, "group.id": f"{name}-{topic}"})
        self._consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])

    def _run(self) -> None:
        while not self._stop.is_set():
            self._take(0.1)
        self._consumer.close()


class Member(Reading):
    """A group member that commits what it has read, synchronously, about twice a second."""

    def __init__(self, bootstrap: str, topic: str, group: str, name: str, protocol: str) -> None:
        settings = CONSUMER | {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 4_000, "heartbeat.interval.ms": 500}
        super().__init__(name, settings)
        self.group = group
        self.commits: list[Committed] = []
        self.ownership: list[Owned] = []
        self._topic = topic
        self._uncommitted: dict[int, int] = {}
        self._consumer.subscribe(
            [topic], on_assign=self._given, on_revoke=self._revoked, on_lost=self._revoked_at_once
        )

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._take(0.1)
            if time.monotonic() >= due:
                self._commit()
                due = time.monotonic() + 0.5
        self._consumer.close()

    def _note(self, message: Message) -> None:
        super()._note(message)
        last = self.polled[-1]
        self._uncommitted[last.partition] = last.offset + 1

    def _given(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._own(True, partitions)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._revoked_at_once(_, partitions)

    def _revoked_at_once(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._own(False, partitions)
        for one in partitions:
            self._uncommitted.pop(one.partition, None)

    def _own(self, given: bool, partitions: list[TopicPartition]) -> None:
        generation, member = self._identity()
        which = tuple(sorted(one.partition for one in partitions))
        self.ownership.append(Owned(time.monotonic(), given, which, generation, member))

    def _commit(self) -> None:
        """Commit what was read since the last commit; what fails is tried again with the next."""
        if not self._uncommitted:
            return
        wanted = dict(self._uncommitted)
        offsets = [TopicPartition(self._topic, p, offset) for p, offset in wanted.items()]
        generation, _ = self._identity()
        began = time.monotonic()
        failed: dict[int, KafkaError] = {}
        try:
            told = self._consumer.commit(offsets=offsets, asynchronous=False)
            failed = {one.partition: one.error for one in told or [] if one.error is not None}
        except KafkaException as error:
            failed = dict.fromkeys(wanted, error.args[0])
        ended = time.monotonic()
        for partition, offset in wanted.items():
            reason = failed.get(partition)
            self.commits.append(Committed(began, ended, partition, offset, generation, reason))
            if reason is None and self._uncommitted.get(partition) == offset:
                del self._uncommitted[partition]

    def _identity(self) -> tuple[int, str]:
        """Generation (or member epoch) and member id, of the group metadata as librdkafka encodes it."""
        packed = self._consumer.consumer_group_metadata()
        if packed is None:
            return -1, ""
        assert packed.startswith(b"CGMDv2:"), packed
        (generation,) = struct.unpack_from("=i", packed, 7)
        _, member, _ = packed[11:].split(b"\0", 2)
        return generation, member.decode()


@dataclass
class Workload:
    """All of them at once on one topic, until the block ends."""

    bootstrap: str
    topic: str
    partitions: int = 3
    senders: int = 2
    per_second: int = 150
    """Of each sender."""
    protocols: tuple[str, ...] = ("classic", "consumer")
    """A group of two members for each."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of producers."""

    def __post_init__(self) -> None:
        bootstrap, topic, partitions = self.bootstrap, self.topic, self.partitions
        self.sending = [
            Sender(bootstrap, topic, f"p{n}", partitions, self.per_second, **self.settings)
            for n in range(self.senders)
        ]
        self.readers = [Reader(bootstrap, topic, "reader", partitions)]
        self.members = [
            Member(bootstrap, topic, f"{protocol}-{topic}", f"{protocol}-{n}", protocol)
            for protocol in self.protocols
            for n in range(2)
        ]
        self.final: list[Polled] = []

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far."""
        return sum(one.acknowledged for one in self.sending)

    @property
    def actors(self) -> list[Actor]:
        """Everyone."""
        return [*self.sending, *self.readers, *self.members]

    def __enter__(self) -> Self:
        for one in self.actors:
            one.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._settle()
        finally:
            for one in self.actors:
                one.tell_to_stop()
            if error is None:
                for one in self.actors:
                    one.join()

    def wait_acknowledged(self, more: int, timeout_s: float = 40) -> None:
        """Return once every sender has `more` acknowledgements than now."""
        goals = [one.acknowledged + more for one in self.sending]

        def reached() -> bool:
            self._raise_crash()
            return all(one.acknowledged >= goal for one, goal in zip(self.sending, goals, strict=True))

        wait_until(reached, f"{more} acknowledgements of each sender", timeout_s)

    def wait_read(self, more: int, timeout_s: float = 40) -> None:
        """Return once every group has read `more` records than now."""
        groups = [[m for m in self.members if m.group == group] for group in {m.group for m in self.members}]
        goals = [sum(len(m.polled) for m in members) + more for members in groups]

        def reached() -> bool:
            self._raise_crash()
            counts = [sum(len(m.polled) for m in members) for members in groups]
            return all(count >= goal for count, goal in zip(counts, goals, strict=True))

        wait_until(reached, f"{more} records read by each group", timeout_s)

    def _settle(self) -> None:
        """Everything sent gets an outcome, and everyone reads to the end, or the test fails."""
        for one in self.sending:
            one.join()
        self.final = self._read_everything()
        ends: dict[int, int] = {}
        for record in self.final:
            ends[record.partition] = record.offset + 1
        deadline = time.monotonic() + SETTLE_S
        for reader in self.readers:
            wait_until(lambda r=reader: r.next_offsets == ends, f"{reader.name} at the end", SETTLE_S)
        for group in sorted({member.group for member in self.members}):
            members = [member for member in self.members if member.group == group]
            left = max(1.0, deadline - time.monotonic())
            wait_until(lambda m=members: committed_by(m) == ends, f"{group} has committed the end", left)

    def _read_everything(self) -> list[Polled]:
        """From the beginning to the end as it is now: at least behind everything acknowledged."""
        reader = Reader(self.bootstrap, self.topic, "final", self.partitions)
        goals: dict[int, int] = {}
        for sender in self.sending:
            for one in sender.sent:
                goals[one.partition] = max(goals.get(one.partition, 0), one.offset + 1)
        reader.start()
        try:
            wait_until(
                lambda: all(reader.next_offsets.get(p, 0) >= end for p, end in goals.items()),
                f"a final read up to {goals}",
                SETTLE_S,
            )
        finally:
            reader.join()
        assert reader.errors == []
        return reader.polled

    def check(self) -> None:
        """Fail unless what everybody saw fits together."""
        assert [one for sender in self.sending for one in sender.failed] == []
        places = {(one.partition, one.offset): one.value for one in self.final}
        for sender in self.sending:
            for sent in sender.sent:
                assert places.get((sent.partition, sent.offset)) == sent.value, sent
        for one in (*self.readers, *self.members):
            assert one.errors == []
            for polled in one.polled:
                assert places.get((polled.partition, polled.offset)) == polled.value, polled

    def _raise_crash(self) -> None:
        for one in self.actors:
            if one.crash is not None:
                raise one.crash


def make_topic(bootstrap: str, name: str, partitions: int = 3) -> None:
    """A topic of three replicas, two of which must have what is acknowledged."""
    history.make_topic(bootstrap, name, partitions, min_insync_replicas=2)


def committed_by(members: list[Member]) -> dict[int, int]:
    """The last committed offset of each partition, whoever of the group committed it."""
    found: dict[int, tuple[float, int]] = {}
    for member in members:
        for one in list(member.commits):
            if one.error is None:
                found[one.partition] = max(found.get(one.partition, (0.0, 0)), (one.ended, one.offset))
    return {partition: offset for partition, (_, offset) in found.items()}
