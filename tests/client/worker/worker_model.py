"""A group of workers as pure state, with a seeded schedule of records, failures, handovers and crashes. A history of
starts and ends is checked against the promises.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.client.records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ottla.client.worker.commit_metadata import TEXT_MAX, decode
from ottla.client.worker.letters import DeadLetter
from ottla.client.worker.partition_tasks import Task
from ottla.client.worker.rates import Rate
from ottla.client.worker.retries import Retry
from ottla.client.worker.tasks import HeldRetry, LetterDue, Policy, Tasks

TOPIC_ID = b"0123456789abcdef"
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]


@dataclass
class World:
    """A topic, its group's commits, and the members."""

    chance: random.Random
    now_s: float = 0.0
    logs: dict[TopicPartition, list[ConsumerRecord]] = field(
        default_factory=lambda: {partition: [] for partition in PARTITIONS}
    )
    commits: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    finished: dict[TopicPartition, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The offsets whose work was done, or whose letter was written, by any member."""
    counted: dict[TopicPartition, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The finished offsets that a commit has covered: they must not start again."""
    repeated: int = 0

    def append(self) -> None:
        partition = self.chance.choice(PARTITIONS)
        log = self.logs[partition]
        gap = self.chance.choice([1, 1, 1, 3])
        offset = (log[-1].offset if log else -1) + gap
        key = self.chance.choice([None, b"a", b"b", b"c", b"%d" % self.chance.randrange(50)])
        log.append(ConsumerRecord(*partition, offset, 0, key, b"x" * self.chance.randrange(50), (), 3))


class Member:
    """A worker: its pure state, and a shell that checks each start."""

    def __init__(self, world: World, concurrency: int) -> None:
        self.world = world
        self.concurrency = concurrency
        chance = world.chance
        self.policy = Policy(
            lane_of=lambda record: None if record.key is None else (record.topic, record.key),
            retry=Retry(attempts=3, first=1, factor=3, most=5),
            retry_topic=False,
            dead_letter=DeadLetter("letters", None, None),
            rates=[Rate(50, burst=20), Rate(5, burst=3, per_key=True)] if chance.random() < 0.3 else [],
            max_records=chance.choice([5, 40, 10_000]),
            max_bytes=chance.choice([300, 1 << 20]),
        )
        self.tasks = Tasks(self.policy)
        self.positions: dict[TopicPartition, int] = {}
        self.running: list[Task] = []
        self.last_started: dict[tuple[TopicPartition, bytes], int] = {}
        self.paused: set[TopicPartition] = set()

    def assign(self, partition: TopicPartition) -> None:
        state = self.tasks.assign(partition)
        state.topic_id = TOPIC_ID
        self.paused.discard(partition)
        for lane in [lane for lane in self.last_started if lane[0] == partition]:
            del self.last_started[lane]
        log = self.world.logs[partition]
        begin = 0
        if partition in self.world.commits:
            begin, text = self.world.commits[partition]
            assert len(text) <= TEXT_MAX
            assert state.resume(begin, text, log[-1].offset + 1 if log else 0) is None
        self.positions[partition] = begin

    def read(self) -> None:
        self.paused.update(self.tasks.to_pause())
        self.paused.difference_update(self.tasks.to_resume())
        room = self.tasks.room()
        for partition, position in list(self.positions.items()):
            if partition in self.paused or room <= 0:
                continue
            new = [record for record in self.world.logs[partition] if record.offset >= position]
            new = new[: min(room, self.world.chance.randrange(1, 20))]
            room -= len(new)
            if new:
                assert self.tasks.offer(partition, new, self.world.now_s, 0) == []
                self.positions[partition] = new[-1].offset + 1
        stats = self.tasks.stats(self.world.now_s)
        assert stats.held + stats.uncommitted <= max(self.policy.max_records, 1)

    def start(self) -> None:
        while self.tasks.in_flight < self.concurrency:
            task = self.tasks.next(self.world.now_s)
            if task is None:
                return
            assert not any(other is task for other in self.running)
            self.check_start(task.record)
            self.running.append(task)

    def rush(self) -> None:
        """Work on a series of records. It ends if one of their handlers waits or fails, or at the end of a turn."""
        if self.tasks.in_flight >= self.concurrency or (series := self.tasks.series()) is None:
            return
        for record in series:
            self.check_start(record)
            fate = self.world.chance.random()
            if fate < 0.2:
                self.running.append(self.tasks.interrupted(series, self.world.now_s))
                break
            self.world.finished[TopicPartition(record.topic, record.partition)].add(record.offset)
            if fate < 0.3:
                break
        self.tasks.ended(series)

    def check_start(self, record: ConsumerRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        assert record.offset not in self.world.counted[partition], "a counted record started again"
        self.world.repeated += record.offset in self.world.finished[partition]
        if record.key is None:
            return
        assert not [other for other in self.running if other.record.key == record.key], "a key overlaps"
        lane = (partition, record.key)
        assert self.last_started.get(lane, -1) <= record.offset, "a key's records started out of order"
        earlier = [
            other.offset
            for other in self.world.logs[partition]
            if other.key == record.key and other.offset < record.offset
        ]
        assert self.world.finished[partition].issuperset(earlier), (
            "a record started before its predecessor ended"
        )
        self.last_started[lane] = record.offset

    def end_one(self) -> None:
        if not self.running:
            return
        task = self.running.pop(self.world.chance.randrange(len(self.running)))
        fate = self.world.chance.random()
        if fate < 0.6:
            self.tasks.succeeded(task)
        else:
            verdict = self.tasks.failed(
                task, self.world.now_s, self.world.chance.random(), is_final=fate > 0.95
            )
            if isinstance(verdict, HeldRetry):
                assert verdict.at_s >= self.world.now_s
                return
            if not isinstance(verdict, LetterDue):
                self.tasks.release(task)
                return
        if not task.tasks.gone:
            self.world.finished[task.tasks.partition].add(task.record.offset)
        self.tasks.release(task)
        self.tasks.finish(task)

    def commit(self) -> None:
        due = self.tasks.commits(lambda _, offset: OffsetAndMetadata(offset))
        for partition, commit in due.items():
            assert commit.left_out == 0
            offset = commit.place.offset
            taken = {
                record.offset
                for record in self.world.logs[partition]
                if record.offset < self.positions[partition]
            }
            unfinished = taken - self.world.finished[partition]
            assert offset <= min(unfinished, default=self.positions[partition]), "a commit skips a record"
            self.world.commits[partition] = commit.place
            self.world.counted[partition] |= {offset for offset in taken if covers(commit.place, offset)}
        self.tasks.committed(due.values())
        assert not self.tasks.is_dirty

    def give_up(self, partition: TopicPartition, *, lost: bool) -> None:
        if not lost:
            staying = self.tasks.leave([partition])
            while any(task.running for task in staying):
                self.end_one()
            self.commit()
        for task in self.tasks.forget([partition]):
            self.running.remove(task)
            self.tasks.cancelled(task)
        del self.positions[partition]

    def idle(self) -> bool:
        return self.tasks.is_idle and not self.running


def covers(place: OffsetAndMetadata, offset: int) -> bool:
    """Return whether a commit counts an offset."""
    runs = decode(place.metadata).runs if place.metadata else ()
    return offset < place.offset or any(begin <= offset < end for begin, end in runs)


class Group:
    """Members that share the partitions. A member may crash, and a new one takes its place."""

    def __init__(self, seed: int, steps: int) -> None:
        self.world = World(random.Random(seed))
        self.concurrency = self.world.chance.choice([1, 4, 16])
        self.members = [Member(self.world, self.concurrency) for _ in range(2)]
        for partition in PARTITIONS:
            self.world.chance.choice(self.members).assign(partition)
        self.steps = steps

    def run(self) -> World:
        for _ in range(self.steps):
            self.step()
        for _ in self.until_all_is_done():
            for member in self.members:
                member.read()
                member.rush()
                member.start()
                member.end_one()
                member.commit()
            self.world.now_s += 0.5
        return self.world

    def until_all_is_done(self) -> Iterator[int]:
        for round_number in range(100_000):
            logs = self.world.logs
            if all(
                self.world.finished[partition] >= {record.offset for record in logs[partition]}
                for partition in PARTITIONS
            ) and all(member.idle() for member in self.members):
                return
            yield round_number
        raise AssertionError("some records are never finished")

    def step(self) -> None:
        chance, member = self.world.chance, self.world.chance.choice(self.members)
        what = chance.random()
        if what < 0.25:
            for _ in range(chance.randrange(8)):
                self.world.append()
        elif what < 0.45:
            member.read()
        elif what < 0.55:
            member.rush()
        elif what < 0.65:
            member.start()
        elif what < 0.85:
            member.end_one()
        elif what < 0.92:
            member.commit()
        elif what < 0.95:
            self.world.now_s += chance.random() * 4
        elif what < 0.985:
            self.move(chance.choice(PARTITIONS))
        else:
            self.crash(member)

    def move(self, partition: TopicPartition) -> None:
        owner = next(member for member in self.members if partition in member.positions)
        owner.give_up(partition, lost=self.world.chance.random() < 0.3)
        self.world.chance.choice(self.members).assign(partition)

    def crash(self, member: Member) -> None:
        self.members.remove(member)
        self.members.append(Member(self.world, self.concurrency))
        for partition in member.positions:
            self.world.chance.choice(self.members).assign(partition)
