"""`ottla group` for share groups, in a cluster of two brokers without any settings of share groups."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ShareConsumer

from ottla.dataplane.cluster.internal_topics import SHARE_STATE_TOPIC
from ottla.protocol.settings.config_resources import GROUP_KEYS
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.commands import run_ottla

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("share-groups"), quorum=1, brokers=2) as cluster:
        yield cluster


@pytest.fixture
def ottla(cluster: RunningCluster) -> Run:
    """Run a command; its output (parsed if -o json stands last), after its exit code was as expected."""

    def run(*words: str, code: int = 0, data: str = "") -> Any:
        environ = {**os.environ, "OTTLA_BOOTSTRAP": cluster.bootstrap}
        done = run_ottla(*words, given=data, environ=environ)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        if code:
            return done.stderr
        return json.loads(done.stdout) if words[-1] == "json" else done.stdout

    return run


def described(ottla: Run, group: str) -> dict[str, Any]:
    (found,) = ottla("group", "describe", group, "-o", "json")
    assert isinstance(found, dict)
    return found


def test_a_share_group_is_listed_described_moved_and_deleted(ottla: Run, cluster: RunningCluster) -> None:
    topic, group = "tasks", "mailers"
    # Without replicas of its partitions, the group's coordinator has to ask their leaders for the lag.
    ottla("topic", "create", topic, "-p", "4", "-r", "1")
    ottla("config", "set", "group", group, "share.auto.offset.reset=earliest")
    ottla(
        "produce", topic, "-f", "%p %s", data="".join(f"{number % 4} task {number}\n" for number in range(40))
    )
    consumer = ShareConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "client.id": "mailer-of-test",
            "share.acknowledgement.mode": "implicit",
        }
    )
    taken = 0
    try:
        consumer.subscribe([topic])

        def all_taken() -> bool:
            nonlocal taken
            taken += len(consumer.poll(0.5) or ())
            return taken >= 40

        wait_until(all_taken, "all records")
        consumer.commit_sync()
        found = described(ottla, group)
        assert (found["type"], found["state"], found["assignor"]) == ("share", "Stable", "simple")
        (member,) = found["members"]
        assert (member["client_id"], len(member["partitions"])) == ("mailer-of-test", 4)
        wait_until(lambda: described(ottla, group)["total_lag"] == 0, "a lag of nothing")
        assert {row["key"]: (row["value"], row["is_default"]) for row in found["settings"]} == {
            "ottla.share.ordering": ("none", True),
            "share.record.lock.duration.ms": ("30000", True),
            "share.delivery.count.limit": ("5", True),
            "errors.deadletterqueue.topic.name": ("", True),
            "share.auto.offset.reset": ("earliest", False),
        }
        assert "settings" not in ottla("group", "describe", group, "--summary", "-o", "json")[0]
        shown = ottla("group", "describe", group)
        assert "ottla.share.ordering\tnone\tdefault" in shown
        assert "share.auto.offset.reset\tearliest\tgroup" in shown
        assert f"{topic}\t3\t10\t10\t0\t1" in shown
        assert f"mailer-of-test\t{member['host']}\t" in shown
        assert f"{topic}:0,1,2,3" in shown
        refused = ottla("group", "seek", group, "--to", "start", code=1)
        assert "is Stable with 1 member: stop them first\n" in refused
        assert "NON_EMPTY_GROUP" in ottla("group", "delete", group, code=1)
    finally:
        consumer.close()
    wait_until(lambda: described(ottla, group)["state"] == "Empty", "a group without members")

    (listed,) = ottla("group", "list", "--type", "share", "--lag", "-o", "json")
    assert (listed["group"], listed["type"], listed["members"], listed["lag"]) == (group, "share", 0, 0)
    assert f"{group}\tEmpty\tshare\tshare\t" in ottla("group", "list")

    rows = ottla("group", "seek", group, "--to", "-3", "--topic", f"{topic}:0,1", "-o", "json")
    assert [(row["prior_offset"], row["current_offset"]) for row in rows] == [(10, 7), (10, 7)]
    assert ottla("group", "seek", group, "--to", "start", "--dry-run", "-o", "json")[0]["current_offset"] == 0
    found = described(ottla, group)
    assert [(row["start_offset"], row["log_end_offset"], row["lag"]) for row in found["partitions"]] == [
        (7, 10, 3),
        (7, 10, 3),
        (10, 10, 0),
        (10, 10, 0),
    ]
    assert (found["total_lag"], found["lag_by_topic"]) == (6, {topic: 6})

    refused = ottla("group", "delete", group, "--topic", f"{topic}:0", "--yes", code=2)
    assert "mailers is a share group, whose offsets are deleted topic by topic" in refused
    ottla("group", "delete", group, "--topic", topic, "--yes")
    assert described(ottla, group)["partitions"] == []
    ottla("group", "delete", group, "--yes")
    assert "GROUP_ID_NOT_FOUND" in ottla("group", "describe", group, code=1)

    # Two brokers have two replicas of each state, and one of them may be lost.
    (states,) = ottla("topic", "describe", SHARE_STATE_TOPIC, "-o", "json")
    assert {len(partition["replicas"]) for partition in states["partitions"]} == {2}
    settings = {
        row["key"]: row["value"] for row in ottla("config", "get", "topic", SHARE_STATE_TOPIC, "-o", "json")
    }
    assert settings["min.insync.replicas"] == "1"


SETTINGS = {
    "consumer.heartbeat.interval.ms": "6000",
    "consumer.session.timeout.ms": "50000",
    "share.session.timeout.ms": "50000",
    "share.heartbeat.interval.ms": "6000",
    "share.record.lock.duration.ms": "45000",
    "share.delivery.count.limit": "7",
    "share.partition.max.record.locks": "500",
    "share.auto.offset.reset": "by_duration:PT1H",
    "share.isolation.level": "read_committed",
    "share.renew.acknowledge.enable": "false",
    "ottla.share.ordering": "key",
    "errors.deadletterqueue.topic.name": "dlq.mails",
    "errors.deadletterqueue.copy.record.enable": "true",
}
"""A value of each setting of groups that is not its default."""


def test_every_setting_of_a_group_is_set_and_unset(ottla: Run) -> None:
    assert SETTINGS.keys() == GROUP_KEYS.keys()
    ottla("config", "set", "group", "set", *(f"{key}={value}" for key, value in SETTINGS.items()))

    def own() -> dict[str, str]:
        return {row["key"]: row["value"] for row in ottla("config", "get", "group", "set", "-o", "json")}

    wait_until(lambda: own() == SETTINGS, "the settings at the broker")
    ottla("config", "unset", "group", "set", *SETTINGS)
    wait_until(lambda: own() == {}, "the defaults at the broker")


def test_an_unknown_setting_of_a_group_is_refused_with_the_known_settings(ottla: Run) -> None:
    refused = ottla("config", "set", "group", "set", "share.ordering=key", code=1)
    assert "Unknown group config name: share.ordering" in refused
    assert f"; allowed are {', '.join(sorted(GROUP_KEYS))} (INVALID_CONFIG)" in refused
    assert "did you mean 'ottla.share.ordering'?" in ottla(
        "config", "unset", "group", "set", "ottla.share.ordring", code=1
    )
    out_of_bounds = ottla("config", "set", "group", "set", "share.delivery.count.limit=100", code=1)
    assert "share.delivery.count.limit must be in the range 2 to 10 inclusive" in out_of_bounds
