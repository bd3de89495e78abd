"""Kafka's own command-line tools: topics, settings, groups of both protocols, offsets, quorum, performance.

Moves under load, folders that fail, features, quotas and dumps have their tests beside what they are about.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests import java
from tests.cluster import Node, wait_until
from tests.integration.api_versions_seen import within_table
from tests.integration.conftest import create

pytestmark = [pytest.mark.cluster, pytest.mark.java, java.needs_java, pytest.mark.timeout(240)]

TOOLS = "org.apache.kafka.tools"
CONFIGS = f"{TOOLS}.ConfigCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
TOPICS = f"{TOOLS}.TopicCommand"
COUNT = 3_000


class Shell:
    """Kafka's tools with the addresses of a cluster."""

    def __init__(self, tools: java.Tools, bootstrap: str) -> None:
        self._tools, self._bootstrap = tools, bootstrap

    def __call__(self, tool: str, *arguments: str, status: int = 0) -> str:
        return self._tools.run(tool, "--bootstrap-server", self._bootstrap, *arguments, status=status)

    def sub(self, tool: str, command: str, *arguments: str) -> str:
        """Run a tool whose command precedes its addresses."""
        return self._tools.run(tool, command, "--bootstrap-server", self._bootstrap, *arguments)


@pytest.fixture
def shell(tools: java.Tools, bootstrap: str) -> Iterator[Shell]:
    with within_table(bootstrap, "Java") as captured:
        yield Shell(tools, captured)


def table(text: str) -> list[list[str]]:
    """Return the rows of a tool's table, including its header."""
    return [line.split() for line in text.splitlines() if line.strip()]


def test_topics(shell: Shell) -> None:
    name = f"t{uuid.uuid4().hex[:10]}"
    topic = ("--topic", name)
    placed = ("--partitions", "2", "--replication-factor", "3")
    said = shell(TOPICS, "--create", *topic, *placed, "--config", "retention.ms=100000")
    assert f"Created topic {name}." in said
    assert f"Topic '{name}' already exists" in shell(TOPICS, "--create", *topic, *placed, status=1)
    assert "already exists" not in shell(TOPICS, "--create", *topic, *placed, "--if-not-exists")
    assert name in shell(TOPICS, "--list").split()
    shell(TOPICS, "--alter", *topic, "--partitions", "3")
    assert "already has 3 partition" in shell(TOPICS, "--alter", *topic, "--partitions", "3", status=1)
    described = shell(TOPICS, "--describe", *topic)
    assert re.search(
        rf"Topic: {name}\s+TopicId: \S{{22}}\s+PartitionCount: 3\s+ReplicationFactor: 3\s+Configs: .*retention",
        described,
    )
    assert len(re.findall(r"Partition: \d+\s+Leader: \d\s+Replicas: (\d,\d,\d)\s+Isr: \d", described)) == 3
    assert name in shell(TOPICS, "--describe", "--topics-with-overrides")
    for health in ("under-replicated", "unavailable", "under-min-isr"):
        assert name not in shell(TOPICS, "--describe", f"--{health}-partitions")
    shell(TOPICS, "--delete", *topic)
    assert name not in shell(TOPICS, "--list").split()
    assert f"Topic '{name}' does not exist as expected" in shell(TOPICS, "--delete", *topic, status=1)
    shell(TOPICS, "--delete", *topic, "--if-exists")


def test_settings_of_topics_brokers_groups_and_client_metrics(shell: Shell, one_partition: str) -> None:
    topic = ("--entity-type", "topics", "--entity-name", one_partition)
    shell(CONFIGS, "--alter", *topic, "--add-config", "retention.ms=5000000,cleanup.policy=[compact,delete]")
    shell(CONFIGS, "--alter", *topic, "--delete-config", "retention.ms")
    described = shell(CONFIGS, "--describe", *topic)
    assert "retention.ms" not in described
    assert (
        "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}" in described
    )
    assert "segment.bytes=1073741824" in shell(CONFIGS, "--describe", *topic, "--all")
    refused = shell(CONFIGS, "--alter", *topic, "--add-config", "retention.ms=soon", status=1)
    assert "retention.ms" in refused
    assert "soon" in refused

    broker = ("--entity-type", "brokers", "--entity-name", "1")
    shell(CONFIGS, "--alter", *broker, "--add-config", "log.cleaner.backoff.ms=14000")
    try:
        assert "log.cleaner.backoff.ms=14000" in shell(CONFIGS, "--describe", *broker)
    finally:
        shell(CONFIGS, "--alter", *broker, "--delete-config", "log.cleaner.backoff.ms")
    everyone = ("--entity-type", "brokers", "--entity-default")
    assert "Default configs for brokers in the cluster are" in shell(CONFIGS, "--describe", *everyone)

    group = ("--entity-type", "groups", "--entity-name", f"g-{one_partition}")
    shell(CONFIGS, "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in shell(CONFIGS, "--describe", *group)
    shell(CONFIGS, "--alter", *group, "--delete-config", "consumer.session.timeout.ms")

    metrics = f"{TOOLS}.ClientMetricsCommand"
    name = f"m-{one_partition}"
    said = shell(metrics, "--alter", "--name", name, "--metrics", "org.apache.kafka.", "--interval", "60000")
    assert f"Altered client metrics config for {name}" in said
    assert name in shell(metrics, "--list")
    assert "interval.ms=60000" in shell(metrics, "--describe", "--name", name)
    shell(metrics, "--delete", "--name", name)
    assert name not in shell(metrics, "--list")


def test_records_are_sent_read_counted_and_trimmed(shell: Shell, new_topic: str, tmp_path: Path) -> None:
    topic = ("--topic", new_topic)
    sent = shell(
        f"{TOOLS}.ProducerPerformance",
        *(*topic, "--num-records", str(COUNT), "--record-size", "100", "--throughput", "-1"),
        *("--command-property", "compression.type=lz4", "batch.size=4000"),
    )
    assert f"{COUNT} records sent" in sent
    offsets = shell(f"{TOOLS}.GetOffsetShell", *topic).split()
    assert sum(int(line.rpartition(":")[2]) for line in offsets) == COUNT
    for protocol in ("classic", "consumer"):
        read = shell(
            f"{TOOLS}.ConsumerPerformance",
            *(*topic, "--num-records", str(COUNT), "--group", f"{protocol}-{new_topic}"),
            *("--timeout", "30000", "--command-property", f"group.protocol={protocol}"),
        )
        assert read.splitlines()[-1].split(", ")[4] == str(COUNT)

    wanted = tmp_path / "trim.json"
    cut = {"topic": new_topic, "partition": 0, "offset": 5}
    wanted.write_text(json.dumps({"partitions": [cut], "version": 1}))
    said = shell(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"partition: {new_topic}-0\tlow_watermark: 5" in said
    starts = shell(f"{TOOLS}.GetOffsetShell", "--topic-partitions", f"{new_topic}:0-2", "--time", "earliest")
    assert starts.split() == [f"{new_topic}:0:5", f"{new_topic}:1:0"]

    transactions = f"{TOOLS}.TransactionsCommand"
    said = shell(transactions, "describe-producers", *topic, "--partition", "0")
    (head, only) = table(said)
    assert head[:2] == ["ProducerId", "ProducerEpoch"]
    assert int(only[0]) >= 0
    leader = ("--broker-id", shell(TOPICS, "--describe", *topic).partition("Leader: ")[2][0])
    assert table(shell(transactions, "describe-producers", *topic, "--partition", "0", *leader))[1] == only


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups(shell: Shell, admin: AdminClient, bootstrap: str, protocol: str) -> None:
    name = create(admin, 2)
    topic = ("--topic", name)
    group = ("--group", f"g-{name}")
    assert "20 records sent" in shell(
        f"{TOOLS}.ProducerPerformance",
        *(*topic, "--num-records", "20", "--record-size", "10", "--throughput", "-1"),
        *("--command-property", "linger.ms=0", "batch.size=0"),
    )
    member = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group[1],
            "client.id": "member",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        member.subscribe([name])
        left = 20
        while left:
            left -= len(member.consume(left, 10))
        member.commit(asynchronous=False)
        state = shell(GROUPS, "--list", "--state", "--type")
        assert [group[1], protocol.capitalize(), "Stable"] in table(state)
        assert group[1] in shell(GROUPS, "--list", "--type", protocol)
        assert group[1] in shell(f"{TOOLS}.GroupsCommand", "--list", "--group-type", protocol)
        lags = [row[1:6] for row in table(shell(GROUPS, "--describe", *group)) if row[0] == group[1]]
        assert [row[:2] for row in sorted(lags)] == [[name, "0"], [name, "1"]]
        assert sum(int(row[2]) for row in lags) == 20
        assert [row[4] for row in lags] == ["0", "0"]
        members = table(shell(GROUPS, "--describe", *group, "--members", "--verbose"))
        (only,) = [row for row in members if row[0] == group[1]]
        assert any(name in cell for cell in only)
        assert "member" in only
        assert re.search(
            rf"{group[1]}\s+\S+\s+\(\d\).*Stable.*\s1\b",
            shell(GROUPS, "--describe", *group, "--state"),
        )
        assert "The group is not empty" in shell(GROUPS, "--delete", *group)
        refused = shell(GROUPS, "--reset-offsets", *group, *topic, "--to-earliest", "--execute")
        assert "Assignments can only be reset if the group" in refused
    finally:
        member.close()

    def reset(*arguments: str) -> dict[str, int]:
        said = table(shell(GROUPS, "--reset-offsets", *group, *arguments))
        return {f"{row[1]}:{row[2]}": int(row[3]) for row in said if row[0] == group[1]}

    assert set(reset(*topic, "--to-earliest", "--dry-run").values()) == {0}
    ends = reset(*topic, "--to-latest", "--execute")
    assert sum(ends.values()) == 20
    assert reset("--topic", f"{name}:1", "--to-offset", "3", "--execute") == {f"{name}:1": 3}
    shifted = reset("--topic", f"{name}:1", "--shift-by", "-2", "--execute")
    assert shifted == {f"{name}:1": 1}
    past = reset(*topic, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert set(past.values()) == {0}
    exported = shell(
        GROUPS, "--reset-offsets", *group, "--all-topics", "--to-current", "--export", "--dry-run"
    )
    assert sorted(exported.split()) == [f"{name},0,0", f"{name},1,0"]
    assert "Successful" in shell(GROUPS, "--delete-offsets", *group, "--topic", f"{name}:0")
    described = [row for row in table(shell(GROUPS, "--describe", *group)) if row[0] == group[1]]
    assert [row[2] for row in described] == ["1"]
    assert "was successful" in shell(GROUPS, "--delete", *group)
    assert group[1] not in shell(GROUPS, "--list").split()
    assert "GroupIdNotFoundException" in shell(GROUPS, "--delete", *group)


def test_replicas_change_places_and_leaders_are_elected(
    shell: Shell, one_partition: str, tmp_path: Path
) -> None:
    described = shell(TOPICS, "--describe", "--topic", one_partition)
    replicas = [int(broker) for broker in described.partition("Replicas: ")[2].split()[0].split(",")]
    move = {"topic": one_partition, "partition": 0, "replicas": replicas[::-1]}
    wanted = tmp_path / "moves.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [move]}))
    plan = ("--reassignment-json-file", str(wanted))
    reassign = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    assert "Successfully started" in shell(reassign, *plan, "--execute")
    wait_until(lambda: "is completed" in shell(reassign, *plan, "--verify"), "the end of the reassignment")
    assert one_partition not in shell(reassign, "--list")
    elect = (f"{TOOLS}.LeaderElectionCommand", "--election-type", "preferred")
    which = ("--topic", one_partition, "--partition", "0")
    assert "Successfully completed leader election" in shell(*elect, *which)
    assert f"Leader: {replicas[-1]}" in shell(TOPICS, "--describe", "--topic", one_partition)
    assert "Valid replica already elected" in shell(*elect, *which)
    folders = shell(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", one_partition)
    (found,) = (json.loads(line) for line in folders.splitlines() if line.startswith("{"))
    assert [
        [partition["partition"] for folder in broker["logDirs"] for partition in folder["partitions"]]
        for broker in found["brokers"]
    ] == [[f"{one_partition}-0"]] * 3


def test_quorum_cluster_and_versions(shell: Shell, bootstrap: str) -> None:
    quorum = f"{TOOLS}.MetadataQuorumCommand"
    status = shell(quorum, "describe", "--status")
    leader = re.search(r"LeaderId:\s+(\d+)", status)
    assert leader
    assert len(re.findall(r'"id": \d+', status.partition("CurrentVoters")[2].splitlines()[0])) == 3
    _, *nodes = table(shell(quorum, "describe", "--replication"))
    roles = {row[0]: row[-1] for row in nodes if row[-1] != "Observer"}
    assert roles[leader[1]] == "Leader"
    assert sorted(roles.values()) == ["Follower", "Follower", "Leader"]
    assert {row[0] for row in nodes if row[-1] == "Observer"} == {"1", "2", "3"}
    assert "Cluster ID: " in shell.sub(f"{TOOLS}.ClusterTool", "cluster-id")
    endpoints = shell.sub(f"{TOOLS}.ClusterTool", "list-endpoints")
    assert endpoints.count("127.0.0.1") == 3
    versions = shell(f"{TOOLS}.BrokerApiVersionsCommand")
    brokers = len(bootstrap.split(","))
    assert versions.count("ConsumerGroupHeartbeat(68): 0 to 1 [usable: 1]") == brokers
    assert versions.count("UNKNOWN(20000): 0") == brokers, "APIs of our own are passed over"


def test_the_lag_of_quorum_nodes_and_brokers(
    shell: Shell, admin: AdminClient, description: dict[str, Any]
) -> None:
    quorum = f"{TOOLS}.MetadataQuorumCommand"
    lag_max = 3
    """Entries that may be on their way at any moment."""

    def status() -> tuple[int, int, int]:
        """Return the leader, and the lag of the slowest follower in entries and milliseconds."""
        said = shell(quorum, "describe", "--status")
        leader, lag, lag_ms = (
            int(re.search(rf"^{name}:\s+(-?\d+)", said, re.MULTILINE)[1])  # type: ignore[index]
            for name in ("LeaderId", "MaxFollowerLag", "MaxFollowerLagTimeMs")
        )
        return leader, lag, lag_ms

    def is_healthy() -> bool:
        _, lag, lag_ms = status()
        return 0 <= lag <= lag_max and 0 <= lag_ms < 2000

    wait_until(is_healthy, "a small lag of a healthy quorum")
    leader, _, _ = status()
    head, *nodes = table(shell(quorum, "describe", "--replication"))
    now_ms = time.time() * 1000
    for row in nodes:
        found = dict(zip(head, row, strict=True))
        assert -lag_max <= int(found["Lag"]) <= lag_max, row
        for name in ("LastFetchTimestamp", "LastCaughtUpTimestamp"):
            assert now_ms - 10_000 < int(found[name]) < now_ms + 1000, row

    follower = next(node for node in description["quorum"] if node["id"] != leader)
    paused = Node("quorum", follower)
    paused.pause()
    try:
        for _ in range(2 * lag_max):
            create(admin, 1)
        wait_until(lambda: status()[1] >= 2 * lag_max and status()[2] > 0, "a lag of who is paused")
        assert status()[0] == leader
    finally:
        paused.resume()
    wait_until(is_healthy, "that the paused node has caught up")
