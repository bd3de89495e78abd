"""A leaderless partition of an open transaction: markers go to the other partitions, and the missing marker follows
once there is a leader.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.errors import ErrorCode
from tests.cluster import running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER
from tests.integration.raw_transactions import RawTransactions
from tests.integration.transactional_clients import Confluent

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

UP, DOWN = "up", "down"
"""A topic on broker 1, and a topic on broker 2, which dies."""


@pytest.mark.parametrize("commits", [True, False])
def test_what_has_no_leader_is_ended_when_it_has_one_again(tmp_path: Path, *, commits: bool) -> None:
    settings = SMALL_CLUSTER | {"broker.session.timeout.ms": "1500"}
    with running_cluster(tmp_path, quorum=1, brokers=2, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        placed = {UP: [[1]], DOWN: [[2]]}
        made = admin.create_topics([NewTopic(name, 1, replica_assignment=to) for name, to in placed.items()])
        for done in made.values():
            done.result(30)
        wait_until(lambda: cluster.leader(UP, 0) and cluster.leader(DOWN, 0), "leaders")
        with RawTransactions(cluster.bootstrap) as raw:
            names = (f"mover-{number}" for number in range(1_000))
            name = next(
                candidate for candidate in names if raw.coordinator(candidate) == cluster.broker(1).port
            )
            who = raw.init(name)
            for topic in placed:
                assert raw.add(who, topic, [0]) == [ErrorCode.NONE]
                assert raw.produce(who, topic, 0, b"first") is ErrorCode.NONE
            cluster.broker(2).kill9()
            wait_until(lambda: cluster.leader(DOWN, 0) is None, "a partition without a leader")
            assert raw.end(who, commit=commits).code is ErrorCode.NONE
            assert [
                record.value for record in Confluent(str(cluster.broker(1).address)).read(UP, committed=True)
            ] == ([b"first"] * commits)
            assert raw.try_init(who).code is ErrorCode.CONCURRENT_TRANSACTIONS, "it is not over yet"
            cluster.broker(2).restart()
            wait_until(lambda: cluster.leader(DOWN, 0), "its leader")
            raw.disconnect()
            second = raw.init(name)
            for topic in placed:
                assert raw.add(second, topic, [0]) == [ErrorCode.NONE]
                assert raw.produce(second, topic, 0, b"second") is ErrorCode.NONE
            assert raw.end(second, commit=True).code is ErrorCode.NONE
            for topic in placed:
                read = Confluent(cluster.bootstrap).read(topic, committed=True)
                assert [stored.value for stored in read] == [*[b"first"] * commits, b"second"]
