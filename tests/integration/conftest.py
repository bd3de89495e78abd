"""One cluster of three quorum nodes and three brokers for all tests of stock clients.

`OTTLA_TEST_CLUSTER=/path/to/cluster.json` runs them against a running cluster of Ottla or Apache Kafka, which settles
doubts about Kafka's behaviour. All tests with the cluster form one group, so that `pytest -n 2 --dist loadgroup` starts
it once, and it ends with the last of them. Tests that kill processes start separate clusters.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import running_cluster
from tests.integration.restorations import source_and_target as source_and_target
from tests.integration.restorations import store as store
from tests.integration.secured_cells import secured_cluster
from tests.integration.tls_cluster import TlsCluster
from tests.java import tools as tools
from tests.shared_fixtures import is_below

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that share a cluster into one process."""
    for item in items:
        if not is_below(HERE, item):
            continue
        names = getattr(item, "fixturenames", ())
        if "description" in names:
            item.add_marker(pytest.mark.xdist_group("shared"))
        elif "secured" in names:
            item.add_marker(pytest.mark.xdist_group("secured"))
        elif "source_and_target" in names:
            item.add_marker(pytest.mark.xdist_group("backups"))


@pytest.fixture(scope="session")
def description(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return cluster.json of the shared cluster."""
    if given := os.environ.get("OTTLA_TEST_CLUSTER"):
        yield json.loads(Path(given).read_text())
        return
    settings = {"group.initial.rebalance.delay.ms": "200", "quota.window.num": "3"}
    with running_cluster(
        tmp_path_factory.mktemp("cluster"), quorum=3, brokers=3, settings=settings
    ) as cluster:
        yield cluster.description


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    """Run two brokers with a listener for each security protocol, users, and an authorizer."""
    with secured_cluster(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(description: dict[str, Any]) -> str:
    """Return the addresses of the shared cluster."""
    return str(description["bootstrap"])


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create(admin: AdminClient, partitions: int) -> str:
    """Create a topic with three replicas, all of them in sync."""
    name = f"t{uuid.uuid4().hex[:10]}"
    admin.create_topics([NewTopic(name, partitions, 3)])[name].result(60)
    deadline = time.monotonic() + 60
    while True:
        found = admin.list_topics(name, 60).topics[name].partitions.values()
        if len(found) == partitions and all(p.leader >= 0 and len(p.isrs) == 3 for p in found):
            return name
        assert time.monotonic() < deadline, f"{name} is not in sync"
        time.sleep(0.02)


@pytest.fixture
def new_topic(admin: AdminClient) -> str:
    """Return the name of a new topic with three partitions."""
    return create(admin, 3)


@pytest.fixture
def one_partition(admin: AdminClient) -> str:
    return create(admin, 1)
