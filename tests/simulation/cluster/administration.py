"""Operator actions during a simulation: elections, reassignments, changed settings, and topics that come and go.

Every call may fail with any of Kafka's errors, but may not hang. The invariants judge the results: reassignments
complete after the faults, records stay, and deleted records lie below the log start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random

from ottla.client.admin import TOPIC_RESOURCE, Admin, NewTopic
from ottla.client.admin.records import LATEST
from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from ottla.protocol.errors import KafkaError
from tests.histories.operations import ALL_IN_SYNC, Deleted, Hung, Outcome, Send
from tests.simulation.cluster.crew import SOURCE
from tests.simulation.cluster.workload import REQUEST_TIMEOUT_MS, Workload, delivered
from tests.simulation.machine.chance import exponential

CALL_MAX_S = 20.0
"""Longest duration of a call in seconds: some calls retry until their timeout, then wait for leaders, then ask other
brokers."""
OWN_TOPICS = ("made-0", "made-1", "made-2")
"""Names of topics that are made and deleted repeatedly. The records of a topic that was ever deleted are not judged."""
OWN_PARTITIONS_MAX = 4


class Administrator:
    """An operator that performs random actions at inconvenient moments."""

    def __init__(self, workload: Workload, admin: Admin, chance: Random, *, one_may_do: bool) -> None:
        self._workload = workload
        self._one_may_do = one_may_do
        self._admin = admin
        self._chance = chance
        self._brokers = list(workload.cluster.brokers)
        # : own topics whose creation was attempted, with the largest requested number of partitions
        self.made: dict[str, int] = {}
        # : own topics whose deletion was attempted at least once
        self.deleted: set[str] = set()
        self._actions: dict[Callable[[], Awaitable[object]], int] = {
            self.elect: 5,
            self.move: 4,
            self.call_off: 2,
            self.set_config: 3,
            self.make_topic: 2,
            self.add_partitions: 1,
            self.delete_topic: 1,
            self.delete_records: 2,
        }

    @property
    def undeleted(self) -> set[str]:
        """Own topics whose deletion was never attempted."""
        return self.made.keys() - self.deleted

    async def act(self) -> None:
        """Do one action, and note in the history if it hangs."""
        workload = self._workload
        action = self._chance.choices(list(self._actions), list(self._actions.values()))[0]
        since, name = workload.now(), action.__name__
        workload.machine.trace.note(since, "administrator", name)
        try:
            await asyncio.wait_for(action(), CALL_MAX_S)
        except TimeoutError:
            workload.history.add(Hung("administrator", name, since, workload.now()))
        except KafkaError as error:
            workload.machine.trace.note(workload.now(), "administrator", f"{name}: {error.code.name}")

    async def elect(self) -> None:
        """Elect preferred leaders of some or all partitions. Repeated elections cause fast double failovers."""
        some = self._some_partitions() if self._chance.random() < 0.5 else None
        await self._admin.elect_leaders(some)

    async def move(self) -> None:
        """Give some partitions other replicas: in another order, one fewer or one more."""
        wanted = {
            place: self._chance.sample(self._brokers, self._chance.choice((2, 3, 3)))
            for place in self._some_partitions()
        }
        await self._admin.alter_partition_reassignments(wanted)

    async def call_off(self) -> None:
        """Cancel running reassignments."""
        moving = await self._admin.list_partition_reassignments()
        places = list(moving) or self._some_partitions()
        await self._admin.alter_partition_reassignments(dict.fromkeys(places))

    async def set_config(self) -> None:
        """Set or remove a setting of a topic.

        No run becomes less durable than it assumes: `flush.messages` is 1 or the value of all topics, and one in-sync
        replica is enough only if all topics flush and no disk will rot.
        """
        chance = self._chance
        key, values = chance.choice(
            (
                ("min.insync.replicas", ("1", "2") if self._one_may_do else ("2", None)),
                ("segment.ms", ("200", "1000", None)),
                ("segment.bytes", ("16384", None)),
                ("flush.messages", ("1", None)),
            )
        )
        topic = chance.choice([*self._workload.topics, *self.made])
        await self._admin.alter_configs(TOPIC_RESOURCE, topic, {key: chance.choice(values)})

    async def make_topic(self) -> None:
        """Create an own topic, which may already exist."""
        name = self._chance.choice(OWN_TOPICS)
        partitions = self._chance.randint(1, 2)
        self.made[name] = max(partitions, self.made.get(name, 0))
        factor = self._chance.choice((2, 3))
        await self._admin.create_topics(
            [NewTopic(name, partitions, factor, configs={"min.insync.replicas": "2"})]
        )

    async def add_partitions(self) -> None:
        """Add partitions to an own topic."""
        if self.made:
            name = self._chance.choice(list(self.made))
            self.made[name] = total = min(self.made[name] + 1, OWN_PARTITIONS_MAX)
            await self._admin.create_partitions(name, total)

    async def delete_topic(self) -> None:
        """Delete an own topic."""
        if self.made:
            name = self._chance.choice(list(self.made))
            self.deleted.add(name)
            await self._admin.delete_topics([name])

    async def delete_records(self) -> None:
        """Delete records below some offset of one partition, unless a group depends on its records."""
        copied = {*self._workload.copies, *self._workload.copies.values()}
        places = [
            TopicPartition(*place) for place in self._all_partitions() if place[0] not in {*copied, SOURCE}
        ]
        place = self._chance.choice(places)
        found = (await self._admin.list_offsets({place: LATEST}))[place]
        if not isinstance(found, KafkaError) and found > 0:
            before = self._chance.randint(0, found)
            self._workload.history.add(Deleted(*place, before, self._workload.now()))
            await self._admin.delete_records({place: before})

    def _all_partitions(self) -> list[tuple[str, int]]:
        return [
            *self._workload.partitions,
            *((name, index) for name, count in self.made.items() for index in range(count)),
        ]

    def _some_partitions(self) -> list[tuple[str, int]]:
        places = self._all_partitions()
        return self._chance.sample(places, self._chance.randint(1, len(places)))


async def administer(
    workload: Workload, per_second: float, until: Callable[[], bool], *, one_may_do: bool
) -> None:
    """Perform operator actions until it is time to stop, while a producer uses the topics that come and go.

    `one_may_do`: min.insync.replicas may be set to 1.
    """
    chance = workload.chance()
    admin = await _reached(workload)
    administrator = Administrator(workload, admin, chance, one_may_do=one_may_do)
    producing = asyncio.create_task(_produce(workload, administrator, admin, workload.chance()))
    while not (until() or workload.over):
        await administrator.act()
        await asyncio.sleep(exponential(chance, per_second))
    sends = await producing
    await _add_to_history(workload, administrator, admin, sends)
    await admin.stop()


async def _reached(workload: Workload) -> Admin:
    while True:
        admin = Admin(bootstrap_servers=workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        try:
            await admin.start()
        except KafkaError:
            await asyncio.sleep(0.1)
        else:
            return admin


async def _produce(
    workload: Workload, administrator: Administrator, admin: Admin, chance: Random
) -> list[Send]:
    """Send to topics that may be deleted or recreated, until the workload is over. Then send one more record to each
    partition of the remaining topics, which must be writable.

    The last record is not sent in a batch that has waited for a leader: a record that joins such a batch fails with it,
    however young it is, as in Kafka's client.
    """
    sends: list[Send] = []
    producer = Producer(
        bootstrap_servers=workload.cluster.bootstrap,
        acks=ALL_IN_SYNC,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        delivery_timeout_ms=2 * REQUEST_TIMEOUT_MS,
        max_block_ms=1000,
    )
    while not workload.over:
        with suppress(KafkaError):
            await producer.start()
            break
        await asyncio.sleep(0.1)
    else:
        return sends
    while not workload.over:
        await asyncio.sleep(exponential(chance, 15))
        if not administrator.made:
            continue
        name = chance.choice(list(administrator.made))
        await _send(workload, producer, sends, name, chance.randrange(administrator.made[name]))
    await producer.flush()
    for name, partitions in (await _kept(administrator, admin)).items():
        for index in range(partitions):
            await _send(workload, producer, sends, name, index)
    await producer.stop()
    return sends


async def _send(workload: Workload, producer: Producer, sends: list[Send], name: str, index: int) -> None:
    value = f"operator:{len(sends)}".encode()
    send = Send("operator", "operator", name, index, value, ALL_IN_SYNC, True, len(sends), workload.now())
    sends.append(send)
    try:
        delivery = await producer.send(name, value, partition=index)
    except KafkaError as error:
        send.finish(workload.now(), error.code.name, tried_before=True)
    else:
        delivery.add_done_callback(partial(delivered, workload, send))


async def _add_to_history(
    workload: Workload, administrator: Administrator, admin: Admin, sends: list[Send]
) -> None:
    """Add the sends to never-deleted topics to the history, and have these topics read at the end."""
    topics = await _kept(administrator, admin)
    workload.topics.update(topics)
    for send in sends:
        is_there = send.partition < topics.get(send.topic, 0)
        was_there = is_there and send.error != "UNKNOWN_TOPIC_OR_PARTITION"
        if send.topic in administrator.undeleted and (was_there or send.outcome is Outcome.OK):
            workload.history.add(send)


async def _kept(administrator: Administrator, admin: Admin) -> dict[str, int]:
    """Return the undeleted topics that exist, with their partition counts."""
    while True:
        with suppress(KafkaError):
            there = {topic.name: len(topic.partitions) for topic in await admin.describe_topics()}
            break
        await asyncio.sleep(0.05)
    return {name: there[name] for name in sorted(administrator.undeleted & there.keys())}
