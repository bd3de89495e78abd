"""Ottla's client with Apache Kafka itself, and with Ottla: the tests hold for both.

`make compat` runs these tests. Otherwise they are skipped, since they start Kafka, which needs Java, and `mvn` to fetch
its jars once from Maven Central. One broker and one quorum node of each are shared by all tests.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from benchmarks.clusters import Cluster, ottla_cluster
from benchmarks.kafka import JAR_CACHE, kafka_cluster
from ottla import Admin, NewTopic
from tests.compat.old_kafka import old_kafka_cluster
from tests.shared_fixtures import is_below

HERE = Path(__file__).parent
SMALL = {
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.share.min.record.lock.duration.ms": "1000",
}
ALONE = {
    "broker.session.timeout.ms": "3000",  # a killed broker cannot come back earlier
    "broker.heartbeat.interval.ms": "500",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class Topics(Protocol):
    """A function that creates a topic for the test alone, and returns its name."""

    async def __call__(self, partitions: int = 1, **configs: str) -> str: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compat", action="store_true", help="run the client against Apache Kafka")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--compat") and (missing := _missing()):
        pytest.exit(f"make compat runs Apache Kafka, and there is no {' and no '.join(missing)} here", 1)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if is_below(HERE, item):
            item.add_marker(pytest.mark.compat)
            item.add_marker(pytest.mark.xdist_group("compat"))
            if not config.getoption("--compat", default=False):
                item.add_marker(pytest.mark.skip(reason="against Apache Kafka: make compat"))


def _missing() -> list[str]:
    wanted = ["java"] if (JAR_CACHE / "complete").exists() else ["java", "mvn"]
    return [program for program in wanted if shutil.which(program) is None]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run Apache Kafka."""
    with kafka_cluster(
        tmp_path_factory.mktemp("kafka"), brokers=1, quorum=1, settings=SMALL | ALONE
    ) as running:
        yield running


@pytest.fixture(scope="session")
def old_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run an Apache Kafka from before topic ids, which still needs ZooKeeper."""
    with old_kafka_cluster(tmp_path_factory.mktemp("old-kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run Ottla."""
    with ottla_cluster(tmp_path_factory.mktemp("ottla"), brokers=1, quorum=1, settings=SMALL) as running:
        yield running


@pytest.fixture(params=["kafka", "ours"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Return the addresses of Kafka, then of Ottla."""
    cluster: Cluster = request.getfixturevalue(request.param)
    return cluster.bootstrap


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture
def topics(admin: Admin) -> Topics:
    async def create(partitions: int = 1, **configs: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        changed = {key.replace("_", "."): value for key, value in configs.items()}
        await admin.create_topics([NewTopic(name, partitions, configs=changed)])
        return name

    return create


@pytest.fixture
def group() -> str:
    """Return the name of an unused group."""
    return f"g-{uuid.uuid4().hex[:12]}"
