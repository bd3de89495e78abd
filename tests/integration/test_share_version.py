"""The level of `share.version` in a cluster that was formed by a program without share groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import SHARE, SHARE_STATE_TOPIC
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    NewOffset,
    NewTopicOffsets,
)
from ottla.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.wire.schema import Message
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.raw_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SHARE_APIS = {76, 77, 78, 79, 90, 91, 92}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"share.coordinator.state.topic.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    with running_cluster(
        tmp_path_factory.mktemp("share-version"), quorum=1, brokers=1, settings=settings
    ) as running:
        yield running


def test_share_groups_are_there_from_the_level_on(cluster: RunningCluster) -> None:
    port = int(cluster.bootstrap.rpartition(":")[2])

    def ask(request: Message, version: int) -> Any:
        peer = Peer(port)
        try:
            return peer.ask(request, version, 20)
        finally:
            peer.close()

    def update(level: int, kind: int) -> tuple[ErrorCode, str]:
        wanted = FeatureUpdateKey(feature=SHARE, max_version_level=level, upgrade_type=kind)
        answer = ask(UpdateFeaturesRequest(timeout_ms=20_000, feature_updates=[wanted]), 2)
        return ErrorCode(answer.error_code), answer.error_message or ""

    def listed() -> set[int]:
        return {api.api_key for api in ask(ApiVersionsRequest(), 0).api_keys} & SHARE_APIS

    def joined(group: str) -> ErrorCode:
        join = ShareGroupHeartbeatRequest(group_id=group, member_id="m", subscribed_topic_names=["tasks"])
        return ErrorCode(ask(join, 1).error_code)

    def altered(group: str) -> ErrorCode:
        offsets = NewTopicOffsets(topic_name="tasks", partitions=[NewOffset(start_offset=0)])
        answer = ask(AlterShareGroupOffsetsRequest(group_id=group, topics=[offsets]), 0)
        return ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)

    made = CreatableTopic(name="tasks", num_partitions=1, replication_factor=1)
    ask(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 7)
    ask(FindCoordinatorRequest(key="g"), 3)
    wait_until(lambda: joined("g") is ErrorCode.NONE, "the coordinator of groups")
    wait_until(lambda: altered("empty") is ErrorCode.NONE, "a state of a share-partition")

    code, said = update(0, SAFE_DOWNGRADE)
    assert code is ErrorCode.INVALID_UPDATE_VERSION
    assert SHARE_STATE_TOPIC in said
    assert listed() == SHARE_APIS

    assert update(0, UNSAFE_DOWNGRADE) == (ErrorCode.NONE, "")
    wait_until(lambda: listed() == set(), "the lower level at the broker")
    assert joined("g") is altered("empty") is ErrorCode.UNSUPPORTED_VERSION

    assert update(1, UPGRADE) == (ErrorCode.NONE, "")
    wait_until(lambda: listed() == SHARE_APIS, "the level at the broker")
    assert joined("after") is altered("empty") is ErrorCode.NONE

    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=SHARE_STATE_TOPIC)], timeout_ms=20_000)
    assert ask(gone, 6).responses[0].error_code == 0
    assert update(0, SAFE_DOWNGRADE) == (ErrorCode.NONE, ""), "no state of a share group is left"
