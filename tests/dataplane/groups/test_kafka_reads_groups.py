"""Kafka's own tool reads the records of groups that we write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.dataplane.groups.consumer.group import ConsumerGroup
from ottla.dataplane.groups.consumer.member import ClassicSide
from ottla.dataplane.groups.consumer.records import consumer_record
from ottla.dataplane.groups.limits import ConsumerLimits
from ottla.dataplane.groups.records import batch_of
from ottla.dataplane.log import LogConfig, PartitionLog
from tests import java
from tests.dataplane.groups.test_consumer_group import Topics, beat, join

pytestmark = [pytest.mark.java, java.needs_java, pytest.mark.timeout(120)]


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
    folder = tmp_path / "__consumer_offsets-0"
    log = PartitionLog.open(folder, LogConfig(), clean_shutdown=True, recovery_point=0, now_ms=0)
    log.produced.append(memoryview(batch_of(records, 1)), 0, now_ms=1)
    log.close(clean=True)
    (file,) = folder.glob("*.log")
    text = java.run(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--files", str(file), "--deep-iteration", "--print-data-log", "--offsets-decoder"),
    )
    found = []
    for line in text.splitlines():
        if line.startswith("|") and " key: " in line:
            key, _, payload = line.partition(" key: ")[2].partition(" payload: ")
            found.append((json.loads(key), None if payload == "<DELETE>" else json.loads(payload)))
    assert len(found) == len(records), text
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
