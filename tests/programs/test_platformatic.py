"""@platformatic/kafka for Node.js: records, groups, transactional copies and its admin, while nodes are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import RunningCluster
from tests.integration.foreign_builds import needs_node_22, platformatic
from tests.programs.clients import CODECS, Client, check_copies, check_group, check_records, make_empty_group
from tests.programs.clients import cluster as cluster

pytestmark = [needs_node_22, pytest.mark.timeout(400)]


@pytest.fixture
def client(cluster: RunningCluster, tmp_path: Path) -> Client:
    return Client(platformatic(), cluster, tmp_path)


def test_records(client: Client) -> None:
    check_records(client, "records", *CODECS)


def test_a_group_through_kills(client: Client) -> None:
    check_group(client, "group", once=False)


def test_transactional_copies_through_kills(client: Client) -> None:
    """The client's consumer sends OffsetFetch with `require_stable` false (#listCommittedOffsets in
    its consumer.js).
    """
    check_copies(client, "numbers", once=False)


def test_what_the_admin_client_is_told(client: Client) -> None:
    make_empty_group(client, "admin", "g-admin")
    assert client.admin("new", "g-admin") == {
        "created": [["new", 2, 3]],
        "created twice": "TOPIC_ALREADY_EXISTS",
        "fewer partitions": "INVALID_PARTITIONS",
        "described": [3, 4],
        "listed": True,
        "retention": "3600000",
        "retention after": "86400000",
        "retention again": "604800000",
        "altered wrongly": "INVALID_CONFIG",
        "end": 0,
        "listed group": True,
        "described group": ["Empty", 0],
        "committed topics": 1,
        "deleted nobody": "GROUP_ID_NOT_FOUND",
        "deleted group": "",
        "deleted twice": "UNKNOWN_TOPIC_OR_PARTITION",
    }
