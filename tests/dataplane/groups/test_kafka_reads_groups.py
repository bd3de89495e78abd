"""Kafka's own tool reads the records of groups that we write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.dataplane.coordinated_log.batches import KeyValue, batch_of
from ottla.dataplane.groups.consumer.group import ConsumerGroup
from ottla.dataplane.groups.consumer.member import ClassicSide
from ottla.dataplane.groups.consumer.records import consumer_record
from ottla.dataplane.groups.limits import ConsumerLimits
from ottla.dataplane.groups.share.records import share_record
from ottla.dataplane.log import LogConfig, PartitionLog
from tests import java
from tests.dataplane.groups import test_share_group
from tests.dataplane.groups.test_consumer_group import Topics, beat, join

pytestmark = [pytest.mark.java, java.needs_java, pytest.mark.timeout(120)]


def dumped(records: Sequence[KeyValue], tmp_path: Path) -> list[tuple[Any, Any]]:
    """Return the keys and values that Kafka's tool finds in a log with these records; None for a tombstone."""
    folder = tmp_path / "__consumer_offsets-0"
    log = PartitionLog.open(folder, LogConfig(), clean_shutdown=True, recovery_point=0, now_ms=0)
    log.produced.append(memoryview(batch_of(records, 1)), 0, now_ms=1)
    log.close(clean=True)
    (file,) = folder.glob("*.log")
    text = java.run(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--files", str(file), "--deep-iteration", "--print-data-log", "--offsets-decoder"),
    )
    found: list[tuple[Any, Any]] = []
    for line in text.splitlines():
        if line.startswith("|") and " key: " in line:
            key, _, payload = line.partition(" key: ")[2].partition(" payload: ")
            found.append((json.loads(key), None if payload == "<DELETE>" else json.loads(payload)))
    return found


def test_kafka_reads_our_consumer_groups(tmp_path: Path) -> None:
    topics = Topics(a=3, b=1)
    group = ConsumerGroup("g", ConsumerLimits(), topics.catalog)
    first = group.heartbeat(join("m1", "a", "b"), 0)
    group.heartbeat(join("m2", regex="a.*"), 0)
    group.heartbeat(beat(first), 0)
    group.members["m2"].principal = "User:ann"
    group.members["m2"].classic = ClassicSide(7_000, (("range", b"meta"),))
    group.note_all()
    records = [consumer_record(group, change) for change in group.take_changes()]
    group.bury()
    records += [consumer_record(group, change) for change in group.take_changes()]
    found = dumped(records, tmp_path)
    assert len(found) == len(records), found
    said = {
        (str(each["type"]), each["data"].get("memberId", "")): payload
        for each, payload in found
        if payload is not None
    }
    assert said["3", ""]["data"]["epoch"] == 2
    assert said["5", "m1"]["data"]["subscribedTopicNames"] == ["a", "b"]
    assert said["5", "m2"]["data"]["classicMemberMetadata"]["sessionTimeoutMs"] == 7_000
    assert said["6", ""]["data"]["assignmentEpoch"] == 2
    assert {"8", "7"} <= {kind for kind, _ in said}
    assert said["8", "m1"]["data"]["partitionsPendingRevocation"]
    assert said["8", "m1"]["data"]["state"] == 1, "UNREVOKED_PARTITIONS in MemberState of Kafka 4.4"


def test_kafka_reads_our_share_groups(tmp_path: Path) -> None:
    topics = Topics(a=2, b=1, c=1)
    group = test_share_group.stable(topics, "m1", "m2", subscribed=("a", "b"))
    group.heartbeat(test_share_group.join("m3", "c"), 0)
    group.ask_for_states()
    group.states.begin_deletion([topics.image.topics["b"].id], {})
    records = [share_record(group, change) for change in group.take_changes()]
    group.bury()
    records += [share_record(group, change) for change in group.take_changes()]
    found = dumped(records, tmp_path)
    assert len(found) == len(records), found
    said = {
        (str(key["type"]), key["data"].get("memberId", "")): payload["data"]
        for key, payload in found
        if payload is not None
    }
    assert {kind for kind, _ in said} == {"10", "11", "12", "13", "14", "15"}
    assert said["10", "m1"]["subscribedTopicNames"] == ["a", "b"]
    assert said["11", ""]["epoch"] == said["12", ""]["assignmentEpoch"] == said["14", "m3"]["memberEpoch"]
    assert said["14", "m1"]["state"] == 0
    assert [(t["topicName"], t["partitions"]) for t in said["15", ""]["initializedTopics"]] == [("a", [0, 1])]
    assert [(t["topicName"], t["partitions"]) for t in said["15", ""]["initializingTopics"]] == [("c", [0])]
    assert [t["topicName"] for t in said["15", ""]["deletingTopics"]] == ["b"]
    assert [payload for _, payload in found[-9:]] == [None] * 9
