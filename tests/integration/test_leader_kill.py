"""The leading broker is killed by SIGKILL while a stock client writes and reads.

No acknowledged record is lost, duplicated or reordered, and the reader goes on, although the broker also coordinated
its group. All clients go through one kill at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import RunningCluster, running_cluster
from tests.integration.history import (
    SMALL_CLUSTER,
    Read,
    coordinator_of,
    read_all,
    wait_identical_replicas,
)
from tests.integration.stock_clients import NAMES, Process, installed, number_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("leader-kill"),  # one cluster, one kill
]

PER_SECOND = 100
BEFORE, AFTER = 50, 150
"""Least numbers of records acknowledged before and after the kill."""


@dataclass
class Survival:
    """The course of one client."""

    topic: str
    producer: Process
    consumer: Process
    before: int = 0
    """Records acknowledged before the kill."""
    stored: list[Read] | None = None
    went_wrong: str = ""
    """The first event that did not happen in time."""

    def go_on(self, what: str, process: Process, condition: object, timeout_s: float = 40) -> None:
        """Wait for a process unless something failed before."""
        if not self.went_wrong:
            try:
                process.wait_until(condition, what, timeout_s)
            except AssertionError as error:
                self.went_wrong = str(error)


def make_topic_led_by(admin: AdminClient, topic: str, replicas: list[int]) -> None:
    """Make a topic of one partition, led by the first of these brokers."""
    wanted = NewTopic(topic, 1, replica_assignment=[replicas], config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[topic].result(30)


def group_coordinated_by(admin: AdminClient, name: str, broker_id: int) -> str:
    """Return the name of a group whose coordinator is this broker."""
    return next(group for n in count() if coordinator_of(admin, group := f"reads-{name}-{n}") == broker_id)


@pytest.fixture(scope="module")
def survivals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Survival]]:
    """Run all clients at once: each writes and reads one partition, all of them led by the killed broker."""
    clients = installed(tmp_path_factory.mktemp("clients"))
    with (
        running_cluster(tmp_path_factory.mktemp("killed"), settings=SMALL_CLUSTER) as cluster,
        ExitStack() as stack,
    ):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        victim = cluster.brokers[0]
        replicas = [node.id for node in cluster.brokers]
        running: dict[str, Survival] = {}
        for name, client in clients.items():
            topic = f"led-{name}"
            make_topic_led_by(admin, topic, replicas)
            group = group_coordinated_by(admin, name, victim.id)
            producer = client.producer(cluster.bootstrap, topic, per_second=PER_SECOND)
            consumer = client.consumer(cluster.bootstrap, topic, group)
            running[name] = Survival(topic, stack.enter_context(producer), stack.enter_context(consumer))
        for survival in running.values():
            survival.go_on(
                "acknowledgements",
                survival.producer,
                lambda survival=survival: len(survival.producer.acknowledged) > BEFORE,
            )
            survival.go_on(
                "records read", survival.consumer, lambda survival=survival: survival.consumer.read
            )
        assert {cluster.leader(survival.topic, 0) for survival in running.values()} == {victim.id}
        for survival in running.values():
            survival.before = len(survival.producer.acknowledged)
        victim.kill9()
        for survival in running.values():
            survival.go_on(
                "acknowledgements by the next leader",
                survival.producer,
                lambda survival=survival: len(survival.producer.acknowledged) > survival.before + AFTER,
            )
        victim.restart()
        for survival in running.values():
            survival.producer.stop()
            finish(cluster, survival)
        yield running


def finish(cluster: RunningCluster, survival: Survival) -> None:
    """Read the stored records, and wait until the client's reader has read them, too."""
    wait_identical_replicas(cluster, survival.topic, 1)
    survival.stored = stored = read_all(cluster.bootstrap, survival.topic)
    places = {record.place for record in stored}
    survival.go_on(
        "all records read",
        survival.consumer,
        lambda: {record.place for record in survival.consumer.read} >= places,
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_was_acknowledged_is_there_once_and_in_order(survivals: dict[str, Survival], name: str) -> None:
    survival = survivals[name]
    assert not survival.went_wrong, survival.went_wrong
    assert survival.producer.failures == []
    assert survival.stored is not None
    assert [number_of(record.value) for record in survival.stored] == list(range(len(survival.stored)))
    stored = {record.place: record.value for record in survival.stored}
    for place, value in survival.producer.acknowledged:
        assert stored[place] == (value if value is not None else stored[place])
    acknowledged = [place for place, _ in survival.producer.acknowledged]
    assert acknowledged == sorted(set(acknowledged))
    assert len(acknowledged) > survival.before + AFTER


@pytest.mark.parametrize("name", NAMES)
def test_the_reader_goes_on_though_leader_and_coordinator_died(
    survivals: dict[str, Survival], name: str
) -> None:
    survival = survivals[name]
    assert not survival.went_wrong, survival.went_wrong
    assert survival.stored is not None
    stored = {record.place: record.value for record in survival.stored}
    assert {record.place: record.value for record in survival.consumer.read} == stored
