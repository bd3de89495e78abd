"""Clients that work on a topic while processes break: producers, readers and group members.

Each is a thread that records its operations and observations. All clients are confluent-kafka.
"""

from __future__ import annotations

import struct
import sys
import threading
import time
import traceback
from abc import abstractmethod
from contextlib import suppress
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.histories.operations import (
    ALL_IN_SYNC,
    NO_GENERATION,
    NOTHING_COMMITTED,
    Commit,
    Fetched,
    History,
    Outcome,
    Owned,
    Poll,
    Position,
    Reason,
    Released,
    Send,
)
from tests.integration.history import OUTLIVES_ALL_BROKERS

SETTLE_S = 90.0
"""Seconds after the cluster is whole within which every send has its outcome and every consumer reaches the end."""
QUEUED_MAX = 1_000
CLIENT = OUTLIVES_ALL_BROKERS | {
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
TRANSIENT = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
}
"""Errors of connections and coordinators, which end without intervention."""
PACKED_METADATA = b"CGMDv2:"
"""First bytes of librdkafka's group metadata."""


class Actor:
    """A thread that works until it is asked to stop. An error in the thread fails the test that joins it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.history = History()
        """Operations and observations of the actor; only read after its end."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self.crash: BaseException | None = None
        self.abandoned = False
        """True if the test has failed already, so the actor need not end in good order."""

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def tell_to_stop(self) -> None:
        """Ask the actor to end, without waiting."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the end. Raises the error that ended the actor too early."""
        self._stop.set()
        self._thread.join(SETTLE_S + 5)
        assert not self._thread.is_alive(), f"{self.name} hangs:\n{self._stack()}"
        self.raise_crash()

    def raise_crash(self) -> None:
        """Raise the error that ended the actor too early, if there is one."""
        if self.crash is not None:
            raise self.crash

    def _stack(self) -> str:
        """Return the stack of the thread."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame))

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
    """Common state of consumers: the polled records and the position."""

    def __init__(self, name: str, topic: str, settings: dict[str, Any]) -> None:
        super().__init__(name)
        self.polled = 0
        self.next_offsets: dict[int, int] = {}
        self._consumer = Consumer(settings)
        self._topic = topic
        self._sessions: dict[int, str] = {}
        self._sessions_begun = 0

    def _take(self, timeout_s: float) -> None:
        """Poll once. An error that a user would have to handle ends the actor."""
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
        epoch_or_none = -1 if epoch is None else epoch
        session, value = self._sessions[partition], message.value() or b""
        now = time.monotonic()
        self.history.add(Poll(self.name, session, self._topic, partition, offset, epoch_or_none, value, now))
        self.next_offsets[partition] = offset + 1
        self.polled += 1

    def _begin(self, partition: int, offset: int | None, reason: Reason) -> None:
        """Begin a session, since a partition was assigned; later reads of the partition belong to it."""
        self._sessions_begun += 1
        session = self._sessions[partition] = f"{self.name}/{self._sessions_begun}"
        now = time.monotonic()
        self.history.add(Position(self.name, session, self._topic, partition, offset, reason, now))


class Reader(Reading):
    """A reader of all partitions from the beginning, by `assign`."""

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
    """A group member that commits its reads synchronously about twice a second, and fetches the committed offsets."""

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
        """Time and offset of the last commit, by partition."""
        self.identity = (NO_GENERATION, "")
        """Generation or member epoch, and member id, at the last commit or assignment."""
        self.owned: frozenset[int] = frozenset()
        """Assigned partitions."""
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
        self.owned |= {partition.partition for partition in partitions}
        for partition in partitions:
            self.history.add(
                Owned(self.group, generation, member, self._topic, partition.partition, time.monotonic())
            )
            self._begin(partition.partition, None, Reason.COMMITTED)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._ask_committed(partitions)
        self._lost(_, partitions)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        generation, member = self._identity()
        self.owned -= {partition.partition for partition in partitions}
        for partition in partitions:
            self.history.add(
                Released(self.group, generation, member, self._topic, partition.partition, time.monotonic())
            )
            self._uncommitted.pop(partition.partition, None)
            self.next_offsets.pop(partition.partition, None)

    def _commit(self) -> None:
        """Commit all reads since the last commit; a failed commit is retried with the next."""
        if not self._uncommitted:
            return
        wanted = dict(self._uncommitted)
        offsets = [TopicPartition(self._topic, p, offset) for p, offset in wanted.items()]
        generation, member = self._identity()
        began = time.monotonic()
        failed: dict[int, KafkaError | None] = {}
        try:
            for partition in self._consumer.commit(offsets=offsets, asynchronous=False) or []:
                failed[partition.partition] = partition.error
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
        """Fetch committed offsets from the coordinator, and ignore requests without an answer."""
        began = time.monotonic()
        with suppress(KafkaException):
            for partition in self._consumer.committed(partitions, timeout=2):
                if partition.error is None:
                    offset = max(partition.offset, NOTHING_COMMITTED)
                    ended = time.monotonic()
                    self.history.add(
                        Fetched(self.group, self._topic, partition.partition, offset, began, ended)
                    )

    def _identity(self) -> tuple[int, str]:
        """Return the generation (or member epoch) and the member id from librdkafka's group metadata.

        Only this thread may call this: the call holds Python's lock, and from another thread it never ends while the
        consumer is being served.
        """
        packed = self._consumer.consumer_group_metadata()
        if packed is None:
            return NO_GENERATION, ""
        assert packed.startswith(PACKED_METADATA), packed
        (generation,) = struct.unpack_from("=i", packed, len(PACKED_METADATA))
        _, member, _ = packed[len(PACKED_METADATA) + 4 :].split(b"\0", 2)
        self.identity = generation, member.decode()
        return self.identity


def name_of(error: KafkaError | None) -> str | None:
    """Return Kafka's name of an error; librdkafka's own names begin with an underscore."""
    return None if error is None else str(error.name())
