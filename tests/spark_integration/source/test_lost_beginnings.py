"""Retention or a deletion overtakes a task: a query that continues with the remaining records reads all of them."""

from __future__ import annotations

import pytest

from ottla import NewTopic, TopicPartition
from ottla.client.transactions.cut_filter import Window
from ottla.spark_integration.source.data_loss import DataLost
from ottla.spark_integration.source.settings import ATOMIC, SourceSettings, read_settings
from ottla.spark_integration.source.slice_rows import Slice, read_slice
from ottla.spark_integration.source.slices import Range
from ottla.sync import Admin, Producer
from ottla.testing import LocalCluster

COUNT, DELETED = 100, 40


@pytest.fixture(scope="module")
def overtaken(spark_cluster: LocalCluster) -> TopicPartition:
    """Return a partition whose beginning was deleted."""
    partition, address = TopicPartition("overtaken", 0), spark_cluster.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(partition.topic)])
        for numbers in (range(DELETED), range(DELETED, COUNT)):
            with Producer(bootstrap_servers=address) as producer:
                for number in numbers:
                    producer.send(partition.topic, b"%d" % number)
        admin.delete_records({partition: DELETED})
    return partition


def _settings(cluster: LocalCluster, fails: str) -> SourceSettings:
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": "overtaken",
        "failOnDataLoss": fails,
        "kafka.request.timeout.ms": "2000",
    }
    return read_settings(options, streaming=True)


@pytest.mark.parametrize("isolation", [ATOMIC, "read_uncommitted"])
@pytest.mark.parametrize("end", [DELETED, 70, COUNT])
def test_what_is_left_of_a_slice_is_read(
    spark_cluster: LocalCluster, overtaken: TopicPartition, isolation: str, end: int
) -> None:
    window = Window(0, COUNT) if isolation == ATOMIC else None
    planned = Slice(Range(overtaken, 10, end, window), isolation, _settings(spark_cluster, "false"))
    offsets = [offset for batch in read_slice(planned) for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(DELETED, end))


def test_a_query_that_may_lose_nothing_ends(spark_cluster: LocalCluster, overtaken: TopicPartition) -> None:
    planned = Slice(Range(overtaken, 10, COUNT, None), "read_uncommitted", _settings(spark_cluster, "true"))
    with pytest.raises(DataLost, match="overtaken-0 cannot be read from offset 10 on"):
        list(read_slice(planned))


@pytest.mark.parametrize("isolation", [ATOMIC, "read_uncommitted"])
def test_no_task_reads_another_topic_of_the_same_name(spark_cluster: LocalCluster, isolation: str) -> None:
    partition, address = TopicPartition(f"replaced-{isolation}", 0), spark_cluster.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        ids = []
        for value in (b"former", b"new"):
            admin.create_topics([NewTopic(partition.topic)])
            ids.append(admin.describe_topics([partition.topic])[0].id.hex())
            with Producer(bootstrap_servers=address) as producer:
                producer.send(partition.topic, value)
            if value == b"former":
                admin.delete_topics([partition.topic])
        window = Window(0, 1) if isolation == ATOMIC else None
        former, new = (Range(partition, 0, 1, window, topic_id) for topic_id in ids)
        with pytest.raises(DataLost, match=r"topic 'replaced-.*another topic has its name"):
            list(read_slice(Slice(former, isolation, _settings(spark_cluster, "true"))))
        assert list(read_slice(Slice(former, isolation, _settings(spark_cluster, "false")))) == []
        (batch,) = read_slice(Slice(new, isolation, _settings(spark_cluster, "true")))
        assert batch.column("value").to_pylist() == [b"new"]
