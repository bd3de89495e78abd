"""The coordinator of a group is killed between the offsets of a transaction and its end.

A client that is answered finds the new offsets at the next coordinator, or the earlier ones.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cluster import running_cluster, wait_for
from tests.integration.conftest import create
from tests.integration.history import SMALL_CLUSTER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240), pytest.mark.xdist_group("offsets-failover")]

DEADLINE_S = 90.0
OFFSETS_TOPIC = "__consumer_offsets"


def test_offsets_of_a_transaction_outlive_their_coordinator(tmp_path: Path) -> None:
    settings = {**SMALL_CLUSTER, "offsets.topic.num.partitions": "1"}
    with running_cluster(tmp_path, quorum=1, brokers=3, settings=settings) as cluster:
        bootstrap = cluster.bootstrap
        source = create(AdminClient({"bootstrap.servers": bootstrap}), 1)
        group = uuid.uuid4().hex
        asking = Consumer({"bootstrap.servers": bootstrap, "group.id": group})

        def move_to(offset: int, *, commits: bool) -> int:
            """Kill the coordinator once the offset is in its log, and return the offset that is valid afterwards.

            (A producer that remembers a dead coordinator looks for another one after ten minutes.)
            """
            producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover"})
            producer.init_transactions(DEADLINE_S)
            producer.begin_transaction()
            producer.produce(source, b"%d" % offset)
            where = [TopicPartition(source, 0, offset)]
            producer.send_offsets_to_transaction(where, asking.consumer_group_metadata(), DEADLINE_S)
            cluster.wait_until_in_sync(OFFSETS_TOPIC)
            led_by = wait_for(lambda: cluster.leader(OFFSETS_TOPIC, 0), "a coordinator")
            cluster.broker(led_by).kill9()
            (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
            found = consumer.committed([TopicPartition(source, 0)], DEADLINE_S)[0]
            consumer.close()
            assert found.error is None
            cluster.broker(led_by).restart()
            return found.offset

        assert move_to(7, commits=True) == 7
        assert move_to(11, commits=False) == 7
        assert move_to(13, commits=True) == 13
        asking.close()
