"""kafkajs, a JavaScript client with rather old API versions: records, a group, its admin client."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.api_versions_seen import within_table
from tests.integration.conftest import create
from tests.integration.foreign_builds import needs_node, node_folder

pytestmark = [pytest.mark.cluster, needs_node, pytest.mark.timeout(240)]


@pytest.fixture
def addresses(bootstrap: str) -> Iterator[str]:
    with within_table(bootstrap, "kafkajs") as captured:
        yield captured


def run(scenario: str, bootstrap: str, topic: str) -> dict[str, Any]:
    """Return the report of a scenario."""
    argv = ["node", "client.js", scenario, bootstrap, topic]
    done = subprocess.run(argv, cwd=node_folder(), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_what_is_written_is_read_in_order(addresses: str, new_topic: str) -> None:
    assert run("records", addresses, new_topic) == {"read": {"0": 300, "1": 300}, "disorder": 0}


def test_members_of_a_group_share(addresses: str, admin: AdminClient) -> None:
    assert run("group", addresses, create(admin, 4)) == {
        "sent": 300,
        "read": 300,
        "committed": 300,
        "listed": True,
        "sought": "3",
        "described": ["Stable", "RoundRobinAssigner", 2],
    }


def test_the_admin_client_finds_its_way(addresses: str) -> None:
    report = run("admin", addresses, f"t{uuid.uuid4().hex[:10]}")
    assert len(report.pop("brokers")) == 3
    assert report == {
        "controller": True,
        "created": True,
        "created_again": False,
        "before": "86400000",
        "after": "1000000",
        "refused": "INVALID_CONFIG",
        "offsets": [[0, 30], [0, 30], [0, 30]],
        "at": [20, 20, 20],
        "low": [10, 0, 0],
        "moved": True,
    }
