"""Records of `__share_group_state`: read back as they were written, and read by Kafka's own tool."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from ottla.dataplane.coordinated_log.batches import batch_of
from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.share.state.records import (
    StateSnapshot,
    StateUpdate,
    read_records,
    snapshot_record,
    update_record,
)
from ottla.dataplane.share.state.stored_state import StoredShareState, Update
from ottla.dataplane.share.states import DurableState, StateBatch
from ottla.protocol.messages.find_coordinator import SharePartition
from tests import java

KEY = SharePartition("g", bytes(range(16)), 3)
AVAILABLE = StateBatch(12, 14, DurableState.AVAILABLE, 2)
ARCHIVED = StateBatch(15, 15, DurableState.ARCHIVED)
RECORDS = [
    StateSnapshot(KEY, StoredShareState(2, 5, 10, 0, (AVAILABLE, ARCHIVED)), 7, 1_000, 2_000),
    StateUpdate(KEY, 7, Update(6, -1, 4, (ARCHIVED,))),
    StateSnapshot(KEY, None),
]
WRITTEN = [
    snapshot_record(record) if isinstance(record, StateSnapshot) else update_record(record)
    for record in RECORDS
]


def test_records_are_read_as_they_were_written() -> None:
    batch = batch_of(WRITTEN, 1)
    assert list(read_records(memoryview(batch))) == [(0, record) for record in RECORDS]


def test_a_record_that_cannot_be_read_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    key, value = WRITTEN[0]
    assert value is not None
    acquired = StateUpdate(KEY, 7, Update(6, -1, 4, (ARCHIVED._replace(state=1),)))  # type: ignore[arg-type]
    damaged = [
        (key, value[:9]),
        (b"\0", value),
        (b"\0\x09later", value),
        (key[:5], value),
        update_record(acquired),
        (WRITTEN[1][0], None),
    ]
    with caplog.at_level(logging.ERROR):
        found = list(read_records(memoryview(batch_of([*damaged, WRITTEN[2]], 1))))
    assert found == [(0, RECORDS[2])]
    assert caplog.text.count("passing over a record of share states behind offset 0") == 4


@pytest.mark.java
@java.needs_java
@pytest.mark.timeout(120)
def test_kafka_reads_our_share_states(tmp_path: Path) -> None:
    folder = tmp_path / "__share_group_state-0"
    log = PartitionLog.open(folder, LogConfig(), clean_shutdown=True, recovery_point=0, now_ms=0)
    log.produced.append(memoryview(batch_of(WRITTEN, 1)), 0, now_ms=1)
    log.close(clean=True)
    (file,) = folder.glob("*.log")
    text = java.run(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--files", str(file), "--deep-iteration", "--print-data-log", "--share-group-state-decoder"),
    )
    found = []
    for line in text.splitlines():
        if line.startswith("|") and " key: " in line:
            key, _, payload = line.partition(" key: ")[2].partition(" payload: ")
            found.append((json.loads(key), None if payload == "<DELETE>" else json.loads(payload)))
    assert len(found) == len(RECORDS), text
    (snapshot_key, snapshot), (update_key, update), (_, deleted) = found
    assert deleted is None
    assert snapshot_key["data"] == {"groupId": "g", "topicId": "AAECAwQFBgcICQoLDA0ODw", "partition": 3}
    assert update_key["data"] == snapshot_key["data"]
    assert (snapshot["data"]["stateEpoch"], snapshot["data"]["snapshotEpoch"]) == (2, 7)
    assert snapshot["data"]["stateBatches"][0] == {
        "firstOffset": 12, "lastOffset": 14, "deliveryState": 0, "deliveryCount": 2,
    }  # fmt: skip
    assert (update["data"]["leaderEpoch"], update["data"]["deliveryCompleteCount"]) == (6, 4)
