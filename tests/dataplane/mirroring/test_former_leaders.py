"""A replaced leader of the source that does not know of its replacement yet: its answers cause no fault.

The same holds for a leader that has never heard of an epoch whose records were compacted away. Answers from before the
replacement may arrive late, and no longer count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.mirroring.copies import Copy
from ottla.dataplane.mirroring.fetching import SHORT_WAIT_MS, WAIT_MAX_MS, SourceFetcher
from ottla.dataplane.replication.throttle import Throttle
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.mirror_records import MirrorPartitionRecord, SourceEpoch
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.records.record_batch import parse_header
from ottla.protocol.wire.schema import ZERO_UUID
from tests.dataplane.log.batches import make_batch
from tests.dataplane.mirroring.test_rounds import HERE, SOURCE_BROKER, THERE, Quorum

DEADLINE_S = 60.0
COPIED = 20
"""Offset at which the copy ends: ten records of epoch 1, ten of epoch 3."""


class Leader:
    """A leader with the records of epoch 1 up to an offset, followed by those of later epochs.

    It does not know other epochs.
    """

    is_ready = True
    """True if it reports its log end, and serves its records."""
    error = ErrorCode.NONE
    """Error in its answers to fetches."""

    def __init__(self, end_of_1: int = 10, *later: tuple[int, int]) -> None:
        """Start with `later`: epochs and offsets, each of one record."""
        self._end_of_1 = end_of_1
        self._later = later
        self._end = later[-1][1] + 1 if later else end_of_1
        self.asked: list[str] = []
        self.waits: list[int] = []
        """Wait times of fetches at the end of the copy, in ms."""

    async def ask(self, broker_id: int, message: Any, **_: Any) -> Any:
        self.asked.append(type(message).__name__)
        match message:
            case OffsetForLeaderEpochRequest():
                end = EpochEndOffset(
                    partition=0,
                    leader_epoch=1,
                    end_offset=self._later[0][1] if self._later else self._end_of_1,
                )
                return OffsetForLeaderEpochResponse(
                    topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])]
                )
            case ListOffsetsRequest():
                partition = ListOffsetsPartitionResponse(partition_index=0, offset=self._end)
                if not self.is_ready:
                    partition.error_code, partition.offset = ErrorCode.OFFSET_NOT_AVAILABLE, -1
                return ListOffsetsResponse(
                    topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])]
                )
            case FetchRequest():
                wanted = message.topics[0].partitions[0].fetch_offset
                if wanted == COPIED:
                    self.waits.append(message.max_wait_ms)
                await asyncio.sleep(0.01)
                part = PartitionData(
                    partition_index=0,
                    error_code=self.error,
                    high_watermark=self._end,
                    records=self._from(wanted),
                )
                return FetchResponse(responses=[FetchableTopicResponse(topic_id=THERE, partitions=[part])])

    def _from(self, offset: int) -> bytes:
        if offset == COPIED or not self.is_ready:
            return b""
        batches = [(1, at) for at in range(self._end_of_1)] + list(self._later)
        return b"".join(
            bytes(make_batch(1, base_offset=at, leader_epoch=epoch)) for epoch, at in batches if offset <= at
        )


class World:
    def __init__(
        self, source_epoch: int, source_topic_id: bytes = THERE, source: Leader | None = None
    ) -> None:
        self.source, self.quorum = source or Leader(), Quorum()
        lineage = [SourceEpoch(epoch=1, start_offset=0), SourceEpoch(epoch=3, start_offset=10)]
        self.quorum.image.apply(MirrorPartitionRecord(topic_id=HERE, partition=0, lineage=lineage))
        log = SimpleNamespace(log_end_offset=COPIED, log_start_offset=0)
        partition = SimpleNamespace(
            topic="t", index=0, topic_id=HERE, leader=object(), leader_epoch=4, high_watermark=0, log=log
        )
        self.copy = Copy(cast(Any, partition), 4)
        self.copy.source_topic_id, self.copy.source_leader = source_topic_id, SOURCE_BROKER
        self.copy.source_epoch = source_epoch
        self.reports: list[Any] = []
        self.looks = 0
        self.moved = asyncio.Event()
        self.reported: Callable[[], None] = lambda: None
        """Callback while the quorum handles a report."""

    async def run_until_it_stops(self) -> None:
        """Run until the fetcher has sent a fetch or a report, or needs to know the leader."""
        image = self.quorum.image
        self.moved.clear()
        fetcher = SourceFetcher(
            SOURCE_BROKER,
            image.mirrors.by_name["m"],
            cast(Any, self.source),
            lambda: image,
            lambda _: [self.copy],
            self._report,
            Throttle(asyncio.get_running_loop().time),
            lambda _: None,
            self._look_again,
            self._ask_cuts,
        )
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self.moved.wait()
        finally:
            fetcher.close()

    async def _report(self, partitions: Sequence[Any]) -> None:
        self.reports += partitions
        self.reported()
        self.moved.set()

    def _look_again(self) -> None:
        self.looks += 1
        self.moved.set()

    async def _ask_cuts(self, _broker: int, _copies: Sequence[Copy]) -> None:
        self.moved.set()


async def test_the_source_answers_soon_while_nobody_knows_where_it_ends() -> None:
    world = World(source_epoch=3, source=Leader(COPIED))
    world.copy.checked_epoch = 3
    await world.run_until_it_stops()
    assert world.source.waits[0] == SHORT_WAIT_MS
    await world.run_until_it_stops()
    assert world.source.waits[-1] == WAIT_MAX_MS


async def test_who_was_replaced_is_not_asked_and_the_source_is_looked_at_again() -> None:
    world = World(source_epoch=1)
    await world.run_until_it_stops()
    assert (world.source.asked, world.reports, world.looks) == ([], [], 1)
    assert "replaced" in world.copy.trouble


@pytest.mark.parametrize(
    ("epoch", "topic_id"),
    [
        pytest.param(4, THERE, id="a-later-leader"),
        pytest.param(1, ZERO_UUID, id="without-ids-another-topic-may-have-the-name"),
    ],
)
async def test_who_leads_may_tell_of_a_loss(epoch: int, topic_id: bytes) -> None:
    world = World(epoch, topic_id)
    await world.run_until_it_stops()
    assert world.source.asked[0] == "OffsetForLeaderEpochRequest"
    assert (world.reports[0].fault_first, world.reports[0].fault_end) == (10, COPIED)


async def test_a_leader_that_knows_an_epoch_no_more_after_compaction_tells_of_no_loss() -> None:
    world = World(7, source=Leader(10, (7, 30)))
    await world.run_until_it_stops()
    assert world.reports == []
    assert (world.copy.checked_epoch, world.copy.trouble) == (7, "")
    assert world.source.waits, "the copy does not go on"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(Leader(25, (7, 30)), id="records-of-an-older-epoch"),
        pytest.param(Leader(10, (7, 12), (7, 30)), id="records-of-a-later-epoch"),
    ],
)
async def test_other_records_at_offsets_that_were_copied_are_a_loss(source: Leader) -> None:
    world = World(7, source=source)
    await world.run_until_it_stops()
    (report,) = world.reports
    assert (report.fault_first, report.fault_end) == (10, COPIED)


async def test_a_leader_that_shows_nothing_yet_is_asked_again() -> None:
    world = World(7, source=Leader(10, (7, 30)))
    world.source.is_ready = False
    await world.run_until_it_stops()
    assert (world.looks, world.reports) == (1, [])
    assert "OFFSET_NOT_AVAILABLE" in world.copy.trouble
    world.source.is_ready, world.copy.not_before_s = True, 0.0
    await world.run_until_it_stops()
    assert (world.copy.checked_epoch, world.reports) == (7, [])


ANOTHER = SOURCE_BROKER + 1


class ReplacedMeanwhile(Leader):
    """A leader that is replaced, in epoch 4, before its answer to one kind of request arrives.

    Its copy may have advanced meanwhile.
    """

    def __init__(self, question: str, *, with_records: bool = False) -> None:
        super().__init__(COPIED)
        self._question = question
        self._with_records = with_records
        self.replaced: Callable[[], None] = lambda: None

    async def ask(self, broker_id: int, message: Any, **asked: Any) -> Any:
        answer = await super().ask(broker_id, message, **asked)
        if type(message).__name__ == self._question:
            self.replaced()
            self.replaced = lambda: None
        return answer

    def _from(self, offset: int) -> bytes:
        return bytes(make_batch(1, base_offset=offset, leader_epoch=3)) if self._with_records else b""


class Replaced(World):
    """A world in which another broker leads from epoch 3 on."""

    def __init__(self, source: ReplacedMeanwhile) -> None:
        super().__init__(3, source=source)
        source.replaced = self.replace
        self.appended: list[int] = []
        self.copy.partition.append_copied = self._append  # type: ignore[method-assign]

    def replace(self) -> None:
        self.copy.source_leader, self.copy.source_epoch = ANOTHER, 4

    def _append(self, batches: memoryview) -> None:
        self.appended.append(parse_header(batches).base_offset)


async def test_records_that_come_late_from_a_former_leader_are_not_copied() -> None:
    """Seed 2922 of the two clusters: the copy had got the records from the next leader, and stopped with a fault.

    They may also differ from that leader's records, unnoticed.
    """
    world = Replaced(ReplacedMeanwhile("FetchRequest", with_records=True))
    world.copy.checked_epoch = 3
    await world.run_until_it_stops()
    assert (world.appended, world.reports) == ([], [])
    assert (world.copy.source_high_watermark, world.copy.trouble) == (-1, "")


async def test_records_of_a_former_leader_are_not_copied_once_it_is_replaced_while_the_quorum_hears_of_them() -> (
    None
):
    world = Replaced(ReplacedMeanwhile("nothing", with_records=True))
    world.quorum.image.apply(
        MirrorPartitionRecord(topic_id=HERE, partition=0, lineage=[SourceEpoch(epoch=1, start_offset=0)])
    )
    world.copy.checked_epoch = 3
    world.reported = world.replace
    await world.run_until_it_stops()
    assert [report.epochs for report in world.reports] == [[SourceEpoch(epoch=3, start_offset=COPIED)]]
    assert world.appended == []


@pytest.mark.parametrize("end_of_1", [10, COPIED])
async def test_what_a_former_leader_has_told_of_epochs_is_asked_of_the_next(end_of_1: int) -> None:
    """This holds whether the answer agrees with the copy or not."""
    source = ReplacedMeanwhile("OffsetForLeaderEpochRequest")
    source._end_of_1 = end_of_1
    world = Replaced(source)
    await world.run_until_it_stops()
    assert world.reports == []
    assert world.copy.checked_epoch != 4


async def test_where_a_former_leader_ends_is_no_fault() -> None:
    source = ReplacedMeanwhile("ListOffsetsRequest")
    source._end, source.error = 10, ErrorCode.OFFSET_OUT_OF_RANGE
    world = Replaced(source)
    world.copy.checked_epoch = 3
    await world.run_until_it_stops()
    assert (world.reports, world.copy.trouble) == ([], "")
