"""Fixtures for the tests of programs that use Kafka.

A test asks for `ottla`: the address of a cluster, and names that no other test uses. The shared cluster,
`ottla_cluster`, starts when the first test asks for it, and stays for the session. Under pytest-xdist each worker has a
separate cluster.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .failures import LocalClusterError

if TYPE_CHECKING:
    from .local_cluster import LocalCluster

NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9._-]")
NAME_CHARACTERS_MAX = 200


class IsolatedTopics:
    """Access to the session's cluster for one test: client options, and unique names of topics and groups that no other
    test uses."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        """Cluster of the session. A test may kill and pause its nodes; they are repaired for the next test."""
        self._names: list[str] = []

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the brokers, in the form that every client accepts."""
        return self.cluster.bootstrap_servers

    @property
    def client_options(self) -> dict[str, Any]:
        """Keyword arguments for Ottla's own clients and kafka-python's: addresses and credentials."""
        return self.cluster.client_options

    @property
    def confluent_options(self) -> dict[str, str]:
        """Options for confluent-kafka and other clients with librdkafka's names: addresses and credentials."""
        return self.cluster.confluent_options

    @property
    def aiokafka_options(self) -> dict[str, Any]:
        """Keyword arguments for aiokafka, which takes an SSLContext instead of files."""
        return self.cluster.aiokafka_options

    def unique(self, name: str) -> str:
        """Return a unique name that begins with `name`, for groups, transactional ids, or topics.

        A topic of this name that the program under test creates is deleted after the test. Raises ValueError if `name`
        has characters that Kafka forbids, or more than 200 characters.
        """
        if not name or len(name) > NAME_CHARACTERS_MAX or NOT_IN_NAMES.search(name):
            allowed = f"1 to {NAME_CHARACTERS_MAX} letters, digits, '.', '_' or '-'"
            raise ValueError(f"a name is {allowed}, not {name!r}")
        self._names.append(f"{name}-{uuid.uuid4().hex[:12]}")
        return self._names[-1]

    def topic(
        self, name: str = "topic", partitions: int = 1, *, configs: dict[str, str] | None = None
    ) -> str:
        """Create a topic with a unique name that begins with `name`, and return the name. The topic is deleted after
        the test.

        Raises ValueError for names as `unique` does, and KafkaError if the cluster refuses.
        """
        topic = self.unique(name)
        self.cluster.create_topic(topic, partitions, configs=configs)
        return topic

    def clean_up(self) -> None:
        """Resume and restart the cluster's dead or paused nodes, and delete the topics that the test has used.
        Afterwards raises LocalClusterError if a node died by itself."""
        try:
            self.cluster.heal()
        except LocalClusterError:
            self.cluster.heal()  # the second call starts the dead node, as it was already reported
            self._delete_topics()
            raise
        self._delete_topics()

    def _delete_topics(self) -> None:
        if self._names:
            self.cluster.delete_topics(*self._names)


@pytest.fixture(scope="session")
def ottla_cluster(pytestconfig: pytest.Config) -> Iterator[LocalCluster]:
    """Yield the cluster of this session, an `ottla.testing.LocalCluster`. Command line options and ini settings of
    pytest determine the number of nodes."""
    from .local_cluster import LocalCluster

    brokers = _number(pytestconfig, "ottla_brokers")
    quorum_nodes = _number(pytestconfig, "ottla_quorum_nodes")
    settings = _settings(pytestconfig)
    try:
        cluster = LocalCluster(brokers, quorum_nodes, settings=settings, security=_security(pytestconfig))
    except ValueError as error:
        raise pytest.UsageError(f"ottla_cluster: {error}") from None
    with cluster:
        yield cluster


@pytest.fixture
def ottla(ottla_cluster: LocalCluster) -> Iterator[IsolatedTopics]:
    """Yield the cluster for one test, with `bootstrap_servers`, `topic(name, partitions)`, `unique(name)`,
    `cluster`.
    """
    ottla_cluster.heal()
    isolated = IsolatedTopics(ottla_cluster)
    yield isolated
    isolated.clean_up()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add pytest's options and ini settings for the cluster's number of nodes and broker settings."""
    group = parser.getgroup("ottla", "the cluster of the fixtures ottla and ottla_cluster")
    group.addoption("--ottla-brokers", type=int, metavar="N", help="brokers of the cluster (1)")
    group.addoption("--ottla-quorum-nodes", type=int, metavar="N", help="its quorum nodes: 1, 3 or 5 (1)")
    group.addoption(
        "--ottla-security", metavar="PROTOCOL", help="sasl_ssl, ssl or sasl_plaintext; none, if not given"
    )
    parser.addini("ottla_security", "sasl_ssl, ssl or sasl_plaintext; --ottla-security wins", default="")
    parser.addini("ottla_brokers", "brokers of the cluster; --ottla-brokers wins", default="1")
    parser.addini("ottla_quorum_nodes", "its quorum nodes; --ottla-quorum-nodes wins", default="1")
    parser.addini("ottla_settings", "its settings, a line each: log.segment.bytes=1048576", type="linelist")


def _number(config: pytest.Config, name: str) -> int:
    given = config.getoption(f"--{name.replace('_', '-')}")
    if given is not None:
        return int(given)
    text = str(config.getini(name))
    try:
        return int(text)
    except ValueError:
        raise pytest.UsageError(f"{name} in {config.inipath} is a number, not {text!r}") from None


def _security(config: pytest.Config) -> str | None:
    given = config.getoption("--ottla-security")
    return str(config.getini("ottla_security") if given is None else given).strip().lower() or None


def _settings(config: pytest.Config) -> dict[str, str]:
    settings = {}
    for line in config.getini("ottla_settings"):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise pytest.UsageError(
                f"ottla_settings in {config.inipath} has lines of key=value, not {line!r}"
            )
        settings[key.strip()] = value.strip()
    return settings
