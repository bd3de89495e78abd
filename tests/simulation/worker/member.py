"""A simulated member: the unmodified worker, with a consumer and a producer of the simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ottla import DeadLetter, Reject, Retry, Worker, WorkerRecord
from ottla.client.exactly_once.batch import NewRecord
from ottla.client.records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ottla.client.worker.dispatch import Dispatch
from ottla.client.worker.ending import Ending
from ottla.client.worker.group_work import GroupWork
from ottla.client.worker.options import WorkerSettings
from ottla.client.worker.settling import Settlement
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offsets import NO_GENERATION
from tests.simulation.worker.world import SESSION_S, TOPIC_ID, Place, PromiseBroken, World, is_silent

ATTEMPTS = 3
LETTERS = "orders.dlq"


class Member:
    """A process with a worker: it may be killed, cut off, or stopped in order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.owned: set[TopicPartition] = set()
        self.removals = 0
        """The number of times that the group has removed it."""
        self.was_killed = False
        self.has_joined = False
        self.listener: Any = None
        self.consumer = SimulatedConsumer(self)
        self.is_rejoining = False
        self._handover = asyncio.Lock()  # As in the consumer, one at a time.
        self._reached = asyncio.Event()
        self._reached.set()
        self.worker = SimulatedWorker(self)
        self.worker.handler(self.handle)
        self.running = asyncio.ensure_future(self.worker.run())

    @property
    def is_reachable(self) -> bool:
        """True while it is alive and not cut off."""
        return self._reached.is_set()

    @property
    def is_silent(self) -> bool:
        """True if the group does not hear of it: it was killed, is cut off, or ended while it was cut off."""
        return not (self.is_reachable and self.has_joined)

    @property
    def has_settled(self) -> bool:
        """True if it is in the group, and gives nothing up."""
        return self in self.world.group.members and not self._handover.locked()

    async def call(self) -> None:
        """Take the time of a call to the cluster. It never returns once the member was killed."""
        await asyncio.sleep(self.world.chance.random() * self.world.delay_s)
        await self._reached.wait()
        if self.world.is_over and self.was_killed:
            raise asyncio.CancelledError

    def may_fail(self) -> None:
        """Raise KafkaError at times: the cluster did nothing, or its answer was lost."""
        if self.world.chance.random() < self.world.error_rate:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "as the seed decides")

    # faults

    def kill(self) -> None:
        """End the process: none of its calls returns."""
        self.was_killed = True
        self.cut_off()
        self.world.history.bury(self)

    def cut_off(self) -> None:
        """Cut the process off. The group removes it after its session."""
        self._reached.clear()
        self.fall_silent()

    def fall_silent(self) -> None:
        """Let the group remove the process after its session, unless it is heard again."""
        asyncio.get_running_loop().call_later(SESSION_S, self._expire)

    def reconnect(self) -> None:
        """Let the calls of the process reach the cluster. If the group has removed it, it joins again."""
        if self.was_killed:
            return
        self._reached.set()
        if self.has_joined and self not in self.world.group.members and not self.is_rejoining:
            self.is_rejoining = True
            self._rejoining = asyncio.ensure_future(self._rejoin())

    async def _rejoin(self) -> None:
        """Give all partitions up as lost, once an earlier handover has ended, and join."""
        async with self._handover:
            lost, self.owned = self.owned, set()
            self.listener.on_partitions_lost(lost)
        self.is_rejoining = False
        if self.has_joined:
            self.join()

    def unveil(self) -> None:
        """Let the calls of a killed process end at the end of the run."""
        self._reached.set()

    def _expire(self) -> None:
        if self.is_silent and self in self.world.group.members:
            self.world.group.remove(self)
            self.world.group.change()

    # the group

    def join(self) -> None:
        """Join the group."""
        self.has_joined = True
        self.world.group.members.append(self)
        self.world.group.change()

    async def give_up(self, partitions: set[TopicPartition]) -> None:
        """Give up these partitions, once their handlers have ended."""
        removals = self.removals
        await self.call()
        async with self._handover:
            if self.removals == removals and self in self.world.group.members and partitions:
                await self.listener.on_partitions_revoked(partitions)
                self.owned -= partitions

    def take(self, partitions: set[TopicPartition]) -> None:
        """Begin with these partitions."""
        self.owned |= partitions
        self.consumer.begin(partitions)
        self.listener.on_partitions_assigned(partitions)

    # work

    async def handle(self, record: WorkerRecord) -> None:
        """Work on a record as the seed decides: finish, fail, reject, or take long. A silent record is finished at
        once."""
        chance, history = self.world.chance, self.world.history
        if self.was_killed:
            await self.call()  # Its process is gone, and works on nothing.
        try:
            started = history.start(self, record)
        except PromiseBroken as error:
            self.world.judge(error)
            return
        try:
            if is_silent(record):
                history.end(record)
                return
            await asyncio.sleep(chance.choice([0, 0, chance.random() * 0.1, chance.random() * 2]))
            if chance.random() < 0.01:
                await asyncio.sleep(30)
            if self.was_killed:
                await self.call()
            fate = chance.random()
            if fate < 0.15:
                if record.attempt == ATTEMPTS:
                    history.end(record)
                raise ConnectionError
            history.end(record)
            if fate < 0.2:
                raise Reject
            record.send("bills", record.value, key=record.key)
        finally:
            if not self.was_killed:
                history.leave(started, record)


class SimulatedConsumer:
    """The part of `Consumer` that a worker uses."""

    def __init__(self, member: Member) -> None:
        self.commits = self
        self.metadata = SimpleNamespace(topics={"orders": SimpleNamespace(id=TOPIC_ID)})
        self._member = member
        self._world = member.world
        self._paused: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        await self._member.call()
        self._member.join()

    async def _stop_within(self, patience_s: float) -> None:
        member, group = self._member, self._world.group
        if member in group.members and member.is_reachable:
            await member.give_up(set(member.owned))
        member.has_joined = False
        if member in group.members and member.is_reachable:
            group.members.remove(member)
            group.change()
        member.fall_silent()

    def subscribe(self, topics: Iterable[str], listener: Any) -> None:
        self._member.listener = listener

    def begin(self, partitions: set[TopicPartition]) -> None:
        """Begin at the first record, unless `seek` follows."""
        self._paused -= partitions
        self._positions |= dict.fromkeys(partitions, 0)

    def assignment(self) -> set[TopicPartition]:
        return set(self._member.owned)

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused.difference_update(partitions)

    def seek(self, partition: TopicPartition, place: OffsetAndMetadata) -> None:
        self._positions[partition] = place.offset

    def committable(self, partition: TopicPartition, offset: int) -> OffsetAndMetadata:
        return OffsetAndMetadata(offset)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        await self._member.call()
        self._member.may_fail()
        return {partition: self._world.logs[partition].end for partition in partitions}

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        await self._member.call()
        self._member.may_fail()
        commits = self._world.commits
        return {partition: commits[partition] for partition in partitions if partition in commits}

    async def commit(self, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        tokens = self._world.group.tokens(self._member, places)
        await self._member.call()
        self._member.may_fail()
        if not self._world.group.owns(self._member, tokens):
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "as the group has moved on")
        self._world.commit(places)
        self._member.may_fail()

    def group_metadata(self) -> Any:
        is_member = self._member in self._world.group.members
        tokens = self._world.group.tokens(self._member, self._member.owned)
        return SimpleNamespace(generation=1 if is_member else NO_GENERATION, tokens=tokens)

    async def getmany(
        self, *, timeout_ms: float, max_records: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        await self._member.call()
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for partition in sorted(self._member.owned - self._paused):
            begin = self._positions[partition]
            new = [record for record in self._world.logs[partition].records if record.offset >= begin]
            new = new[: min(max_records, self._world.chance.randrange(1, 20))]
            if new:
                max_records -= len(new)
                found[partition], self._positions[partition] = new, new[-1].offset + 1
            if not max_records:
                break
        if not found:
            await asyncio.sleep(timeout_ms / 1000)
        return found


class SimulatedProducer:
    """The part of `Producer` that a settlement uses, with and without transactions."""

    def __init__(self, member: Member) -> None:
        self.steps = SimpleNamespace(record=lambda *_: None)
        self.sent: list[NewRecord] = []
        self._member = member

    async def start(self) -> None:
        await self._member.call()

    async def stop(self) -> None:
        self.sent.clear()

    async def send(self, topic: str, value: bytes, *rest: Any, **more: Any) -> Any:
        new = NewRecord(topic, value)
        if not self._member.world.exactly_once:
            return asyncio.ensure_future(self._deliver(new))
        self.sent.append(new)
        return None

    async def begin_transaction(self) -> None:
        self.sent.clear()

    async def abort_transaction(self) -> None:
        self.sent.clear()

    async def _deliver(self, new: NewRecord) -> None:
        await self._member.call()
        count(self._member.world, [new])
        await self._member.call()


class SimulatedOutput:
    """The part of `Output` that transactions use: results and offsets count at one moment."""

    dead = is_over = False

    def __init__(self, member: Member) -> None:
        self.producer = SimulatedProducer(member)
        self._member = member

    async def settle(self) -> None:
        self.producer.sent.clear()

    async def abort(self, reason: BaseException) -> None:
        await self._member.call()
        self.producer.sent.clear()

    async def commit(self, places: Mapping[TopicPartition, OffsetAndMetadata], group: Any, _: Any) -> None:
        await self._member.call()
        self._member.may_fail()
        tokens = {partition: group.tokens.get(partition, -1) for partition in places}
        if not self._member.world.group.owns(self._member, tokens):
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "as the group has moved on")
        count(self._member.world, self.producer.sent)
        self._member.world.commit(places)
        await self._member.call()

    async def stop(self) -> None:
        self.producer.sent.clear()


class SimulatedWork(GroupWork):
    """The parts of a worker, with clients of the simulated cluster."""

    def __init__(self, member: Member, settings: WorkerSettings, ending: Ending) -> None:
        super().__init__(("orders",), settings, None, ending)
        self._member = member
        self._consumer: Any = member.consumer

    def _at_least_once(self, dispatch: Dispatch) -> Settlement:
        made: Any = super()._at_least_once(dispatch)
        made.producer = SimulatedProducer(self._member)
        return made  # type: ignore[no-any-return]

    def _in_transactions(self, dispatch: Dispatch) -> Settlement:
        made: Any = super()._in_transactions(dispatch)
        made._output = SimulatedOutput(self._member)
        return made  # type: ignore[no-any-return]


class SimulatedWorker(Worker):
    """The worker, with clients of the simulated cluster."""

    def __init__(self, member: Member) -> None:
        chance = member.world.chance
        super().__init__(
            "orders",
            group_id="billing",
            transactional=member.world.exactly_once,
            dead_letter=DeadLetter(LETTERS, None, None),
            retry=Retry(attempts=ATTEMPTS, first=chance.choice([0.01, 0.5]), most=2),
            concurrency=chance.choice([1, 4, 16]),
            max_records=chance.choice([5, 50, 10_000]),
            commit_every_s=chance.choice([0.01, 0.2, 1]),
            drain_s=5,
        )
        self._work = SimulatedWork(member, self._settings, self._ending)


def count(world: World, sent: Sequence[NewRecord]) -> None:
    """Count outputs and letters."""
    for new in sent:
        assert new.value is not None
        number, offset = map(int, new.value.split(b":"))
        place: Place = (TopicPartition("orders", number), offset)
        (world.history.letters if new.topic == LETTERS else world.history.outputs)[place] += 1
