"""A cluster of one process for the tests of the lake, and tables that were read back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import RunningCluster, running_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run a cluster."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        # Tests write timestamps of long ago, and retention checks 30 s after the start.
        "log.retention.ms": "-1",
    }
    with running_cluster(
        tmp_path_factory.mktemp("lake"), quorum=1, brokers=1, arguments=("--combined",), settings=settings
    ) as running:
        yield running
