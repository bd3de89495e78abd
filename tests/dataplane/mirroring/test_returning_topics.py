"""The ids of copies whose source has copied them from elsewhere, perhaps from this cluster: its topic was deleted."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.dataplane.mirroring.topic_list import TopicList
from ottla.dataplane.patterns import compile_pattern
from ottla.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.failback import DescribeLineagesRequest, DescribeLineagesResponse, LineageTopic
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.mirror_commands import FollowTopics, FollowTopicsResult
from ottla.protocol.messages.topic_commands import DeleteTopics, DeleteTopicsResult
from ottla.protocol.wire.schema import ZERO_UUID
from tests.metadata_quorum.state.harness import topic
from tests.metadata_quorum.state.mirrored import Mirrors

EAST = b"east" + bytes(12)


class Source:
    """A cluster of one broker with the topic `t`."""

    def __init__(self, topic_id: bytes, source_topic_id: bytes, *, is_copy: bool = False) -> None:
        self._topic_id = topic_id
        self._lineage = LineageTopic(
            name="t",
            topic_id=topic_id,
            partition_count=1,
            is_copy=is_copy,
            mirror="west" if is_copy else "",
            source_cluster_id="here" if is_copy else "",
            source_topic_id=source_topic_id,
        )

    @property
    def everything(self) -> MetadataResponse:
        part = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1])
        described = MetadataResponseTopic(name="t", topic_id=self._topic_id, partitions=[part])
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1)], topics=[described])

    async def ask(self, _broker_id: int, message: Any) -> Any:
        if isinstance(message, DescribeLineagesRequest):
            return DescribeLineagesResponse(topics=[self._lineage])
        assert isinstance(message, DescribeConfigsRequest)
        results = [
            DescribeConfigsResult(resource_type=2, resource_name=asked.resource_name)
            for asked in message.resources
        ]
        return DescribeConfigsResponse(results=results)


class West(Mirrors):
    """The quorum of a cluster with a mirror of the source."""

    @property
    def image(self) -> Any:
        return self.machine.image

    async def submit(self, command: FollowTopics) -> FollowTopicsResult:
        return self.do(command, FollowTopicsResult)

    async def look(self, source: Source) -> TopicList:
        """Bring the copies up to date, and return the list of topics."""
        topics = TopicList(
            self.image.mirrors.by_name["m"],
            cast(Any, source),
            cast(Any, self),
            compile_pattern(".*", "topics"),
            1,
            lambda: 1,
        )
        await topics.bring_up_to_date(source.everything)
        return topics


@pytest.fixture
def west() -> West:
    west = West()
    west.create_mirror()
    return west


async def test_a_deleted_topic_that_comes_back_from_its_copy_has_another_id(west: West) -> None:
    """Readers that keep positions by topic id may be ahead of the copy. A broker that was away may have the log."""
    west.create(topic("t"))
    former = west.topic_id("t")
    assert not west.do(DeleteTopics(names=["t"]), DeleteTopicsResult).topics[0].error_code
    source = Source(former, former)
    topics = await west.look(source)
    assert west.topic_id("t") not in (former, ZERO_UUID)
    assert west.image.mirrors.topics[west.topic_id("t")].source_topic_id == former, "it is fetched by this id"
    assert topics.has_all(source.everything)
    offset = west.image.offset
    await west.look(source)
    assert west.image.offset == offset, "nothing is new"


@pytest.mark.parametrize("source_topic_id", [ZERO_UUID, b"else" + bytes(12)], ids=["written", "renamed"])
async def test_a_topic_whose_id_the_source_has_made_keeps_it(west: West, source_topic_id: bytes) -> None:
    await west.look(Source(EAST, source_topic_id))
    assert west.topic_id("t") == EAST
    assert west.image.mirrors.topics[EAST].source_topic_id == EAST


async def test_a_copy_of_this_cluster_is_no_topic_to_copy(west: West) -> None:
    topics = await west.look(Source(EAST, EAST, is_copy=True))
    assert not west.image.topics
    assert "it is itself a copy of this cluster, by the source's mirror 'west'" in topics.skipped["t"]
