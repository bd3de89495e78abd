"""A running Apache Kafka is backed up, and Ottla gets its topics and groups back."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from benchmarks.clusters import Cluster
from ottla import Admin, NewTopic, Producer, TopicPartition
from tests.commands import run_ottla
from tests.integration.mirroring import records_of


def told(*words: str) -> Any:
    done = run_ottla(*words, "-o", "json", timeout_s=100)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return json.loads(done.stdout)


async def test_kafka_is_backed_up_partition_by_partition(
    kafka: Cluster, ours: Cluster, tmp_path: Path
) -> None:
    topic = f"backed-{uuid.uuid4().hex[:8]}"
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1, configs={"retention.ms": "8640000000"})])
        async with Producer(bootstrap_servers=kafka.bootstrap, transactional_id=topic) as producer:
            for number in range(10):
                await producer.begin_transaction()
                await producer.send(topic, b"%d" % number, partition=number % 2)
                await (producer.abort_transaction() if number == 4 else producer.commit_transaction())
        wanted = {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 4}
        await admin.alter_offsets(topic, wanted)
    words = ("--topics", topic, "--groups", topic)
    made = told("backup", "--to", tmp_path.as_uri(), "-b", kafka.bootstrap, *words)
    assert (made["topics"], made["consistent"]) == (1, False)
    assert told("backup", "verify", tmp_path.as_uri())["damages"] == []
    assert told("cluster", "restore", "--from", tmp_path.as_uri(), "-b", ours.bootstrap)["topics"] == 1
    for isolation in ("read_uncommitted", "read_committed"):
        assert await records_of(ours.bootstrap, topic, isolation) == await records_of(
            kafka.bootstrap, topic, isolation
        )
    async with Admin(bootstrap_servers=ours.bootstrap) as admin:
        assert await admin.committed_offsets(topic) == wanted
