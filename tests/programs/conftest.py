"""Third-party programs with real clusters, and kills in the middle.

All tests in this folder are marked `programs`: they run with `--programs` (make programs). Those marked `short` are
part of `make test` as well. With `--on-apache-kafka`, tests with this module's cluster run against Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster import RunningCluster, running_cluster
from tests.integration.history import SMALL_CLUSTER
from tests.java import tools as tools
from tests.programs.apache_kafka import running_apache_kafka
from tests.shared_fixtures import is_below

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--programs", action="store_true", help="run the programs that others wrote, all of them"
    )
    parser.addoption(
        "--on-apache-kafka",
        action="store_true",
        help="run programs against Apache Kafka, to see whether a failure is ours; needs Java and Maven",
    )


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    everything = config.getoption("--programs", default=False)
    for item in items:
        if not is_below(HERE, item):
            continue
        item.add_marker(pytest.mark.programs)
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
        if not everything and item.get_closest_marker("short") is None:
            item.add_marker(pytest.mark.skip(reason="one of the long ones: make programs"))


@pytest.fixture
def settings() -> Mapping[str, str]:
    """Return the settings of the cluster's brokers; a module may have others."""
    return SMALL_CLUSTER


@pytest.fixture
def cluster(
    tmp_path: Path, request: pytest.FixtureRequest, settings: Mapping[str, str]
) -> Iterator[RunningCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    on_kafka = request.config.getoption("--on-apache-kafka")
    start = running_apache_kafka if on_kafka else running_cluster
    with start(folder, settings=settings) as running:
        yield running
