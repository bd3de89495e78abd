"""franz-go, a Go client that uses the newest version of every API: records, groups of both
protocols, share groups, its admin client.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.cluster import running_cluster, wait_until
from tests.integration.api_versions_seen import within_table
from tests.integration.conftest import create
from tests.integration.foreign_builds import franz, needs_go
from tests.integration.history import SMALL_CLUSTER, make_topic, wait_identical_replicas
from tests.integration.share_groups import from_the_beginning, unfinished, wait_until_finished

pytestmark = [pytest.mark.cluster, needs_go, pytest.mark.timeout(500)]


@pytest.fixture
def addresses(bootstrap: str) -> Iterator[str]:
    with within_table(bootstrap, "franz-go") as captured:
        yield captured


def run(scenario: str, bootstrap: str, topic: str, *arguments: str) -> dict[str, Any]:
    """Return the report of a scenario."""
    argv = [franz(), scenario, bootstrap, topic, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def test_what_is_written_with_any_codec_is_read_in_order(addresses: str, new_topic: str) -> None:
    report = run("records", addresses, new_topic)
    assert report["read"] == dict.fromkeys(("none", "gzip", "snappy", "lz4", "zstd"), 300)


@pytest.mark.parametrize(
    ("protocol", "assignor"), [("classic", "cooperative-sticky"), ("consumer", "uniform")]
)
def test_members_of_a_group_share_and_nothing_is_read_twice(
    addresses: str, admin: AdminClient, protocol: str, assignor: str
) -> None:
    topic = create(admin, 4)
    report = run("group", addresses, topic, f"g-{uuid.uuid4().hex[:8]}", protocol)
    assert report["described"] == ["Stable", assignor, 2]
    # Both are cooperative: the first member gave back only what the second one got.
    assert sorted(report["revoked"]) == report["second"]
    assert sorted(report["first"] + report["second"]) == [0, 1, 2, 3]
    assert (report["read"], report["repeated"], report["lag"]) == (report["sent"], 0, 0)
    assert report["committed"] == {str(partition): report["sent"] // 4 for partition in range(4)}


def test_share_groups_copy_all_records_that_are_not_rejected(addresses: str, admin: AdminClient) -> None:
    count, rejected = 2_000, list(range(50))
    first, second, third = (f"{create(admin, 3)},{create(admin, 1)}" for _ in range(3))
    groups = [
        from_the_beginning(addresses, f"g-{uuid.uuid4().hex[:8]}", share__delivery__count__limit="10")
        for _ in range(2)
    ]
    report = run("stages", addresses, first, ",".join(groups), second, third, str(count))
    kept = [number for number in range(count) if number not in rejected]
    stages = report["first"], report["second"]
    # Which members get a record is up to chance, so one stage may have had no release.
    assert max(stage.pop("delivered") for stage in stages) > 1, "released records return"
    assert sum(stage.pop("released") for stage in stages) > 0
    for stage, refused in zip(stages, (rejected, []), strict=True):
        assert stage == {"accepted": kept, "rejected": refused, "repeated": 0, "errors": {}}
    for group in groups:
        wait_until_finished(addresses, group)


def test_a_closed_member_of_a_share_group_has_sent_its_acknowledgements(
    addresses: str, one_partition: str
) -> None:
    producer = Producer({"bootstrap.servers": addresses})
    for number in range(50):
        producer.produce(one_partition, str(number))
    assert producer.flush(60) == 0
    group = from_the_beginning(addresses, f"g-{one_partition}")
    report = run("accepted", addresses, one_partition, group, "50")
    assert report == {"deliveries": [1] * 50}
    assert unfinished(addresses, group) == 0


def test_start_offsets_of_share_groups_are_set_described_and_deleted(
    addresses: str, one_partition: str
) -> None:
    producer = Producer({"bootstrap.servers": addresses})
    for number in range(20):
        producer.produce(one_partition, str(number))
    assert producer.flush(60) == 0
    report = run("share-offsets", addresses, one_partition, f"g-{one_partition}")
    assert report.pop("again").partition(":")[0] == "GROUP_ID_NOT_FOUND"
    assert report == {"altered": [0, 8, 12], "listed": "Empty", "deleted": []}


def test_the_admin_client_finds_its_way(addresses: str) -> None:
    report = run("admin", addresses, f"t{uuid.uuid4().hex[:10]}")
    brokers = report.pop("brokers")
    assert len(brokers) == 3
    assert report.pop("broker_configs") > 50
    errors = {
        key: report.pop(key).partition(":")[0]
        for key in ("created_again", "refused", "cancelled", "elected_again", "deleted_again")
    }
    assert errors == {
        "created_again": "TOPIC_ALREADY_EXISTS",
        "refused": "INVALID_CONFIG",
        "cancelled": "NO_REASSIGNMENT_IN_PROGRESS",
        "elected_again": "ELECTION_NOT_NEEDED",
        "deleted_again": "GROUP_ID_NOT_FOUND",
    }
    assert report == {
        "created": [2, 2, True],
        "configs": {"max.message.bytes": "500000", "cleanup.policy": "delete,compact"},
        "replaced": {"retention.ms": "1000000"},
        "moved": True,
        "low_watermark": 10,
        "start": [10, 0, 0],
        "local_start": [10, 0, 0],
        "end": [30, 30, 30],
        "committed": [30, 30, 30],
        "max_timestamp": [29, 29, 29],
        "after": [20, 20, 20],
        "producers": 1,
        "epoch_end": 30,
        "group_listed": "Empty",
        "group_stable": 0,
        "classic": True,
        "lag": 30,
        "offsets_left": 2,
        "quotas": [{"Key": "producer_byte_rate", "Value": 1_000_000}],
        "log_dirs": {str(broker): True for broker in brokers},
    }


class Load:
    """The load scenario as a process, observed by its last output line."""

    def __init__(self, bootstrap: str, topic: str, per_second: int, folder: Path) -> None:
        self._out, self._err = folder / "load.out", folder / "load.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            argv = [franz(), "load", bootstrap, topic, str(per_second)]
            self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=err)

    def last(self) -> dict[str, Any]:
        lines = self._out.read_text().rpartition("\n")[0].splitlines()
        report: dict[str, Any] = (
            json.loads(lines[-1]) if lines else {"acknowledged": 0, "read": 0, "failed": []}
        )
        return report

    def wait(self, what: str, more: int) -> None:
        goal = self.last()[what] + more
        wait_until(lambda: self.last()[what] >= goal or self.process.poll() is not None, f"{goal} {what}")
        assert self.process.poll() is None, self._err.read_text()[-3000:]

    def stop(self) -> dict[str, Any]:
        self.process.communicate(timeout=90)
        assert self.process.returncode == 0, self._err.read_text()[-3000:]
        return self.last()


def test_nobody_notices_when_all_brokers_and_quorum_nodes_restart(tmp_path: Path) -> None:
    with running_cluster(tmp_path, settings=SMALL_CLUSTER) as cluster:
        make_topic(cluster.bootstrap, "rolled", 4, min_insync_replicas=2)
        load = Load(cluster.bootstrap, "rolled", 300, tmp_path)
        try:
            load.wait("read", 100)
            for node in (*cluster.brokers, *cluster.quorum):
                load.wait("acknowledged", 50)
                node.terminate()
                load.wait("acknowledged", 50)
                node.restart()
                if node.role == "broker":
                    cluster.wait_until_in_sync("rolled")
                    cluster.wait_until_in_sync("__consumer_offsets")
                else:
                    cluster.wait_until_quorum_agrees()
            load.wait("read", 100)
            report = load.stop()
        finally:
            load.process.kill()
            load.process.wait()
        assert report["failed"] == []
        assert report["read"] >= report["acknowledged"] > 700
        wait_identical_replicas(cluster, "rolled", 4)
