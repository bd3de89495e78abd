"""The admin client's methods for share groups, with a real cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla import Admin, KafkaError, Producer, ShareConsumer, ShareGroupOffset, TopicPartition
from ottla.client.admin import GROUP_RESOURCE
from ottla.protocol.errors import ErrorCode
from ottla.testing import LocalCluster

pytestmark = pytest.mark.cluster

FIRST, SECOND = TopicPartition("tasks", 0), TopicPartition("tasks", 1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"share.coordinator.state.topic.num.partitions": "3"}
    with LocalCluster(settings=settings) as running:
        running.create_topic("tasks", partitions=2)
        yield running


async def test_a_share_group_is_described_moved_and_deleted(cluster: LocalCluster) -> None:
    where = {"bootstrap_servers": cluster.bootstrap_servers}
    async with Producer(**where) as producer:
        for number in range(10):
            await producer.send("tasks", b"%d" % number, partition=0)
    async with asyncio.timeout(60), Admin(**where) as admin:
        assert await admin.share_group_offsets("mailers") == {}
        await admin.alter_configs(GROUP_RESOURCE, "mailers", {"share.auto.offset.reset": "earliest"})
        async with ShareConsumer("tasks", group_id="mailers", **where) as queue:
            for _ in range(4):
                await (await queue.getone()).accept()
            (group,) = await admin.describe_groups(["mailers"])
            assert (group.type, group.state) == ("share", "Stable")
            (member,) = group.members
            assert set(member.partitions) == {FIRST, SECOND}
            with pytest.raises(KafkaError) as caught:
                await admin.alter_share_group_offsets("mailers", {FIRST: 0})
            assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
        found = await admin.share_group_offsets("mailers")
        assert found[FIRST] == ShareGroupOffset(4, 6)
        moved = await admin.alter_share_group_offsets("mailers", {FIRST: 8, TopicPartition("no", 0): 1})
        assert moved[FIRST] is None
        error = moved[TopicPartition("no", 0)]
        assert error is not None
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await admin.share_group_offsets("mailers"))[FIRST] == ShareGroupOffset(8, 2)
        async with ShareConsumer("tasks", group_id="mailers", **where) as queue:
            task = await queue.getone()
            assert (task.offset, task.delivery_count) == (8, 1)
            task.release()
        assert await admin.delete_share_group_offsets("mailers", ["tasks"]) == {"tasks": None}
        assert FIRST not in await admin.share_group_offsets("mailers")
        listed = {group.group_id: group.type for group in await admin.list_groups()}
        assert listed["mailers"] == "share"
        assert await admin.delete_groups(["mailers"]) == {"mailers": None}
        with pytest.raises(KafkaError) as missing:
            await admin.describe_groups(["mailers"])
        assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND
