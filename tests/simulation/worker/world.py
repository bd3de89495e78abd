"""A cluster for simulated workers: logs, commits, outputs, and the group with its members.

Each call of a member takes a random time, may fail, and never returns once the member was killed. A member that is cut
off learns nothing, while the group gives its partitions to others.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ottla.client.worker.commit_metadata import decode

if TYPE_CHECKING:
    from tests.simulation.worker.member import Member

TOPIC_ID = b"0123456789abcdef"
SESSION_S = 6.0
REBALANCE_S = 120.0
PARTITIONS = [TopicPartition("orders", number) for number in range(4)]
NEVER = -1
Place = tuple[TopicPartition, int]


def is_silent(record: ConsumerRecord) -> bool:
    """Return whether a record's handler waits for nothing, and sends nothing."""
    return record.offset % 8 < 4


class PromiseBroken(AssertionError):
    """A promise of the worker that did not hold."""


@dataclass
class Log:
    """The records of a partition, with gaps between their offsets."""

    records: list[ConsumerRecord] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.records[-1].offset + 1 if self.records else 0


class Running(NamedTuple):
    """A handler that runs: its member, how often that member was removed from the group before, and the offset. The
    number is NEVER if the handler began while the member was removed."""

    member: Member
    removals: int
    offset: int


class History:
    """The starts and ends of handlers, the outputs and the letters, with the promises about them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.outputs: Counter[Place] = Counter()
        self.letters: Counter[Place] = Counter()
        self._ended: set[Place] = set()
        self._running: dict[tuple[TopicPartition, bytes | None], list[Running]] = defaultdict(list)
        self.starts = 0

    def start(self, member: Member, record: ConsumerRecord) -> Running:
        """Note a start. Raises PromiseBroken if it overlaps with a record of its key, or precedes the end of one.

        Members that the group has removed are not judged: they cannot know.
        """
        self.starts += 1
        partition = TopicPartition(record.topic, record.partition)
        running = self._running[partition, record.key]
        is_member = member in self._world.group.members
        for other in running:
            if other.member is member or (is_member and other.removals == other.member.removals):
                raise PromiseBroken(
                    f"{partition}: {record.offset} starts while {other.offset} of its key is running"
                )
        if is_member:
            self._check_predecessors(partition, record)
        started = Running(member, member.removals if is_member else NEVER, record.offset)
        running.append(started)
        return started

    def _check_predecessors(self, partition: TopicPartition, record: ConsumerRecord) -> None:
        for earlier in self._world.logs[partition].records:
            if earlier.offset >= record.offset:
                return
            if earlier.key == record.key and (partition, earlier.offset) not in self._ended:
                raise PromiseBroken(
                    f"{partition}: {record.offset} starts before {earlier.offset} of its key ended"
                )

    def leave(self, started: Running, record: ConsumerRecord) -> None:
        """Note that a handler has returned, raised or was cancelled."""
        self._running[TopicPartition(record.topic, record.partition), record.key].remove(started)

    def end(self, record: ConsumerRecord) -> None:
        """Note that a handler has worked on a record, or rejected it, or has failed for the last time."""
        self._ended.add((TopicPartition(record.topic, record.partition), record.offset))

    def bury(self, member: Member) -> None:
        """Forget the handlers of a member that was killed."""
        for running in self._running.values():
            running[:] = [entry for entry in running if entry.member is not member]

    def check_commit(self, partition: TopicPartition, place: OffsetAndMetadata) -> None:
        """Raise PromiseBroken if a commit counts a record without result."""
        runs = decode(place.metadata).runs if place.metadata else ()
        for record in self._world.logs[partition].records:
            offset = record.offset
            is_counted = offset < place.offset or any(start <= offset < end for start, end in runs)
            if is_counted and not self._results(record):
                raise PromiseBroken(
                    f"{partition}: a commit at {place.offset} counts {offset}, without a result"
                )

    def check_all(self, *, exactly_once: bool) -> None:
        """Raise PromiseBroken if a record has no result, or with transactions two."""
        for partition, log in self._world.logs.items():
            for record in log.records:
                results = self._results(record)
                if not results:
                    raise PromiseBroken(f"{partition}: {record.offset} is neither finished nor a letter")
                if exactly_once and results != 1:
                    raise PromiseBroken(f"{partition}: {record.offset} has {results} results in transactions")

    def _results(self, record: ConsumerRecord) -> int:
        """Return the number of a record's outputs and letters. The end of the handler of a silent record counts as
        one."""
        at = (TopicPartition(record.topic, record.partition), record.offset)
        return at in self._ended if is_silent(record) else self.outputs[at] + self.letters[at]


class World:
    """The cluster."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.exactly_once = chance.random() < 0.5
        self.is_eager = chance.random() < 0.5
        self.error_rate = chance.choice([0.0, 0.02, 0.1])
        self.delay_s = chance.choice([0.001, 0.02, 0.2])
        self.logs = {partition: Log() for partition in PARTITIONS}
        self.commits: dict[TopicPartition, OffsetAndMetadata] = {}
        self.history = History(self)
        self.group = Group(self)
        self.broken: PromiseBroken | None = None
        self.is_over = False

    def append(self, count: int) -> None:
        """Write records, with keys that belong to partitions."""
        for _ in range(count):
            number = self.chance.randrange(24)
            partition = PARTITIONS[number % len(PARTITIONS)]
            log = self.logs[partition]
            offset = log.end + self.chance.choice([0, 0, 0, 2])
            key = None if number >= 22 else b"%d" % number
            value = b"%d:%d" % (partition.partition, offset)
            log.records.append(ConsumerRecord(*partition, offset, 0, key, value, (), 3))

    @property
    def is_done(self) -> bool:
        """True once all records are committed."""
        return all(
            partition in self.commits and self.commits[partition].offset >= log.end
            for partition, log in self.logs.items()
            if log.records
        )

    def judge(self, error: PromiseBroken) -> None:
        """Keep the first broken promise: the worker catches the exceptions of handlers."""
        self.broken = self.broken or error

    def commit(self, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Keep the offsets of a group."""
        for partition, place in places.items():
            self.history.check_commit(partition, place)
            self.commits[partition] = place


class Group:
    """The coordinator: it gives partitions to members, by the eager or by the incremental protocol."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.members: list[Member] = []
        self.owners: dict[TopicPartition, tuple[Member, int]] = {}
        """The owner of each partition, and the number of the assignment."""
        self._assignments = 0
        self._changes = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    def remove(self, member: Member) -> None:
        """Remove a member that is silent."""
        if member in self.members:
            self.members.remove(member)
            member.removals += 1
            self.owners = {
                partition: owner for partition, owner in self.owners.items() if owner[0] is not member
            }

    def change(self) -> None:
        """Begin a rebalance."""
        task = asyncio.ensure_future(self._rebalance())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def owns(self, member: Member, tokens: Mapping[TopicPartition, int]) -> bool:
        """Return whether a member has these partitions since these assignments."""
        return all(self.owners.get(partition) == (member, token) for partition, token in tokens.items())

    def tokens(self, member: Member, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the numbers of a member's assignments, -1 for a partition of another member."""
        found = {partition: self.owners.get(partition) for partition in partitions}
        return {
            partition: owner[1]
            if owner is not None and owner[0] is member and partition in member.owned
            else -1
            for partition, owner in found.items()
        }

    async def _rebalance(self) -> None:
        async with self._changes:
            target = self._target()
            await self._wait_for_all(
                [
                    (
                        member,
                        set(member.owned)
                        if self._world.is_eager
                        else member.owned - target.get(member, set()),
                    )
                    for member in self.members
                ]
            )
            for partition, (owner, _) in list(self.owners.items()):
                if (
                    owner not in self.members
                    or partition not in target.get(owner, set())
                    or self._world.is_eager
                ):
                    del self.owners[partition]
            for member, partitions in target.items():
                if member in self.members and member.is_reachable:
                    free = {partition for partition in partitions if partition not in self.owners}
                    for partition in free:
                        self._assignments += 1
                        self.owners[partition] = (member, self._assignments)
                    member.take(free)

    def _target(self) -> dict[Member, set[TopicPartition]]:
        target: dict[Member, set[TopicPartition]] = {member: set() for member in self.members}
        for number, partition in enumerate(PARTITIONS if target else ()):
            target[self.members[number % len(self.members)]].add(partition)
        return target

    async def _wait_for_all(self, revoked: Iterable[tuple[Member, set[TopicPartition]]]) -> None:
        """Wait until each member has given its partitions up. A member that is silent for its session is removed."""
        waits = [self._wait_for(member, partitions) for member, partitions in revoked]
        await asyncio.gather(*waits)

    async def _wait_for(self, member: Member, partitions: set[TopicPartition]) -> None:
        giving_up = asyncio.ensure_future(member.give_up(partitions))
        gone = asyncio.ensure_future(self._silent(member))
        await asyncio.wait([giving_up, gone], timeout=REBALANCE_S, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not giving_up.done():
            self.remove(member)

    async def _silent(self, member: Member) -> None:
        silent_s = 0.0
        while silent_s < SESSION_S:
            await asyncio.sleep(0.5)
            silent_s = silent_s + 0.5 if member.is_silent else 0.0
