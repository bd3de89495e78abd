"""Retention of real brokers that waits for a table: with a worker that is away, a leader that dies, and a coordinator
that is down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla import NewTopic, TopicPartition, sync
from ottla.client.admin import TOPIC_RESOURCE
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.history import coordinator_of
from tests.integration.test_metrics import scrape
from tests.lake.written_tables import values, worker

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("retention-hold"), pytest.mark.timeout(240)]

VALUE = b"v" * 60_000
PER_SEGMENT = (1 << 20) // len(VALUE)
RECORDS = 4 * PER_SEGMENT
HELD = "ottla_lake_held_bytes"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "100",
    # The coordinator of a group is down with its broker.
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    # Brokers have rights of their own when they ask one another.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run three brokers that check often for records to remove."""
    with running_cluster(tmp_path_factory.mktemp("hold"), quorum=1, settings=SETTINGS) as running:
        yield running


class HeldTopic:
    """A topic of one partition whose retention waits for its table.

    It is led by another broker than the group's coordinator, unless `at_coordinator`.
    """

    def __init__(
        self, brokers: RunningCluster, name: str, *, at_coordinator: bool = False, **settings: str
    ) -> None:
        self.brokers, self.name, self.place = brokers, name, TopicPartition(name, 0)
        with sync.Admin(bootstrap_servers=brokers.bootstrap) as admin:
            coordinator = coordinator_of(
                AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0}),
                f"ottla-lake-lake.{name}",
            )
            others = [broker.id for broker in brokers.brokers if broker.id != coordinator]
            self.coordinator = brokers.broker(coordinator)
            configs = {
                "segment.bytes": str(1 << 20),
                "min.insync.replicas": "2",
                "ottla.lake.enable": "true",
                "ottla.lake.hold": "true",
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
            replicas = [coordinator, *others] if at_coordinator else [*others, coordinator]
            admin.create_topics([NewTopic(name, assignments={0: replicas}, configs=configs)])
        self.written = 0

    def produce(self) -> None:
        """Write four segments."""
        with sync.Producer(bootstrap_servers=self.brokers.bootstrap) as producer:
            for _ in range(RECORDS):
                producer.send(self.name, VALUE, partition=0)
        self.written += RECORDS

    def set(self, **settings: str) -> None:
        """Change settings of the topic."""
        with sync.Admin(bootstrap_servers=self.brokers.bootstrap) as admin:
            admin.alter_configs(
                TOPIC_RESOURCE, self.name, {key.replace("_", "."): value for key, value in settings.items()}
            )

    def start(self) -> int:
        """Return the log start offset."""
        with sync.Admin(bootstrap_servers=self.brokers.bootstrap) as admin:
            offset = admin.list_offsets({self.place: -2})[self.place]
        assert isinstance(offset, int)
        return offset

    def wait_until_held(self) -> None:
        """Wait until the leader has checked retention, and holds segments."""
        wait_until(lambda: self.held_bytes() > 0, "the leader to hold segments")

    def held_bytes(self) -> float:
        """Return the bytes that the leader holds, by its metrics."""
        return sum(
            scrape(broker.entry["metrics"]).get(HELD, {}).get((self.name, "0"), 0)
            for broker in self.brokers.brokers
            if broker.alive
        )

    def segments(self) -> list[list[str]]:
        """Return the names of the segments on each broker."""
        return [
            sorted(path.name for path in folder.glob("*.log"))
            for folder in self.brokers.directory.rglob(f"{self.name}-0")
        ]

    def has_all(self) -> bool:
        """Return whether all brokers have all records."""
        return self.start() == 0 and [names[0] for names in self.segments()] == [f"{0:020d}.log"] * 3

    def write_table(self, folder: Path) -> None:
        """Run a worker once."""
        assert asyncio.run(worker(self.brokers, folder, self.name).run())

    def wait_until_gone(self) -> None:
        """Wait until all records are dropped on all brokers."""
        wait_until(lambda: self.start() == self.written, "retention to drop all records")
        # A follower keeps its newest segment.
        wait_until(lambda: [len(names) for names in self.segments()] == [1] * 3, "the followers to drop them")


def test_records_stay_until_the_table_has_them_whoever_leads(brokers: RunningCluster, tmp_path: Path) -> None:
    topic = HeldTopic(brokers, "orders", retention_ms="1000")
    topic.produce()
    topic.wait_until_held()
    assert topic.has_all()

    leader = brokers.leader("orders", 0)
    assert leader is not None
    brokers.broker(leader).kill9()
    wait_until(lambda: brokers.leader("orders", 0) not in (None, leader), "another leader")
    topic.wait_until_held()
    assert topic.has_all()
    topic.write_table(tmp_path)
    wait_until(lambda: topic.start() == topic.written, "retention to drop all records")
    assert topic.held_bytes() == 0
    brokers.broker(leader).restart()
    brokers.wait_until_in_sync("orders")
    topic.wait_until_gone()

    topic.produce()
    topic.wait_until_held()
    assert topic.start() == RECORDS
    topic.write_table(tmp_path)
    topic.wait_until_gone()
    assert len(values(tmp_path, "lake.orders")) == 2 * RECORDS


def test_the_size_of_a_log_waits_for_the_table_too(brokers: RunningCluster, tmp_path: Path) -> None:
    topic = HeldTopic(brokers, "large", at_coordinator=True, retention_bytes=str(1 << 20))
    topic.produce()
    topic.wait_until_held()
    assert topic.has_all()
    topic.write_table(tmp_path)
    wait_until(lambda: topic.start() > PER_SEGMENT, "retention to drop segments")
    assert topic.held_bytes() == 0
    assert len(values(tmp_path, "lake.large")) == RECORDS


def test_the_limit_lets_records_go_with_a_warning(brokers: RunningCluster) -> None:
    topic = HeldTopic(brokers, "late", retention_ms="1000", ottla_lake_hold_max_ms="1000")
    topic.produce()
    topic.wait_until_gone()
    warned = [
        broker.id
        for broker in brokers.brokers
        if "of late-0, which table lake.late may not have read, as its offsets are unknown" in broker.log()
    ]
    assert warned == [brokers.leader("late", 0)]


def test_a_coordinator_that_is_down_means_that_all_is_held(brokers: RunningCluster, tmp_path: Path) -> None:
    topic = HeldTopic(brokers, "mute", retention_ms="-1")
    topic.produce()
    topic.write_table(tmp_path)
    topic.coordinator.kill9()
    topic.set(retention_ms="1000")
    topic.wait_until_held()
    assert topic.start() == 0
    topic.coordinator.restart()
    topic.wait_until_gone()


def test_the_end_of_the_hold_and_deletions_by_a_person(brokers: RunningCluster) -> None:
    topic = HeldTopic(brokers, "ended", retention_ms="1000")
    topic.produce()
    topic.wait_until_held()
    with sync.Admin(bootstrap_servers=brokers.bootstrap) as admin:
        admin.delete_records({topic.place: PER_SEGMENT + 4})
        assert topic.start() == PER_SEGMENT + 4
        topic.set(ottla_lake_enable="false")
        topic.wait_until_gone()
        again = HeldTopic(brokers, "deleted", retention_ms="1000")
        again.produce()
        again.wait_until_held()
        admin.delete_topics(["deleted"])
    wait_until(lambda: not list(brokers.directory.rglob("deleted-0")), "the deleted topic to go")
    assert again.held_bytes() == 0
