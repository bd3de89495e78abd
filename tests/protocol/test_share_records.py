"""Records of share groups as Kafka 4.4 writes them, in `__share_group_state` and in `__consumer_offsets`."""

from __future__ import annotations

import pytest

from ottla.protocol.messages.share_group_records import (
    AssignedPartitions,
    DeletedTopic,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupKey,
    ShareGroupMemberKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupRecordKind,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    StatePartitions,
)
from ottla.protocol.messages.share_state_records import (
    SNAPSHOT_KEY_VERSION,
    UNCHANGED_START,
    UPDATE_KEY_VERSION,
    DeliveryState,
    ShareSnapshotValue,
    ShareStateKey,
    ShareUpdateValue,
    StateBatch,
)
from ottla.protocol.wire.codec import MalformedMessage, decode, decode_from, encode
from ottla.protocol.wire.schema import Message

TOPIC_ID = (1).to_bytes(8, "big") + (2).to_bytes(8, "big")
TIME = 1_700_000_000_000
STATE_KEY = ShareStateKey(group_id="g", topic_id=TOPIC_ID, partition=3)
ACKNOWLEDGED = StateBatch(
    first_offset=10, last_offset=12, delivery_state=DeliveryState.ACKNOWLEDGED, delivery_count=1
)
ARCHIVED = StateBatch(
    first_offset=13, last_offset=13, delivery_state=DeliveryState.ARCHIVED, delivery_count=5
)
AVAILABLE = StateBatch(
    first_offset=10, last_offset=12, delivery_state=DeliveryState.AVAILABLE, delivery_count=1
)
ASSIGNED = [AssignedPartitions(topic_id=TOPIC_ID, partitions=[0, 2])]

# Written by the classes of Kafka 4.4 from the same values.
WRITTEN_BY_KAFKA: list[tuple[Message, int, str]] = [
    (STATE_KEY, SNAPSHOT_KEY_VERSION, "0001670000000000000001000000000000000200000003"),
    (STATE_KEY, UPDATE_KEY_VERSION, "0001670000000000000001000000000000000200000003"),
    (
        ShareSnapshotValue(
            snapshot_epoch=7,
            state_epoch=2,
            leader_epoch=5,
            start_offset=10,
            delivery_complete_count=4,
            create_timestamp=TIME,
            write_timestamp=TIME + 1,
            state_batches=[ACKNOWLEDGED, ARCHIVED],
        ),
        0,
        "000000070000000200000005000000000000000a0000018bcfe568000000018bcfe56801"
        "03000000000000000a000000000000000c02000100000000000000000d000000000000000d0400050001000400000004",
    ),
    (
        ShareSnapshotValue(
            snapshot_epoch=7,
            state_epoch=2,
            leader_epoch=5,
            start_offset=10,
            create_timestamp=TIME,
            write_timestamp=TIME + 1,
        ),
        0,
        "000000070000000200000005000000000000000a0000018bcfe568000000018bcfe568010100",
    ),
    (
        ShareUpdateValue(
            snapshot_epoch=7,
            leader_epoch=5,
            start_offset=UNCHANGED_START,
            delivery_complete_count=0,
            state_batches=[AVAILABLE],
        ),
        0,
        "0000000700000005ffffffffffffffff02000000000000000a000000000000000c0000010001000400000000",
    ),
    (ShareGroupKey(group_id="g"), 0, "000167"),
    (ShareGroupMemberKey(group_id="g", member_id="m"), 0, "00016700016d"),
    (
        ShareGroupMemberMetadataValue(
            rack_id="r", client_id="c", client_host="/h", subscribed_topic_names=["t", "u"]
        ),
        0,
        "02720263032f68030274027500",
    ),
    (
        ShareGroupMemberMetadataValue(rack_id=None, client_id="c", client_host="/h"),
        0,
        "000263032f680100",
    ),
    (ShareGroupMetadataValue(epoch=3, metadata_hash=-5), 0, "00000003fffffffffffffffb00"),
    (
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=3, assignment_timestamp=TIME),
        0,
        "000000030100080000018bcfe56800",
    ),
    (ShareGroupTargetAssignmentMetadataValue(assignment_epoch=3), 0, "0000000300"),
    (
        ShareGroupTargetAssignmentMemberValue(topic_partitions=ASSIGNED),
        0,
        "02000000000000000100000000000000020300000000000000020000",
    ),
    (
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=4, previous_member_epoch=3, state=0, assigned_partitions=ASSIGNED
        ),
        0,
        "00000004000000030002000000000000000100000000000000020300000000000000020000",
    ),
    (
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=[StatePartitions(topic_id=TOPIC_ID, topic_name="t", partitions=[1])],
            initialized_topics=[StatePartitions(topic_id=TOPIC_ID, topic_name="t", partitions=[0])],
            deleting_topics=[DeletedTopic(topic_id=TOPIC_ID, topic_name="u")],
        ),
        0,
        "020000000000000001000000000000000202740200000001000200000000000000010000000000000002027402"
        "0000000000020000000000000001000000000000000202750000",
    ),
]


@pytest.mark.parametrize(("message", "version", "written"), WRITTEN_BY_KAFKA)
def test_records_are_those_of_kafka(message: Message, version: int, written: str) -> None:
    assert encode(message, version).hex() == written
    assert decode_from(type(message), bytes.fromhex(written), version) == (message, len(written) // 2)


@pytest.mark.parametrize(("message", "version", "written"), WRITTEN_BY_KAFKA)
def test_a_record_that_is_cut_short_is_malformed(message: Message, version: int, written: str) -> None:
    whole = bytes.fromhex(written)
    for length in range(len(whole)):
        with pytest.raises(MalformedMessage):
            decode(type(message), whole[:length], version)


def test_kinds_of_records_have_kafkas_key_versions() -> None:
    """The numbers of Kafka's `CoordinatorRecordType`, which are on disk. 9 and 16 belong to other groups."""
    assert {kind.name: int(kind) for kind in ShareGroupRecordKind} == {
        "MEMBER": 10,
        "GROUP": 11,
        "TARGET_EPOCH": 12,
        "TARGET": 13,
        "CURRENT": 14,
        "STATE_PARTITIONS": 15,
    }
    assert (SNAPSHOT_KEY_VERSION, UPDATE_KEY_VERSION) == (0, 1)
    assert [int(state) for state in DeliveryState] == [0, 2, 4]
