"""A changed partition has the bytes of its record, however they are made."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.protocol.cluster import partition_change
from ottla.protocol.cluster.cluster_image import PartitionState, partition_record
from ottla.protocol.cluster.partition_change import PartitionChange, record_of
from ottla.protocol.messages.metadata_records import TopicRecord, encode_record

INT32 = st.integers(-(2**31), 2**31 - 1)
IDS = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)
RARELY = st.just(()) | IDS
CHANGES = st.builds(
    PartitionChange,
    topic_id=st.binary(min_size=16, max_size=16),
    partition=INT32,
    state=st.builds(
        PartitionState,
        replicas=IDS,
        isr=IDS,
        elr=IDS,
        last_known_elr=IDS,
        leader=INT32,
        leader_epoch=INT32,
        partition_epoch=INT32,
        unclean=st.booleans(),
        adding_replicas=RARELY,
        removing_replicas=RARELY,
        offline_replicas=RARELY,
    ),
)
MANY = tuple(range(300))


@given(CHANGES)
@example(PartitionChange(bytes(16), 0, PartitionState(MANY, MANY[:127], MANY[:128], MANY[:126])))
def test_it_is_encoded_as_its_record(change: PartitionChange) -> None:
    for _ in range(2):  # The second time the lists are known.
        assert change.encoded() == encode_record(change.record())
    assert change.record() == record_of(change) == partition_record(*change)


def test_other_records_stand_for_themselves() -> None:
    record = TopicRecord(topic_id=bytes(16), name="t")
    assert record_of(record) is record


def test_lists_that_are_known_are_a_bounded_number() -> None:
    with patch.object(partition_change, "KNOWN_MAX", 10):
        for number in range(100):
            change = PartitionChange(bytes(16), 0, PartitionState((number,), ()))
            assert change.encoded() == encode_record(change.record())
            assert len(partition_change._known) <= 10
