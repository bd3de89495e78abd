"""The admin client's failback request: it includes the log ends that all brokers report, queried each time."""

from __future__ import annotations

import pytest

from ottla import TopicPartition
from ottla.client.admin import FailbackPartition
from ottla.client.failures import VersionUnsupported
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.failback import (
    DescribedLineage,
    DescribeLineagesRequest,
    FailBackMirrorRequest,
    FailedBackPartition,
    FailedBackTopic,
    LineageTopic,
)
from ottla.protocol.messages.mirror_records import MirrorOption

from .fake_mirrors import Mirroring
from .test_mirror_admin import mirroring


def logs(cluster: Mirroring) -> list[LineageTopic]:
    """Return the logs of `t`, of which each broker leads one partition."""
    cluster.lineages = {
        broker: [
            LineageTopic(
                name="t",
                topic_id=b"t" * 16,
                partition_count=2,
                partitions=[DescribedLineage(partition=broker, leader_epoch=3, log_end_offset=9)],
            )
        ]
        for broker in (0, 1)
    }
    return [topic for broker in (0, 1) for topic in cluster.lineages[broker]]


async def test_what_all_brokers_tell_of_their_logs_goes_along() -> None:
    async with mirroring(2) as (cluster, admin):
        sent = logs(cluster)
        cluster.failed_back = [
            FailedBackTopic(
                name="t",
                partitions=[FailedBackPartition(partition=0, common_offset=5, log_end_offset=9, lost=4)],
            ),
            FailedBackTopic(name="u", error_code=42, error_message="the source has no topic 'u'"),
        ]
        found = await admin.failback_mirror(
            "m",
            source="there:9092",
            topics="t.*",
            groups="g",
            options={"security.protocol": "SSL"},
            discard=True,
            validate_only=True,
        )
        (request,) = cluster.asked
        assert isinstance(request, FailBackMirrorRequest)
        assert sorted(request.logs, key=lambda topic: topic.partitions[0].partition) == sent
        request.logs = []
        assert request == FailBackMirrorRequest(
            name="m",
            bootstrap_servers="there:9092",
            topics="t.*",
            groups="g",
            options=[MirrorOption(name="security_protocol", value="SSL")],
            discards=True,
            validate_only=True,
        )
    assert (found.source_cluster_id, found.lost, found.needs_discard) == ("there", 4, True)
    able, refused = found.topics
    assert able.partitions == (FailbackPartition(0, 5, 9, 4),)
    assert able.refusal is None
    assert refused.refusal is not None
    assert "no topic 'u'" in refused.refusal.message


async def test_it_is_counted_anew_when_it_is_tried_again() -> None:
    async with mirroring(2) as (cluster, admin):
        logs(cluster)
        cluster.refusals = [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await admin.failback_mirror("m", source="there:9092")
        assert len(cluster.asked) == 2
        assert all(
            len(request.logs) == 2 for request in cluster.asked if isinstance(request, FailBackMirrorRequest)
        )


async def test_what_would_be_lost_is_told_and_not_asked_for_again() -> None:
    async with mirroring(2) as (cluster, admin):
        logs(cluster)
        cluster.refusals = [ErrorCode.POLICY_VIOLATION]
        with pytest.raises(KafkaError, match="for a reason") as refusal:
            await admin.failback_mirror("m", source="there:9092")
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION
        assert len(cluster.asked) == 1


async def test_a_cluster_that_knows_no_failback_is_told_from_one_that_fails() -> None:
    async with mirroring(1) as (cluster, admin):
        cluster.served.remove(DescribeLineagesRequest)
        with pytest.raises(VersionUnsupported, match="DescribeLineages"):
            await admin.failback_mirror("m", source="there:9092")


async def test_the_ends_of_copied_records_come_from_the_leaders() -> None:
    async with mirroring(2) as (cluster, admin):
        log_ends = {"log_start_offset": 3, "log_end_offset": 9}

        def told(promoted: int, partition: int, *, is_copy: bool = False, error: int = 0) -> LineageTopic:
            log = DescribedLineage(
                partition=partition, error_code=error, promoted_offset=promoted, **log_ends
            )
            return LineageTopic(name="t", topic_id=b"t" * 16, is_copy=is_copy, partitions=[log])

        cluster.lineages = {0: [told(7, 0)], 1: [told(-1, 1)]}
        trimmed = {TopicPartition("t", 0): 7, TopicPartition("t", 1): 3}
        assert await admin.copied_ends(["t"]) == trimmed
        cluster.lineages = {0: [told(0, 0)], 1: [told(0, 1, is_copy=True)]}
        assert await admin.copied_ends(["t"]) == {TopicPartition("t", 0): 0, TopicPartition("t", 1): 9}
        cluster.lineages = {0: [told(0, 0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]}
        with pytest.raises(KafkaError, match="t-0"):
            await admin.copied_ends(["t"])
