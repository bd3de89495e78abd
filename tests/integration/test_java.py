"""Kafka's own Java clients and tools: VerifiableProducer, VerifiableConsumer."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests import java

pytestmark = [pytest.mark.cluster, pytest.mark.java, java.needs_java]


def events(output: str) -> list[dict[str, object]]:
    """Return the JSON lines that a verifiable client prints."""
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
