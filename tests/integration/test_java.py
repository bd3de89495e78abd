"""Kafka's own Java clients and tools: VerifiableProducer, VerifiableConsumer."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from tests import java

pytestmark = [pytest.mark.cluster, pytest.mark.java, java.needs_java]


def events(output: str) -> list[dict[str, object]]:
    """The JSON lines a verifiable client prints."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@pytest.mark.timeout(240)
def test_verifiable_producer_and_consumer_agree(bootstrap: str, new_topic: str) -> None:
    count = 5_000
    said = events(
        java.run(
            "org.apache.kafka.tools.VerifiableProducer",
            *("--bootstrap-server", bootstrap, "--topic", new_topic, "--acks", "-1"),
            *("--max-messages", str(count)),
        )
    )
    sent = [e for e in said if e["name"] == "producer_send_success"]
    assert len(sent) == count
    assert len({(e["partition"], e["offset"]) for e in sent}) == count
    assert not [e for e in said if e["name"] == "producer_send_error"]

    reader = subprocess.Popen(
        java.command(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", bootstrap, "--topic", new_topic, "--group-id", f"g-{new_topic}"),
            *("--max-messages", str(count), "--reset-policy", "earliest", "--verbose"),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        out, _ = reader.communicate(timeout=90)
    finally:
        reader.kill()
        reader.wait()
    read = [e for e in events(out) if e["name"] == "record_data"]
    assert sorted(str(e["value"]) for e in read) == sorted(str(e["value"]) for e in sent)
    commits = [e for e in events(out) if e["name"] == "offsets_committed"]
    assert commits
    assert all(c["success"] for c in commits)


@pytest.mark.timeout(240)
def test_two_java_consumers_and_a_crash(bootstrap: str, new_topic: str) -> None:
    arguments = ("--bootstrap-server", bootstrap, "--topic", new_topic, "--group-id", f"g-{new_topic}")
    argv = java.command(
        "org.apache.kafka.tools.VerifiableConsumer",
        *arguments,
        *("--session-timeout", "6000", "--reset-policy", "earliest"),
    )
    members = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(2)
    ]
    deadline = time.monotonic() + 120
    try:
        wait_for_partitions(members[0], {1, 2}, deadline)
        members[1].kill()
        wait_for_partitions(members[0], {3}, deadline)
    finally:
        for member in members:
            member.kill()
            member.wait()


def wait_for_partitions(member: subprocess.Popen[str], counts: set[int], deadline: float) -> None:
    """Read what a member prints until it owns one of these numbers of partitions."""
    assert member.stdout is not None
    for line in member.stdout:
        assert time.monotonic() < deadline
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        if event["name"] == "partitions_assigned" and len(event["partitions"]) in counts:
            return
    pytest.fail("the consumer ended")
