"""Folding pushes: none twice, none torn, no gap, and snapshots as a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.quorum.image_follower import Fold, ImageFollower
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.messages.metadata_records import (
    AclRecord,
    BrokerRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    ScramCredentialRecord,
    TopicRecord,
    encode_record,
)
from ottla.protocol.messages.mirror_records import MirrorCutRecord, MirrorOffsetsDueRecord, MirrorRecord
from ottla.protocol.messages.quorum_session import FeedRecords, FeedSnapshotChunk
from ottla.protocol.messages.quota_commands import QuotaEntityPart, QuotaValue
from ottla.protocol.messages.transaction_records import (
    TransactionRecord,
    TransactionWriterRecord,
    WriterPartitions,
)

TOPIC = b"t" * 16
HISTORY: list[Record] = [
    ClusterRecord(cluster_id="c"),
    TopicRecord(topic_id=TOPIC, name="t"),
    *(PartitionRecord(topic_id=TOPIC, partition=i, replicas=[1], isr=[1]) for i in range(5)),
    *(ProducerIdsRecord(next_producer_id=i * 1000) for i in range(1, 10)),
]


def push(first: int, end: int) -> FeedRecords:
    return FeedRecords(
        first_offset=first, end_offset=end, records=[encode_record(record) for record in HISTORY[first:end]]
    )


@given(st.lists(st.tuples(st.integers(0, len(HISTORY)), st.integers(0, len(HISTORY))), max_size=30))
def test_whatever_arrives_the_image_is_a_prefix_of_the_history(pushes: list[tuple[int, int]]) -> None:
    follower = ImageFollower(1)
    for left, right in pushes:
        before = follower.image.offset
        first, end = min(left, right), max(left, right)
        outcome = follower.records(push(first, end))
        if end <= before:
            assert outcome is Fold.NOTHING
        elif first != before:
            assert outcome is Fold.RESUBSCRIBE
        else:
            assert follower.image.offset == end
        expected = ClusterImage()
        for record in HISTORY[: follower.image.offset]:
            expected.apply(record)
        assert follower.image.topics == expected.topics
        assert follower.image.next_producer_id == expected.next_producer_id


def test_records_left_out_still_count() -> None:
    follower = ImageFollower(1)
    follower.records(FeedRecords(first_offset=0, end_offset=7, records=[encode_record(HISTORY[0])]))
    assert follower.image.offset == 7


def test_a_snapshot_takes_effect_when_it_is_whole() -> None:
    follower = ImageFollower(1)
    follower.records(push(0, 2))
    image = follower.image
    whole = [FeedSnapshotChunk(end_offset=50, first=True, records=[encode_record(r) for r in HISTORY[:4]])]
    whole.append(FeedSnapshotChunk(end_offset=50, last=True, records=[encode_record(r) for r in HISTORY[4:]]))
    assert follower.snapshot(whole[0]) is Fold.NOTHING
    assert image.offset == 2
    delta = follower.snapshot(whole[1])
    assert isinstance(delta, ImageDelta)
    assert delta.partitions == {(TOPIC, i) for i in range(5)}
    assert delta.topics == set()
    assert follower.image is image
    assert image.offset == 50
    assert image.next_producer_id == 9000


def test_all_that_a_snapshot_holds_is_taken_over() -> None:
    quota = ClientQuotaRecord(
        entity=[QuotaEntityPart(entity_type="user", entity_name="u")],
        values=[QuotaValue(key="producer_byte_rate", value=5.0)],
    )
    config = ConfigRecord(resource_type=2, resource_name="t", config_name="retention.ms", value="1")
    broker = BrokerRecord(broker_id=1, incarnation=bytes(16))
    level = FeatureLevelRecord(feature="group.version", level=1)
    transaction = TransactionRecord(transactional_id="x", producer_id=7, number=1, phase=Phase.ONGOING)
    writer = TransactionWriterRecord(
        transactional_id="x", producer_id=7, topics=[WriterPartitions(topic_id=TOPIC, partitions=[1, 3])]
    )
    acl = AclRecord(
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission=3,
    )
    user = ScramCredentialRecord(name="a", mechanism=1, salt=b"s", sealed_keys=b"k", iterations=4096)
    token = DelegationTokenRecord(token_id="id", owner="User:a", requester="User:b", key_id=b"k")
    mirror = MirrorRecord(name="m", source_cluster_id="s", bootstrap_servers="h:1", topics=".*", phase=1)
    cut = MirrorCutRecord(mirror="m", number=0, cut=5, metadata_offset=7, time_ms=9)
    due = MirrorOffsetsDueRecord(mirror="m", topic_id=TOPIC)
    records: list[Record] = [
        *(*HISTORY, quota, config, broker, level, acl, user, token, transaction, writer, mirror, cut, due)
    ]
    expected = ClusterImage()
    for record in records:
        expected.apply(record)
    follower = ImageFollower(1)
    encoded = [encode_record(record) for record in records]
    follower.snapshot(FeedSnapshotChunk(end_offset=expected.offset, first=True, last=True, records=encoded))
    assert vars(follower.image) == vars(expected)
    assert vars(follower.image.transactions) == vars(expected.transactions)
    empty = vars(ClusterImage())
    assert [name for name, part in vars(expected).items() if part == empty[name]] == [], "not in this test"


def test_a_snapshot_that_was_cut_off_begins_anew() -> None:
    follower = ImageFollower(1)
    assert follower.snapshot(FeedSnapshotChunk(end_offset=9, last=True)) is Fold.RESUBSCRIBE
    follower.snapshot(FeedSnapshotChunk(end_offset=9, first=True, records=[encode_record(HISTORY[0])]))
    follower.snapshot(FeedSnapshotChunk(end_offset=9, first=True, records=[encode_record(HISTORY[7])]))
    assert isinstance(follower.snapshot(FeedSnapshotChunk(end_offset=9, last=True)), ImageDelta)
    assert follower.image.cluster_id == ""
    assert follower.image.next_producer_id == 1000


def test_an_old_snapshot_changes_nothing() -> None:
    follower = ImageFollower(1)
    follower.records(push(0, 5))
    assert follower.snapshot(FeedSnapshotChunk(end_offset=3, first=True, last=True)) is Fold.NOTHING
    assert follower.image.offset == 5


@pytest.mark.parametrize(("broker", "kept"), [(1, "xyz"), (2, "xyz"), (3, "xz")])
def test_with_a_replica_goes_what_a_broker_was_not_told_of(broker: int, kept: str) -> None:
    """Partition 0 was on brokers 1 and 2, and comes to 3, whose client x is, and which has a replica of partition 1."""
    follower = ImageFollower(broker)
    records: list[Record] = [
        TopicRecord(topic_id=TOPIC, name="t"),
        PartitionRecord(topic_id=TOPIC, partition=0, replicas=[1, 2], isr=[1]),
        PartitionRecord(topic_id=TOPIC, partition=1, replicas=[3], isr=[3]),
    ]
    for producer_id, (name, session, partitions) in enumerate(
        (("x", 3, [0]), ("y", 2, [0]), ("z", 1, [0, 1]))
    ):
        places = [WriterPartitions(topic_id=TOPIC, partitions=partitions)]
        records += (
            TransactionRecord(
                transactional_id=name,
                producer_id=producer_id,
                number=1,
                phase=Phase.ONGOING,
                session_broker=session,
            ),
            TransactionWriterRecord(transactional_id=name, producer_id=producer_id, topics=places),
        )
    records.append(PartitionRecord(topic_id=TOPIC, partition=0, replicas=[1, 2, 3], isr=[1]))
    encoded = [encode_record(record) for record in records]
    follower.records(FeedRecords(first_offset=0, end_offset=len(records), records=encoded))
    follower.image.transactions.check()
    assert follower.image.transactions.by_id.keys() == set(kept)
