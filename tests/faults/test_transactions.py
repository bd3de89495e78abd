"""Transactions over several partitions, and a pipeline that copies exactly once, while processes die or sleep."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from tests import java
from tests.cluster import RunningCluster, wait_until
from tests.faults.faults import Faults, RandomFaults
from tests.faults.list_appends import ListAppender
from tests.faults.test_kills import VICTIMS
from tests.faults.transactions import PARTITIONS, Moves
from tests.faults.workload import make_topic
from tests.integration.raw_transactions import RawTransactions
from tests.integration.transactional_clients import Confluent

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]

WHO = ("leader", "follower", "quorum-leader", "quorum-follower", "leader-and-quorum-leader")
SHORT = {"leader-and-quorum-leader"}
CLIENTS = ("confluent-kafka", "aiokafka", "kafka-python")
OUTLIVING = [
    "confluent-kafka",
    "aiokafka",
    pytest.param("java", marks=[java.needs_java, pytest.mark.java]),
]
"""Clients for the tests. kafka-python 3.0.12 is excluded: it forgets an AddPartitionsToTxn that it cannot send because
its coordinator refuses connections, and waits for the answer for ever."""


def topics(cluster: RunningCluster, name: str) -> tuple[str, str]:
    """Make a topic to write to, and a topic for its copy."""
    names = f"moves-{name}", f"copies-{name}"
    for topic in names:
        make_topic(cluster.bootstrap, topic, PARTITIONS)
    return names


@pytest.mark.parametrize(
    "victims", [pytest.param(name, marks=[pytest.mark.short] * (name in SHORT)) for name in WHO]
)
def test_some_die_and_the_worker_too(cluster: RunningCluster, victims: str) -> None:
    source, target = topics(cluster, f"killed-{victims}")
    with Faults(cluster, (source, target)) as faults, Moves(cluster, source, target) as moves:
        moves.wait_committed(10)
        moves.wait_copied(3)
        faults.kill(*VICTIMS[victims](faults, source))
        moves.wait_committed(5)  # with the victims dead
        moves.pipeline.kill()
        moves.wait_copied(3)
        faults.heal()
        moves.wait_committed(5)
        moves.wait_copied(1)
    moves.check(faults)


@pytest.mark.parametrize(
    "victims", [pytest.param("leader", marks=pytest.mark.short), "quorum-leader", "leader-and-quorum-leader"]
)
def test_lists_are_read_and_appended_to_while_some_die(cluster: RunningCluster, victims: str) -> None:
    source, target = topics(cluster, f"lists-{victims}")
    lists = Moves(cluster, source, target, movers=3, kind=ListAppender)
    with Faults(cluster, (source, target)) as faults, lists:
        lists.wait_committed(10)
        faults.kill(*VICTIMS[victims](faults, source))
        lists.wait_committed(10)  # with the victims dead
        faults.heal()
        lists.wait_committed(5)
    lists.check(faults)
    assert any(poll.transaction is not None for poll in lists.history.polls)


@pytest.mark.parametrize("victims", ["leader", "quorum-leader"])
def test_some_sleep_beyond_their_session(cluster: RunningCluster, victims: str) -> None:
    source, target = topics(cluster, f"paused-{victims}")
    with Faults(cluster, (source, target)) as faults, Moves(cluster, source, target) as moves:
        moves.wait_committed(10)
        moves.wait_copied(3)
        faults.pause(*VICTIMS[victims](faults, source))
        moves.wait_committed(5)  # with the victims asleep
        moves.wait_copied(2)
        faults.heal()
        moves.wait_committed(5)
    moves.check(faults)


@pytest.mark.parametrize("client", OUTLIVING)
def test_the_broker_that_a_worker_speaks_to_dies(cluster: RunningCluster, client: str) -> None:
    """The worker's transaction coordinator or group coordinator is killed; both may be the same broker."""
    source, target = topics(cluster, f"spoken-to-{client}")
    with Faults(cluster, (source, target)) as faults, Moves(cluster, source, target, client=client) as moves:
        moves.wait_copied(3)
        with RawTransactions(cluster.bootstrap) as raw:
            port = raw.coordinator(moves.pipeline.transactional_id)
        faults.kill(next(node for node in cluster.brokers if node.port == port))
        moves.wait_copied(3)
        faults.heal()
        faults.kill(faults.coordinator(moves.pipeline.group))
        moves.wait_copied(3)
        faults.heal()
        moves.wait_copied(1)
    moves.check(faults)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_worker_that_wakes_up_after_it_was_replaced(cluster: RunningCluster, client: str) -> None:
    source, target = topics(cluster, f"zombie-{client}")
    with Faults(cluster, (source, target)) as faults, Moves(cluster, source, target, client=client) as moves:
        moves.wait_copied(3)
        for _ in range(3):
            zombie = moves.pipeline.worker
            zombie.pause()
            moves.pipeline.start()
            moves.wait_copied(3)
            zombie.resume()
            wait_until(lambda zombie=zombie: not zombie.alive, "the end of a worker that was replaced", 60)  # type: ignore[misc]
            assert zombie.fenced, zombie.said[-10:]
        faults.heal()
        moves.wait_copied(3)
    moves.check(faults)


@pytest.mark.parametrize("with_quorum_leader", [False, True])
def test_what_a_dead_producer_left_open_ends(cluster: RunningCluster, *, with_quorum_leader: bool) -> None:
    """The next quorum leader restarts the transaction's timeout, and still ends the transaction."""
    topic = f"left-open-{with_quorum_leader}".lower()
    make_topic(cluster.bootstrap, topic, PARTITIONS)
    client = Confluent(cluster.bootstrap)
    with Faults(cluster, (topic,), groups=False) as faults, RawTransactions(cluster.bootstrap) as raw:
        who = raw.init(f"dead-{topic}", timeout_ms=3_000)
        plain = client.producer(None)
        for partition in range(PARTITIONS):
            assert raw.add(who, topic, [partition]) == [ErrorCode.NONE]
            assert raw.produce(who, topic, partition, b"left open") is ErrorCode.NONE
            plain.send(topic, partition, b"behind it")
        plain.flush()
        if with_quorum_leader:
            faults.kill(faults.quorum_leader())
        wait_until(
            lambda: len(client.read(topic, committed=True)) == PARTITIONS, "the end of what was open", 60
        )
        faults.heal()
        assert raw.end(who, commit=True).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert {record.value for record in client.read(topic, committed=True)} == {b"behind it"}
    client.close()


def test_many_random_faults(cluster: RunningCluster, seed: int) -> None:
    source, target = topics(cluster, "random")
    with (
        Faults(cluster, (source, target), seed=seed) as faults,
        Moves(cluster, source, target, seed=seed, looks=False) as moves,
    ):
        moves.wait_committed(10)
        for _ in range(5):
            RandomFaults(faults, seed).run(5)
            moves.pipeline.kill()
            seed += 1
        faults.heal()
        moves.wait_committed(10)
        moves.wait_copied(2)
    moves.check(faults)
