"""Clients at work while processes break: producers, readers and group members, each noting what it saw.

    with Faults(cluster, ("orders",)) as faults, Workload(cluster.bootstrap, "orders") as workload:
        workload.wait_acknowledged(300)
        faults.kill(faults.leader("orders", 0))
        faults.heal()
    workload.check(faults)

Values are unique: `<producer>:<number>`. All clients are confluent-kafka.
"""

from __future__ import annotations

import struct
import threading
import time
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from ottla.protocol.record_batch import walk_batches
from tests.cluster import RunningCluster, wait_until
from tests.faults.faults import HEAL_S, TALLY, Faults
from tests.histories.invariants import check_all
from tests.histories.operations import (
    ALL_IN_SYNC,
    NO_GENERATION,
    NOTHING_COMMITTED,
    Commit,
    Dump,
    Fetched,
    FinalRead,
    Healed,
    History,
    Outcome,
    Owned,
    Poll,
    Position,
    Reason,
    Released,
    Send,
)
from tests.integration.history import make_topic as make_any_topic
from tests.integration.history import read_all, segment_files

SETTLE_S = 90.0
"""Within this time after the cluster is whole every send has its outcome and every consumer is at the end."""
QUEUED_MAX = 1_000
CLIENT = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 300,
    "socket.timeout.ms": 4_000,
}
PRODUCER = CLIENT | {
    "linger.ms": 5,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 300,
    "message.timeout.ms": 180_000,
}
STRICT = {"acks": "all", "enable.idempotence": True}
LAX = {"acks": 1}
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
PACKED_METADATA = b"CGMDv2:"
"""How librdkafka's group metadata begins."""


class Actor:
    """A thread that works until it is told to stop; what goes wrong in it fails the test that ends it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.history = History()
        """What it did and saw; others may look at it only once it has ended."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self.crash: BaseException | None = None
        self.abandoned = False
        """Whether the test has failed already: it need not end in good order."""

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def tell_to_stop(self) -> None:
        """Ask it to end, without waiting for that."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the end; raises what ended it too early."""
        self._stop.set()
        self._thread.join(SETTLE_S + 5)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        self.raise_crash()

    def raise_crash(self) -> None:
        """Raise what ended it too early, if anything did."""
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
    """A producer that writes `<name>:<number>` round robin, at a steady rate: idempotent, or with acks=1."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        name: str,
        partitions: int,
        per_second: int,
        settings: dict[str, Any],
        *,
        strict: bool = True,
    ) -> None:
        super().__init__(name)
        self.acknowledged = 0
        kind = STRICT if strict else LAX
        self._producer = Producer(PRODUCER | kind | {"bootstrap.servers": bootstrap} | settings)
        self._strict = strict
        self._topic = topic
        self._partitions = partitions
        self._per_second = per_second

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
        if self.abandoned:
            self._producer.purge()
        left = self._producer.flush(SETTLE_S)
        assert left == 0, f"{self.name}: {left} records have no outcome {SETTLE_S:g} s after the last"

    def _send(self, number: int) -> None:
        value = b"%s:%d" % (self.name.encode(), number)
        partition = number % self._partitions
        send = Send(
            self.name,
            self.name,
            self._topic,
            partition,
            value,
            acks=ALL_IN_SYNC if self._strict else 1,
            idempotent=self._strict,
            sequence_number=number // self._partitions,
            invoked_s=time.monotonic(),
        )
        self.history.add(send)

        def delivered(error: KafkaError | None, message: Message) -> None:
            send.finish(time.monotonic(), name_of(error), offset=message.offset(), tried_before=True)
            self.acknowledged += error is None

        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)


class Reading(Actor):
    """What consumers have in common: what they polled, how far they are."""

    def __init__(self, name: str, topic: str, settings: dict[str, Any]) -> None:
        super().__init__(name)
        self.polled = 0
        self.next_offsets: dict[int, int] = {}
        self._consumer = Consumer(settings)
        self._topic = topic
        self._sessions: dict[int, str] = {}
        self._sessions_begun = 0

    def _take(self, timeout_s: float) -> None:
        """Poll once; whatever a user would have to deal with ends the actor."""
        for message in self._consumer.consume(1_000, timeout_s):
            error = message.error()
            if error is None:
                self._note(message)
            elif not error.retriable() and error.code() not in TRANSIENT:
                raise KafkaException(error)

    def _note(self, message: Message) -> None:
        partition, offset, epoch = message.partition(), message.offset(), message.leader_epoch()
        assert partition is not None
        assert offset is not None
        told = -1 if epoch is None else epoch
        session, value = self._sessions[partition], message.value() or b""
        now = time.monotonic()
        self.history.add(Poll(self.name, session, self._topic, partition, offset, told, value, now))
        self.next_offsets[partition] = offset + 1
        self.polled += 1

    def _begin(self, partition: int, offset: int | None, reason: Reason) -> None:
        """A partition is assigned: what is read of it from here on is one session."""
        self._sessions_begun += 1
        session = self._sessions[partition] = f"{self.name}/{self._sessions_begun}"
        now = time.monotonic()
        self.history.add(Position(self.name, session, self._topic, partition, offset, reason, now))


class Reader(Reading):
    """Reads all partitions by `assign`, from the beginning."""

    def __init__(self, bootstrap: str, topic: str, name: str, partitions: int) -> None:
        settings = CONSUMER | {"bootstrap.servers": bootstrap, "group.id": f"{name}-{topic}"}
        super().__init__(name, topic, settings)
        self._partitions = partitions

    def _run(self) -> None:
        self._consumer.assign(
            [TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in range(self._partitions)]
        )
        for partition in range(self._partitions):
            self._begin(partition, 0, Reason.START)
        while not self._stop.is_set():
            self._take(0.1)
        self._consumer.close()


class Member(Reading):
    """A group member that commits what it has read, synchronously, about twice a second, and asks what is committed."""

    def __init__(self, bootstrap: str, topic: str, group: str, name: str, protocol: str) -> None:
        settings = CONSUMER | {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 4_000, "heartbeat.interval.ms": 500}
        super().__init__(name, topic, settings)
        self.group = group
        self.committed: dict[int, tuple[float, int]] = {}
        """When it last committed in a partition, and which offset."""
        self.identity = (NO_GENERATION, "")
        """Generation or member epoch, and member id, as they were when it last committed or was given partitions."""
        self.owned: frozenset[int] = frozenset()
        """Its partitions."""
        self._own_epochs = protocol == "consumer"
        self._uncommitted: dict[int, int] = {}

    def _run(self) -> None:
        self._consumer.subscribe(
            [self._topic], on_assign=self._given, on_revoke=self._revoked, on_lost=self._lost
        )
        due = time.monotonic()
        while not self._stop.is_set():
            self._take(0.1)
            if time.monotonic() >= due:
                self._commit()
                due = time.monotonic() + 0.5
        self._consumer.close()

    def _note(self, message: Message) -> None:
        super()._note(message)
        partition = message.partition() or 0
        self._uncommitted[partition] = self.next_offsets[partition]

    def _given(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        generation, member = self._identity()
        self.owned |= {one.partition for one in partitions}
        for one in partitions:
            self.history.add(
                Owned(self.group, generation, member, self._topic, one.partition, time.monotonic())
            )
            self._begin(one.partition, None, Reason.COMMITTED)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._ask_committed(partitions)
        self._lost(_, partitions)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        generation, member = self._identity()
        self.owned -= {one.partition for one in partitions}
        for one in partitions:
            self.history.add(
                Released(self.group, generation, member, self._topic, one.partition, time.monotonic())
            )
            self._uncommitted.pop(one.partition, None)
            self.next_offsets.pop(one.partition, None)

    def _commit(self) -> None:
        """Commit what was read since the last commit; what fails is tried again with the next."""
        if not self._uncommitted:
            return
        wanted = dict(self._uncommitted)
        offsets = [TopicPartition(self._topic, p, offset) for p, offset in wanted.items()]
        generation, member = self._identity()
        began = time.monotonic()
        failed: dict[int, KafkaError | None] = {}
        try:
            for one in self._consumer.commit(offsets=offsets, asynchronous=False) or []:
                failed[one.partition] = one.error
        except KafkaException as error:
            failed = dict.fromkeys(wanted, error.args[0])
        ended = time.monotonic()
        for partition, offset in wanted.items():
            commit = Commit(
                self.group,
                member,
                generation,
                self._topic,
                partition,
                offset,
                began,
                own_epoch=self._own_epochs,
            )
            commit.finish(ended, name_of(failed.get(partition)), tried_before=True)
            self.history.add(commit)
            if commit.outcome is Outcome.OK:
                self.committed[partition] = (ended, offset)
                del self._uncommitted[partition]

    def _ask_committed(self, partitions: list[TopicPartition]) -> None:
        """Ask the coordinator what is committed; no answer is none."""
        began = time.monotonic()
        with suppress(KafkaException):
            for one in self._consumer.committed(partitions, timeout=2):
                if one.error is None:
                    offset = max(one.offset, NOTHING_COMMITTED)
                    ended = time.monotonic()
                    self.history.add(Fetched(self.group, self._topic, one.partition, offset, began, ended))

    def _identity(self) -> tuple[int, str]:
        """Generation (or member epoch) and member id, of the group metadata as librdkafka encodes it. For this thread
        alone: the call keeps Python's lock, and from another one it never ends while the consumer is being served."""
        packed = self._consumer.consumer_group_metadata()
        if packed is None:
            return NO_GENERATION, ""
        assert packed.startswith(PACKED_METADATA), packed
        (generation,) = struct.unpack_from("=i", packed, len(PACKED_METADATA))
        _, member, _ = packed[len(PACKED_METADATA) + 4 :].split(b"\0", 2)
        self.identity = generation, member.decode()
        return self.identity


@dataclass
class Workload:
    """All of them at once on one topic, until the block ends."""

    bootstrap: str
    topic: str
    partitions: int = 3
    senders: int = 2
    lax_senders: int = 0
    """Those with acks=1, whose records may be lost."""
    per_second: int = 150
    """Of each sender."""
    protocols: tuple[str, ...] = ("classic", "consumer")
    """A group of two members for each."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of producers, beside or instead of what they have."""
    others: list[Actor] = field(default_factory=list)
    """Whoever else works on the topic; started and stopped with the rest."""
    history: History = field(default_factory=History)
    """What everybody did and saw, once the block has ended."""

    def __post_init__(self) -> None:
        bootstrap, topic, partitions = self.bootstrap, self.topic, self.partitions
        self.strict = [
            Sender(bootstrap, topic, f"p{n}", partitions, self.per_second, self.settings)
            for n in range(self.senders)
        ]
        self.lax = [
            Sender(bootstrap, topic, f"lax{n}", partitions, self.per_second, self.settings, strict=False)
            for n in range(self.lax_senders)
        ]
        self.reader = Reader(bootstrap, topic, "reader", partitions)
        self.members = [
            Member(bootstrap, topic, f"{protocol}-{topic}", f"{protocol}-{n}", protocol)
            for protocol in self.protocols
            for n in range(2)
        ]

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far."""
        return sum(one.acknowledged for one in (*self.strict, *self.lax))

    @property
    def actors(self) -> list[Actor]:
        """Everyone."""
        return [*self.strict, *self.lax, self.reader, *self.members, *self.others]

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
        except BaseException:
            self._abandon()
            raise
        if error is not None:
            self._abandon()
            return
        for one in self.actors:
            one.tell_to_stop()
        for one in self.actors:
            one.join()
        self.history = History.merged([*(one.history for one in self.actors), self.history])

    def wait_acknowledged(self, more: int, timeout_s: float = SETTLE_S) -> None:
        """Return once every strict sender has `more` acknowledgements than now."""
        goals = [one.acknowledged + more for one in self.strict]

        def reached() -> bool:
            self._raise_crash()
            return all(one.acknowledged >= goal for one, goal in zip(self.strict, goals, strict=True))

        wait_until(reached, f"{more} acknowledgements of each sender", timeout_s)

    def wait_read(self, more: int, timeout_s: float = SETTLE_S) -> None:
        """Return once every group has read `more` records than now."""
        before = self._read_by_group()

        def reached() -> bool:
            self._raise_crash()
            return all(read >= before[group] + more for group, read in self._read_by_group().items())

        wait_until(reached, f"{more} records read by each group", timeout_s)

    def check(self, faults: Faults | None = None) -> None:
        """Fail unless every send succeeded, and what everybody saw fits together: with `faults` also to what the
        replicas hold, and to the time since all processes were well again."""
        if faults is not None:
            for read in list(self.history.final_reads):
                for found in dump(faults.cluster, self.topic, read.partition, read.end or 0):
                    self.history.add(found)
            self.history.add(Healed(faults.healed_s, HEAL_S + SETTLE_S))
        failed = [one for one in self.history.sends if one.outcome is not Outcome.OK]
        assert not failed, f"{len(failed)} sends failed: {failed[:3]}"
        TALLY["acknowledged"] += len(self.history.sends)
        TALLY["read"] += len(self.history.polls)
        TALLY["commits"] += len(self.history.commits)
        TALLY["histories"] += 1
        check_all(self.history)

    def _settle(self) -> None:
        """Everything sent gets an outcome, and everyone reads to the end, or the test fails."""
        deadline = time.monotonic() + SETTLE_S
        for sender in (*self.strict, *self.lax):
            sender.join()
        records: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(self.partitions)}
        for place, value in sorted(read_all(self.bootstrap, self.topic, SETTLE_S)):
            records[place.partition].append((place.offset, value))
        ends = {partition: found[-1][0] + 1 for partition, found in records.items() if found}
        for partition, found in records.items():
            now = time.monotonic()
            self.history.add(FinalRead(self.topic, partition, found, end=ends.get(partition, 0), at_s=now))

        def reached() -> bool:
            self._raise_crash()
            return self.reader.next_offsets == ends and all(
                self._committed_by(group) == ends for group in self._read_by_group()
            )

        wait_until(
            reached,
            f"everyone at {ends}: {self.reader.next_offsets}, {[(m.name, m.committed) for m in self.members]}",
            max(1.0, deadline - time.monotonic()),
        )

    def _abandon(self) -> None:
        for one in self.actors:
            one.abandoned = True
            one.tell_to_stop()

    def _read_by_group(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for member in self.members:
            counts[member.group] = counts.get(member.group, 0) + member.polled
        return counts

    def _committed_by(self, group: str) -> dict[int, int]:
        """The last committed offset of each partition, whoever of the group committed it."""
        found: dict[int, tuple[float, int]] = {}
        for member in self.members:
            if member.group == group:
                for partition, told in list(member.committed.items()):
                    found[partition] = max(found.get(partition, told), told)
        return {partition: offset for partition, (_, offset) in found.items()}

    def _raise_crash(self) -> None:
        for one in self.actors:
            one.raise_crash()


def name_of(error: KafkaError | None) -> str | None:
    """Kafka's name of an error; librdkafka's own begin with an underscore."""
    return None if error is None else str(error.name())


def dump(cluster: RunningCluster, topic: str, partition: int, high_watermark: int) -> list[Dump]:
    """What stands in the files of all replicas, batch by batch; nothing may be written meanwhile."""
    found = []
    for broker_id in cluster.partitions(topic)[partition].replicas:
        entries = []
        for segment in segment_files(cluster, broker_id, topic, partition):
            for _, header in walk_batches(segment.read_bytes()):
                entries.append((header.base_offset, header.partition_leader_epoch, header.crc))
        found.append(Dump(broker_id, topic, partition, 0, high_watermark, entries, time.monotonic()))
    return found


def make_topic(bootstrap: str, name: str, partitions: int = 3) -> None:
    """A topic of three replicas, two of which must have what is acknowledged."""
    make_any_topic(bootstrap, name, partitions, min_insync_replicas=2)
