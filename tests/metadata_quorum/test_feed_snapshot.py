"""The image that a broker is given whole when it is too far behind."""

from __future__ import annotations

from ottla.metadata_quorum.broker_sessions import SnapshotSource
from ottla.metadata_quorum.feed import MetadataFeed
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.messages import metadata_records as r
from ottla.protocol.messages import mirror_records as m
from ottla.protocol.messages import transaction_records as t
from ottla.protocol.messages.quota_commands import QuotaEntityPart


async def test_a_snapshot_holds_whatever_the_image_holds() -> None:
    image = ClusterImage()
    for record in (
        r.ClusterRecord(cluster_id="c"),
        r.BrokerRecord(broker_id=1, incarnation=bytes(16), fenced=True, fenced_since_ms=1_700_000_000_000),
        r.TopicRecord(topic_id=b"t" * 16, name="orders"),
        r.PartitionRecord(topic_id=b"t" * 16, partition=0, replicas=[1], isr=[1], leader=1),
        r.ConfigRecord(resource_type=2, resource_name="orders", config_name="retention.ms", value="1"),
        r.ProducerIdsRecord(next_producer_id=1000),
        r.ClientQuotaRecord(
            entity=[QuotaEntityPart(entity_type="user", entity_name=None)],
            values=[r.QuotaValue(key="producer_byte_rate", value=5.0)],
        ),
        r.FeatureLevelRecord(feature="group.version", level=0),
        r.ScramCredentialRecord(name="ann", mechanism=1, salt=b"s", sealed_keys=b"k", iterations=4096),
        r.DelegationTokenRecord(token_id="id", owner="User:ann", requester="User:bob", key_id=b"k"),
        r.AclRecord(
            resource_type=2,
            resource_name="orders",
            pattern_type=3,
            principal="User:ann",
            host="*",
            operation=3,
            permission=3,
        ),
        t.TransactionRecord(transactional_id="x", producer_id=7, number=1, phase=Phase.ONGOING),
        t.TransactionWriterRecord(
            transactional_id="x",
            producer_id=7,
            topics=[t.WriterPartitions(topic_id=b"t" * 16, partitions=[0])],
        ),
        t.WriterPoolRecord(transactional_id="x", writers=[t.PooledWriter(producer_id=8, producer_epoch=3)]),
        t.CommitIndexRecord(next_commit_index=5),
        m.MirrorRecord(name="m", source_cluster_id="there", topics=".*", phase=1),
        m.MirrorTopicRecord(topic_id=b"t" * 16, mirror="m", source_topic_id=b"t" * 16),
        m.MirrorPartitionRecord(
            topic_id=b"t" * 16, lineage=[m.SourceEpoch(epoch=3, start_offset=0)], fault=1
        ),
        m.MirrorCutRecord(mirror="m", number=3, cut=17),
        m.MirrorOffsetsDueRecord(mirror="m", topic_id=b"t" * 16),
        m.MirrorOffsetsToldRecord(
            mirror="m", offsets=[m.MirroredOffset(group="g", topic_id=b"t" * 16, offset=4)]
        ),
    ):
        image.apply(record)
    empty = vars(ClusterImage())
    assert [name for name, part in vars(image).items() if part == empty[name]] == [], "not in this test"
    snapshot = await SnapshotSource(MetadataFeed(image.offset), lambda: image).get()
    copy = ClusterImage()
    for chunk in snapshot.chunks:
        for encoded in chunk:
            copy.apply(r.decode_record(encoded))
    differing = {name for name, value in vars(image).items() if vars(copy)[name] != value}
    assert differing <= {"offset"}
    assert snapshot.end_offset == image.offset
