"""segmentio/kafka-go: records, groups and its admin, while nodes are killed. It is not idempotent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import RunningCluster
from tests.integration.foreign_builds import kafka_go, needs_go
from tests.programs.clients import CODECS, Client, check_group, check_records, make_empty_group
from tests.programs.clients import cluster as cluster

pytestmark = [needs_go, pytest.mark.timeout(400)]


@pytest.fixture
def client(cluster: RunningCluster, tmp_path: Path) -> Client:
    return Client((kafka_go(),), cluster, tmp_path)


def test_records(client: Client) -> None:
    check_records(client, "records", *CODECS, once=False)


def test_a_group_through_kills(client: Client) -> None:
    check_group(client, "group", once=False)


def test_what_the_admin_client_is_told(client: Client) -> None:
    make_empty_group(client, "admin", "g-admin")
    assert client.admin("new", "g-admin") == {
        "created": "",
        "created twice": "Topic Already Exists",
        "more partitions": "",
        "fewer partitions": "Invalid Partition Number",
        "described": [3, 1, 4],
        "offsets": [0, 0, ""],
        "elected": "",
        "retention": "3600000",
        "altered": "",
        "retention after": "86400000",
        "altered back": "",
        "retention again": "604800000",
        "listed group": True,
        "described group": ["Empty", 0, ""],
        "deleted nobody": "Group ID Not Found",
        "deleted group": "",
        "acl created": "Security Disabled",
        "acls described": "Security Disabled",
        "deleted": ["", "Unknown Topic Or Partition"],
    }
