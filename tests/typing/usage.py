"""The public API as programs use it, and the resulting types: checked by `make lint` (basedpyright), never run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, assert_type

import ottla
from ottla import (
    EARLIEST,
    TOPIC_RESOURCE,
    Admin,
    BackupCut,
    BackupPruning,
    BackupVerification,
    ClusterDescription,
    CommitResult,
    CommittedTransaction,
    ConfigEntry,
    Consumer,
    ConsumerGroupMetadata,
    ConsumerRecord,
    ErrorCode,
    Failback,
    GroupDescription,
    GroupListing,
    KafkaError,
    LogDirDescription,
    MirrorDescription,
    MirrorPhase,
    NewTopic,
    OngoingReassignment,
    Producer,
    ProducerDescription,
    ProducerIdentity,
    QuorumDescription,
    RebalanceListener,
    RecordDelivery,
    RecordMetadata,
    Restoration,
    ShareConsumer,
    ShareTask,
    TopicInfo,
    TopicPartition,
    Transaction,
    TransactionDescription,
    TransactionWriter,
    WriterReceipt,
    sync,
)
from ottla.testing import LocalCluster
from ottla.testing.pytest_plugin import IsolatedTopics

HERE = TopicPartition("orders", 0)


def as_json(given: object) -> bytes:
    return json.dumps(given).encode()


async def producing() -> None:
    async with Producer(
        bootstrap_servers=["a:9092", "b:9092"],
        acks="all",
        compression_type="zstd",
        linger_ms=0.5,
        key_serializer=str.encode,
        value_serializer=as_json,
    ) as producer:
        assert_type(producer, Producer)
        headers: Sequence[tuple[str, bytes | None]] = [("a", b"1"), ("b", None)]
        sent = await producer.send("orders", {"a": 1}, key="k", partition=0, timestamp_ms=1, headers=headers)
        assert_type(sent, RecordDelivery)
        assert_type(await sent, RecordMetadata)
        placed = await producer.send_and_wait("orders", None)
        assert_type(placed, RecordMetadata)
        assert_type(placed.offset, int)
        assert_type(await producer.partitions_for("orders"), list[int])
        await producer.flush()


class Told(RebalanceListener):
    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None: ...

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None: ...


async def consuming() -> None:
    async with Consumer("orders", group_id="g", auto_offset_reset="earliest") as consumer:
        assert_type(consumer, Consumer)
        consumer.subscribe(pattern="ord.*", listener=Told())
        async for record in consumer:
            assert_type(record, ConsumerRecord)
            assert_type(record.value, Any)  # bytes, or what a deserializer made
            assert_type(record.headers, Sequence[tuple[str, bytes | None]])
        assert_type(await consumer.getone(), ConsumerRecord)
        assert_type(await consumer.getmany(HERE, timeout_ms=None), dict[TopicPartition, list[ConsumerRecord]])
        await consumer.commit({HERE: 1})
        assert_type(await consumer.committed(HERE), int | None)
        assert_type(await consumer.position(HERE), int)
        assert_type(await consumer.lag(HERE), int)
        assert_type(await consumer.offsets_for_times({HERE: 1}), dict[TopicPartition, int | None])
        assert_type(await consumer.end_offsets([HERE]), dict[TopicPartition, int])
        assert_type(consumer.assignment(), set[TopicPartition])
        assert_type(consumer.group_metadata(), ConsumerGroupMetadata)
        async for transaction in consumer.transactions(after=3):
            assert_type(transaction, CommittedTransaction)
            assert_type(transaction.commit_index, int | None)
        await consumer.unsubscribe()


async def transactions(consumer: Consumer) -> None:
    async with Producer(transactional_id="x") as producer:
        async with producer.transaction(app_version=4) as transaction:
            assert_type(transaction, Transaction)
            await producer.send_offsets_to_transaction({HERE: 1}, consumer)
            await producer.send_offsets_to_transaction({HERE: 1}, consumer.group_metadata())
            await producer.send_offsets_to_transaction({HERE: 1}, "g")
        assert_type(transaction.result, CommitResult | None)
        assert_type(producer.last_app_version, int | None)
        assert_type(producer.identity, ProducerIdentity)
        shared = await producer.begin()
        assert_type(shared.token, str)
        async with TransactionWriter.join(shared.token) as writer:
            await writer.send("orders", b"v")
            receipt = await writer.finish()
        assert_type(receipt, WriterReceipt)
        assert_type(await shared.commit([receipt, str(receipt)]), CommitResult)
        try:
            await producer.begin_transaction()
            await producer.commit_transaction()
        except KafkaError as error:
            assert_type(error.code, ErrorCode)
            assert_type(error.code.retriable, bool)
            await producer.abort_transaction()


async def administering() -> None:
    async with Admin(bootstrap_servers="a:9092") as admin:
        assert_type(admin, Admin)
        await admin.create_topics([NewTopic("orders", 3, configs={"retention.ms": "1"})], validate_only=True)
        assert_type(await admin.list_topics(), list[str])
        assert_type(await admin.describe_topics(), list[TopicInfo])
        assert_type(await admin.describe_configs(TOPIC_RESOURCE, "orders"), list[ConfigEntry])
        assert_type(await admin.list_groups(), list[GroupListing])
        assert_type(await admin.describe_groups(["g"]), list[GroupDescription])
        assert_type(await admin.committed_offsets("g"), dict[TopicPartition, int])
        assert_type(await admin.alter_offsets("g", {HERE: 1}), dict[TopicPartition, KafkaError | None])
        assert_type(await admin.list_offsets({HERE: EARLIEST}), dict[TopicPartition, int | KafkaError])
        assert_type(await admin.describe_cluster(), ClusterDescription)
        assert_type(await admin.describe_quorum(), QuorumDescription)
        assert_type(await admin.describe_log_dirs(), dict[int, list[LogDirDescription] | KafkaError])
        assert_type(await admin.list_partition_reassignments(), dict[TopicPartition, OngoingReassignment])
        described = await admin.describe_transactions(["x"])
        assert_type(described, dict[str, TransactionDescription | KafkaError])
        assert_type(await admin.create_mirror("m", source="b:9092", topics=".*", start="latest"), str)
        (mirror,) = await admin.describe_mirrors(["m"])
        assert_type(mirror, MirrorDescription)
        assert_type(mirror.phase, MirrorPhase)
        assert_type(mirror.lag, int | None)
        assert_type(await admin.promote_mirror("m"), MirrorDescription)
        assert_type(await admin.failback_mirror("m", source="b:9092", discard=True), Failback)
        assert_type(await admin.copied_ends(["t"]), dict[TopicPartition, int])
        producers = await admin.describe_producers([HERE])
        assert_type(producers, dict[TopicPartition, Sequence[ProducerDescription] | KafkaError])


async def backing_up(admin: Admin) -> None:
    assert_type(await admin.create_backup("s3://b", topics="o.*", progress=print), BackupCut)
    async with await admin.open_backup(
        "s3://b", progress=lambda progress: print(progress.waits_for)
    ) as backup:
        cut = await backup.cut(progress=lambda progress: print(progress.size))
    assert_type(cut.copied, int | None)
    assert_type([topic.name for topic in cut.topics], list[str])
    assert_type(await admin.list_backup("s3://b"), list[BackupCut])
    assert_type(
        await admin.verify_backup("s3://b", progress=lambda done, total: print(done / total)),
        BackupVerification,
    )
    assert_type(await admin.prune_backup("s3://b", keep=9, older_than=1, validate_only=True), BackupPruning)
    restored = await admin.restore_backup("s3://b", as_of=cut.cut, renames={"a": "b"}, listen="10.0.0.1")
    assert_type(restored, Restoration)
    assert_type(restored.topics[0].source, str)


async def working_on_tasks() -> None:
    async with ShareConsumer("tasks", group_id="mailers", max_in_flight=50) as queue:
        async for task in queue:
            async with task as same:
                assert_type(same, ShareTask)
                assert_type(task.delivery_count, int)
                assert_type(task.lost, bool)
        for task in await queue.getmany(timeout_ms=5, max_records=10):
            await task.accept()
            assert_type(task.reject().exception(), BaseException | None)
        assert_type(queue.assignment(), set[TopicPartition])


def without_a_loop() -> None:
    with sync.ShareConsumer("tasks", group_id="mailers") as queue:
        for task in queue:
            with task as same:
                assert_type(same, sync.ShareTask)
            assert_type(task.accept(), Future[None])
    with sync.Producer(bootstrap_servers="a:9092", transactional_id="x") as producer:
        with producer.transaction():
            assert_type(producer.send("orders", b"v"), Future[RecordMetadata])
        assert_type(producer.send_and_wait("orders", b"v"), RecordMetadata)
    with sync.Consumer("orders", group_id="g") as consumer:
        for record in consumer:
            assert_type(record, ConsumerRecord)
        assert_type(consumer.getmany(timeout_ms=5), dict[TopicPartition, list[ConsumerRecord]])
        assert_type(consumer.assignment(), set[TopicPartition])
        consumer.commit()
    with sync.Admin() as admin:
        assert_type(admin.list_topics(), list[str])
        assert_type(admin.describe_groups(["g"]), list[GroupDescription])
        assert_type(admin.create_backup("s3://b"), BackupCut)
        with admin.open_backup("s3://b") as backup:
            assert_type(backup, sync.Backup)
            assert_type(backup.cut(), BackupCut)
        assert_type(admin.restore_backup("s3://b", as_of=1), Restoration)


def with_pytest(ottla: IsolatedTopics) -> None:
    assert_type(ottla.topic("orders", partitions=3), str)
    assert_type(ottla.bootstrap_servers, str)
    assert_type(ottla.cluster, LocalCluster)


def a_cluster_for_tests() -> None:
    with LocalCluster(brokers=3, settings={"log.segment.bytes": "1048576"}) as cluster:
        assert_type(cluster, LocalCluster)
        assert_type(cluster.bootstrap_servers, str)
        assert_type(cluster.leader("orders", 0), int | None)
    with LocalCluster(security="sasl_ssl") as secured:
        assert_type(secured.confluent_options, dict[str, str])


def wrong() -> None:
    """Errors that a type checker must report: an ignored line without an error is an error itself."""
    Producer(linger=5)  # pyright: ignore[reportCallIssue]
    Producer(acks=2)  # pyright: ignore[reportArgumentType]
    Consumer(auto_offset_reset="first")  # pyright: ignore[reportArgumentType]
    ottla.Produzer()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
