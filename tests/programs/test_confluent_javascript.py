"""@confluentinc/kafka-javascript for Node.js: records, a group, exactly-once copies and its admin, while nodes are
killed. Then every way into a secured cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import RunningCluster
from tests.integration.foreign_builds import confluent_javascript, needs_node_addon
from tests.integration.secured_cells import TOLD, secured_cluster
from tests.integration.test_secured_matrix import other_language
from tests.programs.clients import CODECS, Client, check_copies, check_group, check_records, make_empty_group
from tests.programs.clients import cluster as cluster

pytestmark = [needs_node_addon, pytest.mark.timeout(900)]


@pytest.fixture
def client(cluster: RunningCluster, tmp_path: Path) -> Client:
    return Client(confluent_javascript(), cluster, tmp_path)


def test_records(client: Client) -> None:
    check_records(client, "records", *CODECS)


def test_a_group_through_kills(client: Client) -> None:
    check_group(
        client, "group", once=False
    )  # its commits do not wait, so a member may read far ahead of them


def test_exactly_once_copies_through_kills(client: Client) -> None:
    check_copies(client, "numbers")


def test_every_way_into_a_secured_cluster(tmp_path: Path) -> None:
    """The settings calls are left out, since the client's admin has none."""
    node, program = confluent_javascript()
    with secured_cluster(tmp_path) as secured:
        other_language(
            secured,
            "confluent-javascript",
            [node, str(Path(program).with_name("secured.mjs"))],
            expected={key: report for key, report in TOLD.items() if key != "setting"},
        )


def test_what_the_admin_client_is_told(client: Client) -> None:
    make_empty_group(client, "admin", "g-admin")
    assert client.admin("new", "g-admin") == {
        "created": True,
        "created twice": False,
        "too many replicas": "ERR_INVALID_REPLICATION_FACTOR",
        "listed": True,
        "described": [3, 3],
        "ends": ["0", "0"],
        "listed group": True,
        "described group": [True, 0],
        "committed": [[0, True]],
        "purged": 10,
        "begins at": "10",
        "deleted nobody": "ERR_GROUP_ID_NOT_FOUND",
        "deleted group": "",
        "deleted topic": "",
        "deleted twice": "ERR_UNKNOWN_TOPIC_OR_PART",
    }
