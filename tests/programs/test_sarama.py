"""Sarama, as clients of several ages: records, groups, exactly-once copies and its admin client, while nodes are
killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import RunningCluster, running_cluster
from tests.integration.foreign_builds import needs_go, sarama, sarama_1_45
from tests.integration.history import SMALL_CLUSTER
from tests.programs.clients import CODECS, Client, check_copies, check_group, check_records, make_empty_group

pytestmark = [needs_go, pytest.mark.timeout(400)]
FIRST_CODECS = CODECS[:4]
"""Codecs of the first versions; zstd came with 2.1."""
SETTINGS = SMALL_CLUSTER | {"group.min.session.timeout.ms": "1000"}
NEWEST = "4.3.1"
OLDER_NEWEST = "4.0.0"
"""Newest brokers that Sarama 1.45 knows."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings=SETTINGS) as running:
        yield running


def newer(cluster: RunningCluster, folder: Path, version: str = NEWEST) -> Client:
    return Client((sarama(), "-version", version), cluster, folder)


def older(cluster: RunningCluster, folder: Path, version: str = OLDER_NEWEST) -> Client:
    return Client((sarama_1_45(), "-version", version), cluster, folder)


@pytest.mark.parametrize(
    ("version", "codecs"),
    [
        ("0.11.0.0", FIRST_CODECS),
        ("1.0.0", FIRST_CODECS),
        ("2.8.0", CODECS),
        ("3.6.0", CODECS),
        (NEWEST, CODECS),
    ],
)
def test_records_as_for_brokers_of_an_age(
    cluster: RunningCluster, tmp_path: Path, version: str, codecs: tuple[str, ...]
) -> None:
    check_records(newer(cluster, tmp_path, version), f"records-{version}", *codecs)


@pytest.mark.parametrize("version", ["0.11.0.0", OLDER_NEWEST])
def test_batches_without_a_greatest_timestamp(cluster: RunningCluster, tmp_path: Path, version: str) -> None:
    codecs = FIRST_CODECS if version.startswith("0") else CODECS
    # No leader dies here: the retried batches of this Sarama pass each other, and it reports them as failed.
    check_records(older(cluster, tmp_path, version), f"older-{version}", *codecs, kill=False)


@pytest.mark.parametrize("version", ["0.11.0.0", "2.8.0", NEWEST])
def test_a_group_through_kills(cluster: RunningCluster, tmp_path: Path, version: str) -> None:
    check_group(newer(cluster, tmp_path, version), f"group-{version}")


def test_exactly_once_copies_through_kills(cluster: RunningCluster, tmp_path: Path) -> None:
    check_copies(newer(cluster, tmp_path), "numbers")


def expected_of_admin() -> dict[str, Any]:
    """Return the expected report for a cluster without security, with an existing topic and group."""
    unknown = "kafka server: Request was for a topic or partition that does not exist on this broker"
    disabled = "kafka server: Security features are disabled"
    return {
        "validated": "",
        "created": "",
        "more partitions": "",
        "described": f"4 {unknown}",
        "brokers": 3,
        "controller is one": True,
        "altered": "",
        "retention": "1 86400000 false",
        "altered in part": "",
        "policy": "1 delete,compact false",
        "retention after": "1 604800000 true",
        "altered back": "",
        "broker": "1",
        "listed group": "consumer",
        "described group": ["Empty", "consumer", "", 0],
        "described nobody": "Dead",
        "deleted nobody": "kafka server: The group id does not exist",
        "committed topics": 1,
        "deleted group": "",
        "purged": "",
        "purged too far": True,
        "folders": [1, ""],
        "reassigned": "",
        "on the move": 0,
        "elected": 4,
        "acl created": f"kafka server: failed to create one or more ACL rules: {disabled}",
        "quotas": [0, ""],
        "unknown user": 91,  # RESOURCE_NOT_FOUND, which Sarama has no name for
        "removed from nobody": "",
        "deleted twice": unknown,
    }


@pytest.mark.short
@pytest.mark.parametrize("make", [newer, older])
def test_what_the_admin_client_is_told(
    cluster: RunningCluster, tmp_path: Path, make: Callable[[RunningCluster, Path], Client]
) -> None:
    client, topic = make(cluster, tmp_path), f"admin-{make.__name__}"
    make_empty_group(client, topic, f"g-{topic}")
    report = client.admin(f"new-{topic}", f"g-{topic}")
    listed, *reasons = report.pop("listed"), report.pop("created twice"), report.pop("fewer partitions")
    assert listed[1:] == [3, "3600000"]  # by a broker that may not have heard of more partitions yet
    assert ["already exists" in reasons[0], "is invalid" in reasons[1]] == [True, True]
    assert "retention.ms" in report.pop("altered wrongly")
    acls = report.pop("acls listed"), report.pop("acls deleted")
    if make is newer:  # Sarama 1.45 does not look at the code
        assert all("Security features are disabled" in acl for acl in acls)
    assert report == expected_of_admin()
