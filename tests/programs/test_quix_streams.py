"""Quix Streams, exactly once: instances, a broker and the state of one are killed, and every count is there once."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.cluster import RunningCluster
from tests.programs.environments import Environment
from tests.programs.process import Program
from tests.programs.topics import Input, Output, Sent, create_topics

pytestmark = pytest.mark.timeout(600)
QUIX = Environment("quixstreams")
GROUP = "windows"
PARTITIONS = 3
WINDOW_MS = 10_000
Count = tuple[str | None, int, int]


def events(seed: int) -> Iterator[Sent]:
    """Yield a message every 50 ms of simulated time, each with one of 20 keys."""
    chance = random.Random(seed)
    begun_ms = int(time.time()) * 1000 - 3_600_000
    number = 0
    while True:
        number += 1
        yield Sent("events", f"key{chance.randrange(20)}", f"event{number}", begun_ms + 50 * number)


def expected(sent: list[Sent]) -> list[Count]:
    """Return the expected counts: every key and window start, with every number up to its messages'."""
    windows = Counter((message.key, message.timestamp_ms // WINDOW_MS * WINDOW_MS) for message in sent)
    return sorted((key, start, n) for (key, start), total in windows.items() for n in range(1, total + 1))


def found(output: Output) -> list[Count]:
    read = ((key, json.loads(value)) for key, value in output.messages)
    return sorted((key, value["start"], value["value"]) for key, value in read)


def test_windows_through_kills(cluster: RunningCluster, tmp_path: Path) -> None:
    admin = create_topics(cluster, "events", "counts", partitions=PARTITIONS)
    counts = Output(cluster.bootstrap, "counts", PARTITIONS)
    with ExitStack() as running:
        both = {
            name: running.enter_context(
                QUIX.program(
                    "quix_windows.py",
                    tmp_path / f"{name}.log",
                    cluster.bootstrap,
                    GROUP,
                    str(tmp_path / name),
                    name,
                )
            )
            for name in ("ann", "ben")
        }
        with Input(cluster.bootstrap, events(seed=5)) as given:
            counts.wait_for(100, 120)
            kill_and_start(both["ann"], counts)
            kill_with_a_broker(cluster, both["ben"], counts)
            both["ann"].kill9()
            shutil.rmtree(tmp_path / "ann")  # its state comes back from the changelog
            both["ann"].start()
            counts.wait_for(counts.read() + 300, 120)
            both["ben"].stop()
            counts.wait_for(counts.read() + 300, 120)
        counts.wait_for(len(given.sent), 120)
        assert found(counts) == expected(given.sent)
        check_changelog(admin)


def kill_and_start(instance: Program, counts: Output) -> None:
    """Kill an instance; results go on once it is back."""
    instance.kill9()
    instance.start()
    counts.wait_for(counts.read() + 300, 120)


def kill_with_a_broker(cluster: RunningCluster, instance: Program, counts: Output) -> None:
    """Kill an instance and a leader of its output; results go on while the broker is away."""
    leader = cluster.leader("counts", 0)
    assert leader is not None
    cluster.broker(leader).kill9()
    kill_and_start(instance, counts)
    cluster.broker(leader).restart()
    cluster.wait_until_in_sync("counts", 60)


def check_changelog(admin: AdminClient) -> None:
    """Check that it has the input's partitions, and is compacted, as Quix Streams requests."""
    changelogs = [name for name in admin.list_topics(timeout=30).topics if name.startswith("changelog__")]
    assert len(changelogs) == 1, changelogs
    topic = admin.list_topics(changelogs[0], timeout=30).topics[changelogs[0]]
    assert len(topic.partitions) == PARTITIONS
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, changelogs[0])]).values()
    assert answer.result(30)["cleanup.policy"].value == "compact"
