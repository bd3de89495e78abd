"""The Rust crate rdkafka: records and a group, while nodes and the program are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import RunningCluster, running_cluster
from tests.integration.foreign_builds import needs_cargo, rdkafka
from tests.integration.history import SMALL_CLUSTER
from tests.programs.clients import CODECS, Client, check_group, check_records

pytestmark = [needs_cargo, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings=SMALL_CLUSTER) as running:
        yield running


@pytest.fixture
def client(cluster: RunningCluster, tmp_path: Path) -> Client:
    return Client((rdkafka(),), cluster, tmp_path)


def test_records(client: Client) -> None:
    check_records(client, "records", *CODECS)


def test_a_group_through_kills(client: Client) -> None:
    check_group(client, "group")
