"""Commits with and without transactions, markers, deletions, expiry and reloads at any point: OffsetFetch answers the
result of a complete scan of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.dataplane.coordinated_log.batches import BatchWriter
from ottla.dataplane.groups.commit_checks import Committer
from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.records import OffsetRecord, read_records
from ottla.dataplane.groups.shard import Shard
from ottla.dataplane.handlers.group_offsets import ASK_AGAIN, GroupOffsetHandlers
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.server.handler import ClientRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic

from .test_consumer_group import Topics
from .test_shard import LIMITS, Clock
from .transactional_log import TransactionalLog

GROUPS, PARTITIONS, PRODUCERS = ("g", "h"), (0, 1), (7, 8)
WEEK_MS = 7 * 24 * 3_600_000
UNSTABLE = (ErrorCode.UNSTABLE_OFFSET_COMMIT, ASK_AGAIN)

Key = tuple[str, int]
Step = tuple[str, dict[str, object]]
"""A method of `Play` and its arguments."""


@dataclass
class Commit:
    """A commit in the log; `producer` is None outside transactions.

    `dropped`: keys for which it was deleted at once, before the tombstone counted.
    """

    position: int
    end: int
    keys: frozenset[Key]
    value: int
    producer: int | None
    dropped: set[Key] = field(default_factory=set)


@dataclass(frozen=True)
class Marker:
    position: int
    end: int
    producer: int
    committed: bool


@dataclass(frozen=True)
class Tombstone:
    position: int
    end: int
    keys: frozenset[Key]


class Oracle:
    """The log as a list, and its meaning."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.markers: list[Marker] = []
        self.tombstones: list[Tombstone] = []

    def cut(self, end: int) -> None:
        """Cut the log at `end`, and read it again."""
        self.commits = [each for each in self.commits if each.end <= end]
        self.markers = [each for each in self.markers if each.end <= end]
        self.tombstones = [each for each in self.tombstones if each.end <= end]
        for each in self.commits:
            each.dropped.clear()

    def may_write(self, producer: int, watermark: int) -> bool:
        """Return whether the producer has no waiting marker: until a marker counts, the quorum opens no other
        transaction.
        """
        return all(each.end <= watermark for each in self.markers if each.producer == producer)

    def drop(self, keys: frozenset[Key], watermark: int) -> None:
        for each in self.commits:
            if each.producer is not None or each.end <= watermark:
                each.dropped |= keys & each.keys

    def _alive(self, key: Key, watermark: int) -> list[Commit]:
        erased = max(
            (t.position for t in self.tombstones if key in t.keys and t.end <= watermark), default=-1
        )
        return [
            each
            for each in self.commits
            if key in each.keys and key not in each.dropped and each.position > erased
        ]

    def _marker_of(self, commit: Commit, watermark: int) -> Marker | None:
        later = (m for m in self.markers if m.producer == commit.producer and m.position > commit.position)
        first = next(later, None)
        return first if first is not None and first.end <= watermark else None

    def visible(self, key: Key, watermark: int) -> int:
        counting = []
        for each in self._alive(key, watermark):
            marker = self._marker_of(each, watermark)
            if each.end <= watermark if each.producer is None else marker is not None and marker.committed:
                counting.append(each)
        return max(counting, key=lambda each: each.position).value if counting else -1

    def unstable(self, key: Key, watermark: int) -> bool:
        return any(
            each.producer is not None and self._marker_of(each, watermark) is None
            for each in self._alive(key, watermark)
        )


class Play:
    """A coordinator over a log, and the oracle."""

    def __init__(self) -> None:
        self.log, self.oracle, self.clock, self.topics = TransactionalLog(), Oracle(), Clock(), Topics(t=2)
        self.coordinator = GroupCoordinator(LIMITS, self.clock, lambda: 1, lambda: {"t"})
        self.handlers = GroupOffsetHandlers(self.coordinator, lambda: self.topics.image, self.clock, 4096)
        self.value = 0

    @property
    def shard(self) -> Shard:
        return self.coordinator.shard_for("g")

    async def start(self) -> None:
        self.coordinator.elected(0, self.log)
        await self.loaded()

    async def loaded(self) -> None:
        while self.coordinator.loading:
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def commit(
        self, group: str, partitions: Sequence[int], producer: int | None, *, refused: bool
    ) -> None:
        if producer is not None and not self.oracle.may_write(producer, self.log.high_watermark):
            return
        self.value += 1
        offsets = {("t", p): CommittedOffset(self.value, -1, "", 0) for p in partitions}
        outcomes: list[ErrorCode] = []
        position, self.log.refusing = self.log.end_offset, refused
        if producer is None:
            self.shard.commit(group, "", None, -1, offsets, outcomes.append)
        else:
            writer = BatchWriter(producer, 0)
            self.shard.commit_in_transaction(group, Committer(), writer, offsets, outcomes.append)
        self.log.refusing = False
        if refused:
            assert outcomes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
            return
        keys = frozenset((group, p) for p in partitions)
        self.oracle.commits.append(Commit(position, self.log.end_offset, keys, self.value, producer))

    async def marker(self, producer: int, *, committed: bool) -> None:
        if self.oracle.may_write(producer, self.log.high_watermark):
            position = self.log.end_offset
            self.log.end(self.coordinator, producer, committed=committed)
            self.oracle.markers.append(Marker(position, self.log.end_offset, producer, committed))

    async def advance(self, by: int) -> None:
        self.log.advance(self.log.high_watermark + by)

    async def delete_offsets(self, group: str, partition: int) -> None:
        position = len(self.log.batches)
        if group in self.shard.groups:
            self.shard.delete_offsets(group, [("t", partition)], lambda *_: None)
            pending = self.unstable() & {(group, partition)}
            assert pending <= self._note_tombstones(position)

    async def delete_group(self, group: str) -> None:
        position, pending = len(self.log.batches), {key for key in self.unstable() if key[0] == group}
        self.shard.delete_group(group, lambda _outcome: None)
        deleted = self._note_tombstones(position)
        assert pending <= deleted
        self.oracle.drop(deleted, self.log.high_watermark)

    async def expire(self) -> None:
        position, unstable = len(self.log.batches), self.unstable()
        self.clock.now_ms += WEEK_MS
        groups = {group for group, _ in unstable if group in self.shard.groups}
        self.shard.expire()
        expired = self._note_tombstones(position)
        assert not expired & unstable
        assert groups <= self.shard.groups.keys()
        self.oracle.drop(expired, self.log.high_watermark)

    def _note_tombstones(self, first: int) -> frozenset[Key]:
        keys: set[Key] = set()
        for batch in self.log.batches[first:]:
            for record in read_records(memoryview(batch)):
                assert isinstance(record, OffsetRecord)
                assert record.committed is None
                keys.add((record.group_id, record.partition[1]))
        if keys:
            position = next(read_records(memoryview(self.log.batches[first])))
            assert isinstance(position, OffsetRecord)
            self.oracle.tombstones.append(Tombstone(position.position, self.log.end_offset, frozenset(keys)))
        return frozenset(keys)

    async def move(self, keep: int, meanwhile: Sequence[tuple[int, bool]], *, counts: bool) -> None:
        """Move to another broker, which reads the log.

        `meanwhile`: markers that are written and count before the log is read.
        """
        self.coordinator.resigned(0)
        self.log.fail_over(keep)
        self.oracle.cut(self.log.end_offset)
        self.coordinator.elected(0, self.log)
        await asyncio.sleep(0)
        for producer, committed in meanwhile:
            await self.marker(producer, committed=committed)
            if counts:
                self.log.advance()
        await self.loaded()

    def unstable(self) -> set[Key]:
        keys = ((group, partition) for group in GROUPS for partition in PARTITIONS)
        return {key for key in keys if self.oracle.unstable(key, self.log.high_watermark)}

    async def check(self) -> None:
        self.shard.check()
        watermark = self.log.high_watermark
        for group in GROUPS:
            loose, stable = [await self.fetched(group, stable=stable) for stable in (False, True)]
            for partition in PARTITIONS:
                key = (group, partition)
                expected = (ErrorCode.NONE, self.oracle.visible(key, watermark))
                assert loose[partition] == expected, key
                assert stable[partition] == (
                    UNSTABLE if self.oracle.unstable(key, watermark) else expected
                ), key

    async def fetched(self, group: str, *, stable: bool) -> list[tuple[int, int]]:
        asked = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(PARTITIONS))],
            require_stable=stable,
        )
        answer = await self.handlers.offset_fetch(
            cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=7)), asked
        )
        return [(row.error_code, row.committed_offset) for row in answer.topics[0].partitions]


def step(name: str, **arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


groups, partitions, producers = map(st.sampled_from, (GROUPS, PARTITIONS, PRODUCERS))
some = st.lists(partitions, min_size=1, max_size=2, unique=True)
endings = st.lists(st.tuples(producers, st.booleans()), max_size=2, unique_by=lambda each: each[0])
rarely = st.integers(0, 9).map(lambda n: n == 9)
often = (
    step("commit", group=groups, partitions=some, producer=st.none(), refused=rarely),
    step("commit", group=groups, partitions=some, producer=producers, refused=rarely),
    step("marker", producer=producers, committed=st.booleans()),
    step("advance", by=st.integers(1, 9)),
)
steps = st.one_of(
    *often,
    *often,
    step("delete_offsets", group=groups, partition=partitions),
    step("delete_group", group=groups),
    step("expire"),
    step("move", keep=st.integers(0, 5), meanwhile=endings, counts=st.booleans()),
)


@settings(max_examples=500)
@given(st.lists(steps, max_size=25))
def test_offsets_are_what_the_log_says(history: list[Step]) -> None:
    async def scenario() -> None:
        play = Play()
        await play.start()
        for name, arguments in history:
            await getattr(play, name)(**arguments)
            await play.check()
        play.log.advance()
        await play.check()
        await play.move(0, (), counts=False)
        await play.check()
        play.coordinator.close()

    asyncio.run(scenario())
