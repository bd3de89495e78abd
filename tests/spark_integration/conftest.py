"""A shared Spark session, and a cluster.

These tests run in one process, one after the other. Tests that start separate drivers run in another process.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.testing.local_cluster import LocalCluster
from tests.shared_fixtures import is_below
from tests.spark_integration.session import close_connection, new_session

ENDS_S = 120
"""Seconds within which a test function ends. The start of Spark does not count: it takes minutes on a busy machine, and
every later test would get the error of a start that was cut off."""


@pytest.hookimpl(tryfirst=True)  # before xdist looks at groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group tests with Spark, and skip tests that take too long for `make test`; `make faults` runs them."""
    here, everything = Path(__file__).parent, config.getoption("--all-faults", default=False)
    for item in items:
        if is_below(here, item):
            names = getattr(item, "fixturenames", ())
            if "spark" in names or "spark_cluster" in names:
                item.add_marker(pytest.mark.xdist_group("spark" if "spark" in names else "spark drivers"))
                item.add_marker(pytest.mark.timeout(ENDS_S, func_only=True))
                item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("faults") is not None and not everything:
                item.add_marker(pytest.mark.skip(reason="one of the long ones: make faults"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Close this thread's connection with the JVM after a failure, since an answer may be left on it."""
    report = yield
    if report.failed:
        close_connection()
    return report


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Run a session whose executors are Python processes like this one."""
    session = new_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[LocalCluster]:
    """Run a single broker, which suffices for Spark. Tests create their topics."""
    with LocalCluster(1, settings={"auto.create.topics.enable": "false"}) as cluster:
        yield cluster
