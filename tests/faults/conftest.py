"""Fixtures and selection of tests of real faults. Tests marked `short` always run, the rest with `--all-faults`, as
in `make faults`.

All tests in this folder are marked `faults`. Tests with the fixture `cluster` share one cluster in each process of
pytest-xdist: every test uses its own topics, and leaves all processes running and in sync. The same holds for
`networked`, a cluster whose network can be cut.

Short tests form one group, so that a single cluster is started for all of them. With `--all-faults` each module is a
group.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.faults.cuts import HEAL_S
from tests.faults.faults import TALLY
from tests.faults.namespaces import CLIENT, NetworkCluster, network_cluster
from tests.faults.secured import SecuredCluster, secured_cluster
from tests.faults.workload import SESSIONS
from tests.integration.history import SMALL_CLUSTER
from tests.shared_fixtures import is_below

HERE = Path(__file__).parent
PROGRAM_HOSTS = ("p1", "p2", "p3")
"""Hosts in the network of `networked` for programs that a test cuts off from the cluster."""
SETTINGS = SMALL_CLUSTER | SESSIONS | {"broker.session.timeout.ms": "2000"}
"""Settings of a cluster whose processes are paused: after 2 s another broker leads."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-faults", action="store_true", help="run the long tests of real faults, too")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    everything = config.getoption("--all-faults", default=False)
    for item in items:
        if not is_below(HERE, item):
            continue
        item.add_marker(pytest.mark.faults)
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(item.path.stem if everything else "faults"))
        if not everything and item.get_closest_marker("short") is None:
            item.add_marker(pytest.mark.skip(reason="one of the long ones: make faults"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total: Counter[str] = Counter()
    for report in terminalreporter.getreports(""):
        total.update(dict(report.user_properties).get("faults", {}))
    if total:
        terminalreporter.write_line(", ".join(f"{what} {count}" for what, count in sorted(total.items())))


@pytest.fixture(autouse=True)
def tally(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Add the faults of the test to the summary."""
    before = TALLY.copy()
    yield
    record_property("faults", dict(TALLY - before))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run three quorum nodes and three brokers; each test leaves all of them running."""
    with running_cluster(tmp_path_factory.mktemp("faults"), settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """Run a cluster whose clients log in over TLS."""
    with secured_cluster(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def seed() -> int:
    """Return the seed of random faults: the environment variable OTTLA_FAULTS_SEED, or a new seed."""
    given = os.environ.get("OTTLA_FAULTS_SEED")
    return int(given) if given is not None else int.from_bytes(os.urandom(4))


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkCluster]:
    """Run three quorum nodes and three brokers, each on a separate host."""
    settings = SETTINGS | {"replica.lag.time.max.ms": "2000"}
    directory = tmp_path_factory.mktemp("networked")
    with network_cluster(directory, settings=settings, programs=PROGRAM_HOSTS) as running:
        yield running


@pytest.fixture
def networked(whole: NetworkCluster) -> Iterator[NetworkCluster]:
    """Enter the clients' host of the cluster; the network is whole before and after."""
    with whole.net.inside(CLIENT):
        yield whole
        whole.net.heal()
        whole.wait_until_quorum_agrees(HEAL_S)
        wait_until(lambda: whole.taking_part() == {node.id for node in whole.brokers}, "all brokers", HEAL_S)
