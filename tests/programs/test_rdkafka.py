"""The Rust crate rdkafka: records, a group and exactly-once copies, while nodes and the program are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import RunningCluster
from tests.integration.foreign_builds import needs_cargo, rdkafka
from tests.programs.clients import CODECS, Client, check_copies, check_group, check_records
from tests.programs.clients import cluster as cluster

pytestmark = [needs_cargo, pytest.mark.timeout(600)]


@pytest.fixture
def client(cluster: RunningCluster, tmp_path: Path) -> Client:
    return Client((rdkafka(),), cluster, tmp_path)


def test_records(client: Client) -> None:
    check_records(client, "records", *CODECS)


def test_a_group_through_kills(client: Client) -> None:
    check_group(client, "group")


def test_exactly_once_copies_through_kills(client: Client) -> None:
    check_copies(client, "numbers")
