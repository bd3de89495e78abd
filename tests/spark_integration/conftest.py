"""One Spark session and one cluster for all of these tests, which run on one process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.testing.local_cluster import LocalCluster
from tests.spark_integration.session import new_session

STARTS_S = 120


@pytest.hookimpl(tryfirst=True)  # before xdist looks at groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All on one process. `make faults` runs what takes longer than `make test` has time for."""
    here, everything = Path(__file__).parent, config.getoption("--all-faults", default=False)
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(STARTS_S))
            if {"spark", "spark_cluster"} & set(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("faults") is not None and not everything:
                item.add_marker(pytest.mark.skip(reason="one of the long ones: make faults"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Its executors are Python processes like this one."""
    session = new_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[LocalCluster]:
    """One broker is enough for what Spark does. Topics are made by tests."""
    with LocalCluster(1, settings={"auto.create.topics.enable": "false"}) as cluster:
        yield cluster
