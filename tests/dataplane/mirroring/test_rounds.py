"""Rounds of a mirror on a broker: its requests to the source, their times, and accepted answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.mirroring.copies import Copy
from ottla.dataplane.mirroring.rounds import HAS_NO_CUTS, CutRounds
from ottla.dataplane.mirroring.topic_list import TopicList
from ottla.dataplane.patterns import compile_pattern
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_cuts import ROUNDS_MAX, cut_reached_record
from ottla.protocol.cluster.mirror_versions import mirrored_versions
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import MIRROR
from ottla.protocol.messages.cuts import (
    AppVersion,
    CutOffset,
    CutOffsetsTopic,
    FindCutRequest,
    FindCutResponse,
    ListAppVersionsRequest,
    ListAppVersionsResponse,
    ListCutOffsetsRequest,
    ListCutOffsetsResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.metadata_records import FeatureLevelRecord, PartitionRecord, TopicRecord
from ottla.protocol.messages.mirror_commands import AnnounceMirrorCut, ReachedCut, ReportMirrorCuts
from ottla.protocol.messages.mirror_records import (
    MirrorCutRecord,
    MirrorRecord,
    MirrorTopicRecord,
    MirrorVersionsRecord,
)

HERE, THERE = b"h" * 16, b"s" * 16
BROKER, SOURCE_BROKER = 7, 3


class Source:
    """A source with prepared answers that remembers the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []
        self.failure: KafkaError | None = None
        self.partitions = 1
        self.cluster_id = "there"
        self.offsets = {0: 100}
        self.cut = 5
        self.asked_for_metadata: Callable[[], None] = lambda: None
        self.versions = ListAppVersionsResponse(
            is_whole=True, next_offset=50, versions=[AppVersion(transactional_id="job", app_version=7)]
        )

    async def ask(self, broker_id: int, message: Any, **_: Any) -> Any:
        self.asked.append((broker_id, message))
        if self.failure is not None:
            raise self.failure
        match message:
            case FindCutRequest():
                return FindCutResponse(cut=self.cut, metadata_offset=50)
            case ListAppVersionsRequest():
                return self.versions
            case MetadataRequest():
                self.asked_for_metadata()
                parts = [MetadataResponsePartition(partition_index=index) for index in range(self.partitions)]
                topic = MetadataResponseTopic(name="t", topic_id=THERE, partitions=parts)
                return MetadataResponse(cluster_id=self.cluster_id, topics=[topic])
            case ListCutOffsetsRequest():
                offsets = [
                    CutOffset(partition_index=index, offset=offset)
                    if offset >= 0
                    else CutOffset(partition_index=index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    for index, offset in self.offsets.items()
                ]
                return ListCutOffsetsResponse(topics=[CutOffsetsTopic(topic_id=THERE, partitions=offsets)])

    def kinds(self) -> list[str]:
        return [type(message).__name__ for _, message in self.asked]


class Quorum:
    """An image, and the submitted commands."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.submitted: list[Any] = []
        for record in (
            FeatureLevelRecord(feature=MIRROR, level=2),
            MirrorRecord(name="m", source_cluster_id="there", topics="t", phase=1),
            TopicRecord(topic_id=HERE, name="t"),
            MirrorTopicRecord(topic_id=HERE, mirror="m", source_topic_id=THERE),
            PartitionRecord(topic_id=HERE, partition=0, replicas=[BROKER], isr=[BROKER], leader=BROKER),
        ):
            self.image.apply(record)

    async def submit(self, command: Any) -> None:
        self.submitted.append(command)


class World:
    def __init__(self) -> None:
        self.source, self.quorum = Source(), Quorum()
        mirror = self.quorum.image.mirrors.by_name["m"]
        source, quorum = cast(Any, self.source), cast(Any, self.quorum)
        topics = TopicList(mirror, source, quorum, compile_pattern("t", "topics"), 1, lambda: 1)
        self.topics = topics
        self.rounds = CutRounds(BROKER, mirror, source, quorum, topics)
        self.partition = SimpleNamespace(
            topic="t", index=0, topic_id=HERE, leader=object(), leader_epoch=4, high_watermark=0
        )
        self.copy = Copy(cast(Any, self.partition), 4)
        self.copy.source_topic_id, self.copy.source_leader, self.copy.source_epoch = THERE, SOURCE_BROKER, 9

    def begin(self, number: int, cut: int = 5) -> None:
        self.quorum.image.apply(MirrorCutRecord(mirror="m", number=number, cut=cut, metadata_offset=50))

    async def ask(self) -> None:
        await self.rounds.ask(SOURCE_BROKER, [self.copy])

    async def told(self) -> Sequence[ReachedCut]:
        """Return the reports that the quorum gets now."""
        self.quorum.submitted.clear()
        await self.rounds.tell([self.copy])
        assert all(isinstance(report, ReportMirrorCuts) for report in self.quorum.submitted)
        return [part for report in self.quorum.submitted for part in report.partitions]


@pytest.fixture
def world() -> World:
    return World()


# Announcing


async def test_a_round_is_announced_once_the_source_has_nothing_else_to_be_copied(world: World) -> None:
    await world.rounds.announce([SOURCE_BROKER])
    assert world.source.kinds() == ["FindCutRequest", "MetadataRequest", "ListAppVersionsRequest"], (
        "later records are after the cut"
    )
    assert {broker for broker, _ in world.source.asked} == {SOURCE_BROKER}
    (command,) = world.quorum.submitted
    assert isinstance(command, AnnounceMirrorCut)
    assert (command.mirror, command.cut, command.metadata_offset, command.copies) == ("m", 5, 50, 1)
    assert not command.has_offsets
    assert world.rounds.trouble == ""


async def test_a_round_has_offsets_if_they_were_looked_for_before_its_copies_were(world: World) -> None:
    world.topics.has_offsets = True
    await world.rounds.announce([SOURCE_BROKER])
    world.topics.has_offsets = False
    world.source.asked_for_metadata = lambda: setattr(world.topics, "has_offsets", True)
    await world.rounds.announce([SOURCE_BROKER])
    assert [report.has_offsets for report in world.quorum.submitted] == [True, False]


async def test_a_round_is_announced_with_what_the_source_has_told_of_application_versions(
    world: World,
) -> None:
    await world.rounds.announce([SOURCE_BROKER])
    _, asked = world.source.asked[-1]
    assert (asked.cut, asked.told_offset) == (5, -1)
    (command,) = world.quorum.submitted
    assert (command.told_offset, command.next_offset, command.versions_are_whole) == (-1, 50, True)
    assert command.versions == mirrored_versions([("job", 7)])
    world.quorum.image.apply(
        MirrorVersionsRecord(mirror="m", cut=5, is_whole=True, next_offset=50, versions=command.versions)
    )
    await world.rounds.announce([SOURCE_BROKER])
    _, asked = world.source.asked[-1]
    assert asked.told_offset == 50, "only what has changed since"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "needs DESCRIBE on the source's cluster"),
        (ErrorCode.UNSUPPORTED_VERSION, "of an earlier version of Ottla"),
        (ErrorCode.OFFSET_NOT_AVAILABLE, "find a newer cut"),
    ],
)
async def test_without_application_versions_there_is_no_round(
    world: World, code: ErrorCode, says: str
) -> None:
    """A job would otherwise repeat its writes in this cluster."""
    world.source.versions = ListAppVersionsResponse(error_code=code, error_message="find a newer cut")
    await world.rounds.announce([SOURCE_BROKER])
    assert not world.quorum.submitted
    assert says in world.rounds.trouble


async def test_no_round_is_announced_while_something_is_not_copied_yet(world: World) -> None:
    world.source.partitions = 2
    await world.rounds.announce([SOURCE_BROKER])
    assert not world.quorum.submitted
    assert "not copied yet" in world.rounds.trouble
    world.topics.skipped["t"] = "its name is taken"
    await world.rounds.announce([SOURCE_BROKER])
    assert world.quorum.submitted, "an uncopyable partition delays no other"


async def test_no_round_is_announced_of_another_cluster(world: World) -> None:
    world.source.cluster_id = "elsewhere"
    await world.rounds.announce([SOURCE_BROKER])
    assert not world.quorum.submitted


async def test_a_source_that_knows_no_cuts_says_so(world: World) -> None:
    world.source.failure = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "no API 20003")
    await world.rounds.announce([SOURCE_BROKER])
    assert world.rounds.trouble == HAS_NO_CUTS
    world.source.failure = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "slow")
    await world.rounds.announce([SOURCE_BROKER])
    assert world.rounds.trouble == "slow"
    world.source.failure = None
    await world.rounds.announce([SOURCE_BROKER])
    assert world.rounds.trouble == ""


async def test_nothing_is_asked_while_there_is_no_room_for_a_round_or_no_level(world: World) -> None:
    for number in range(ROUNDS_MAX):
        world.begin(number)
    await world.rounds.announce([SOURCE_BROKER])
    assert not world.source.asked
    below = World()
    below.quorum.image.features[MIRROR] = 1
    await below.rounds.announce([SOURCE_BROKER])
    assert not below.source.asked
    assert "below level 2" in below.rounds.trouble


# Reports of the source's leaders


async def test_a_cut_counts_once_something_was_fetched_before_and_after_it_was_told(world: World) -> None:
    world.begin(0)
    await world.ask()
    assert not world.source.asked, "nothing was fetched yet: who knows whether the logs agree"
    world.copy.fetched_in(9)
    await world.ask()
    world.partition.high_watermark = 100
    assert not await world.told()
    world.copy.fetched_in(9)
    (reached,) = await world.told()
    assert (reached.number, reached.offset, reached.leader_epoch, reached.partition) == (0, 100, 4, 0)
    assert not await world.told(), "once"


async def test_a_cut_does_not_count_if_the_source_s_leader_changed_meanwhile(world: World) -> None:
    world.begin(0)
    world.copy.fetched_in(9)
    await world.ask()
    world.partition.high_watermark = 100
    world.copy.source_epoch = 10
    world.copy.fetched_in(9)
    assert not await world.told(), "an answer of the former leader came late"
    world.copy.fetched_in(10)
    assert not await world.told()
    await world.ask()
    world.copy.fetched_in(10)
    assert len(await world.told()) == 1


async def test_a_cut_is_reached_once_every_replica_in_sync_has_all_below(world: World) -> None:
    world.begin(0)
    world.copy.fetched_in(9)
    await world.ask()
    world.copy.fetched_in(9)
    for watermark, expected in ((0, 0), (99, 0), (100, 1)):
        world.partition.high_watermark = watermark
        assert len(await world.told()) == expected


async def test_who_leads_no_more_tells_nothing(world: World) -> None:
    world.begin(0)
    world.copy.fetched_in(9)
    await world.ask()
    world.copy.fetched_in(9)
    world.partition.high_watermark = 100
    world.partition.leader_epoch = 5
    assert not await world.told()


async def test_only_what_is_not_known_is_asked(world: World) -> None:
    world.begin(0)
    world.begin(1, cut=6)
    world.quorum.image.apply(cut_reached_record("m", 0, {(HERE, 0): 50}))
    world.copy.fetched_in(9)
    await world.ask()
    await world.ask()
    ((broker, request),) = world.source.asked
    assert broker == SOURCE_BROKER
    assert (request.cut, request.metadata_offset) == (6, 50)
    assert [(topic.topic_id, topic.partitions) for topic in request.topics] == [(THERE, [0])]


async def test_a_leader_that_refuses_is_asked_again_later(world: World) -> None:
    world.begin(0)
    world.copy.fetched_in(9)
    world.source.offsets = {0: -1}
    await world.ask()
    await world.ask()
    assert len(world.source.asked) == 1
    assert world.copy.cuts == {}
