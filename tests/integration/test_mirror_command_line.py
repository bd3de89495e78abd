"""`ottla mirror` with two clusters: the first copy, an accepted loss, and local records of the target."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import NewTopic, TopicPartition
from ottla.sync import Admin, Producer
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.commands import run_ottla

pytestmark = pytest.mark.xdist_group("mirrors")

DEADLINE_S = 60.0
NOON_MS = 1_769_860_800_000
"""2026-01-31T12:00Z."""


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningCluster, RunningCluster]]:
    """Run source and target."""
    with (
        running_cluster(tmp_path_factory.mktemp("source"), quorum=1, brokers=1) as source,
        running_cluster(tmp_path_factory.mktemp("target"), quorum=1, brokers=3) as target,
    ):
        yield source, target


def run(target: RunningCluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the form that users type."""
    return run_ottla("mirror", *words, "-b", target.bootstrap, "-o", "json", timeout_s=DEADLINE_S)


def mirror(target: RunningCluster, *words: str) -> Any:
    """Return the output of a successful command."""
    done = run(target, *words)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def refusal(target: RunningCluster, *words: str) -> str:
    """Return the complaint of a failing command."""
    done = run(target, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    return done.stderr


def topic_of(status: dict[str, Any]) -> dict[str, Any]:
    """Return the topic `orders` of a status, which also lists the copied offsets."""
    found: dict[str, Any]
    (found,) = (topic for topic in status["topics"] if topic["name"] == "orders")
    return found


def until(target: RunningCluster, holds: Callable[[dict[str, Any]], bool]) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the status of partition 0 of mirror west, once the condition holds."""
    ends = time.monotonic() + DEADLINE_S
    while True:
        done = run(target, "status", "west")
        partition = topic_of(json.loads(done.stdout)[0])["partitions"][0] if done.stdout else None
        if partition is not None and holds(partition):
            return done.returncode, partition
        assert time.monotonic() < ends, (done.returncode, done.stdout, done.stderr)


def write(cluster: RunningCluster, count: int) -> list[int]:
    """Write this number of records to partition 0, and return their offsets."""
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        sent = [producer.send("orders", b"%d" % number, partition=0) for number in range(count)]
        return [future.result(DEADLINE_S).offset for future in sent]


def test_a_topic_moves_from_one_cluster_to_another(clusters: tuple[RunningCluster, RunningCluster]) -> None:
    source, target = clusters
    with Admin(bootstrap_servers=source.bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 3, 1)])
        write(source, 50)
        admin.alter_offsets("billing", {TopicPartition("orders", 0): 20})
    words = ("create", "west", "--from", source.bootstrap, "--topics", "ord.*", "--groups", "bill.*")
    source_id = mirror(target, *words, "--dry-run")["source_cluster_id"]
    assert mirror(target, "list") == []
    assert mirror(target, *words, "--wait") == {
        "name": "west",
        "source_cluster_id": source_id,
        "result": "caught up",
    }
    (status,) = mirror(target, "status", "west")
    orders = topic_of(status)
    assert (status["phase"], status["lag"], orders["state"]) == ("active", 0, "copying")
    assert [copy["log_end_offset"] for copy in orders["partitions"]] == [50, 0, 0]
    assert "is this cluster" in refusal(target, "create", "self", "--from", target.bootstrap)

    mirror(target, "pause", "west")
    write(source, 50)
    with Admin(bootstrap_servers=source.bootstrap) as admin:
        admin.delete_records({TopicPartition("orders", 0): 80})
    mirror(target, "resume", "west")
    code, partition = until(target, lambda copy: copy["fault"] is not None)
    fault = partition["fault"]
    assert (code, fault["kind"], fault["first"], fault["end"]) == (1, "gap", 50, 80)
    accepted = mirror(target, "resume", "west", "--accept-gap", "--topic", "orders")["accepted"]
    assert [
        (stopped["topic"], stopped["partition"], stopped["first"], stopped["end"]) for stopped in accepted
    ] == [("orders", 0, 50, 80)]
    code, _ = until(target, lambda copy: copy["log_end_offset"] == 100 and copy["lag"] == 0)
    assert code == 0
    wait_until(
        lambda: mirror(target, "status", "west")[0]["lag"] == 0, "the source's records of every partition"
    )

    with Admin(bootstrap_servers=target.bootstrap) as admin:
        wanted = {TopicPartition("orders", 0): 20}
        wait_until(lambda: admin.committed_offsets("billing") == wanted, "the offsets of the group")
    assert "has 1 topics that take no records" in refusal(target, "delete", "west")
    promoted = mirror(target, "promote", "west")
    assert promoted == {
        "name": "west",
        "result": "promoted",
        "topics": 1,
        "partitions": 3,
        "lag_before": 0,
        "faults": 0,
        "cut": None,
    }
    assert write(target, 1) == [100]
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        assert admin.committed_offsets("billing") == {TopicPartition("orders", 0): 20}
    mirror(target, "delete", "west")
    assert mirror(target, "list") == []
    assert write(target, 1) == [101]


def audit(source: RunningCluster, target: RunningCluster, *words: str) -> tuple[int, Any]:
    """Return the exit code and the findings of an audit of both clusters' logs."""
    done = run_ottla(
        *("audit", "-b", source.bootstrap, "--copy", target.bootstrap, "-o", "json", *words),
        timeout_s=DEADLINE_S,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_an_audit_of_both_clusters_names_what_the_copy_lacks(
    clusters: tuple[RunningCluster, RunningCluster],
) -> None:
    source, target = clusters
    copied = f"log@{target.bootstrap}"

    def write_at_noon(first: int, count: int) -> None:
        with Producer(bootstrap_servers=source.bootstrap) as producer:
            for number in range(first, first + count):
                producer.send("audited", b"v", timestamp_ms=NOON_MS + 10_000 * number)

    with Admin(bootstrap_servers=source.bootstrap) as admin:
        admin.create_topics([NewTopic("audited", 2, 1, configs={"retention.ms": "-1"})])
    write_at_noon(0, 90)
    mirror(target, "create", "audited", "--from", source.bootstrap, "--topics", "audited", "--wait")
    code, found = audit(source, target, "--topic", "audited")
    assert (code, found["verdict"]) == (0, "complete")
    counts = [{tier: count["count"] for tier, count in row["tiers"].items()} for row in found["buckets"]]
    assert counts == [{"log": 60, copied: 60}, {"log": 30, copied: 30}]

    mirror(target, "pause", "audited")
    write_at_noon(90, 12)
    code, found = audit(source, target, "--topic", "audited", "--from", "2026-01-31T12:10:00Z")
    assert (code, found["verdict"]) == (
        1,
        f"1 bucket has a gap: audited 2026-01-31T12:10-12:20Z lacks 12 records in tier {copied} (of 42)",
    )
    mirror(target, "resume", "audited")
    wait_until(lambda: audit(source, target, "--topic", "audited")[0] == 0, "the copy of the last records")
