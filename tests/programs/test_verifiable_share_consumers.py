"""Kafka's verifiable share consumers, which acknowledge by a pattern, also while brokers and a consumer are killed."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import java
from tests.cluster import Node, RunningCluster, wait_until
from tests.integration.share_groups import from_the_beginning, state_coordinator, wait_until_finished
from tests.programs.process import Program
from tests.programs.test_java_share_consumers import (
    PARTITIONS,
    WAIT_S,
    Queue,
    cluster,
    produce,
    queue,
)
from tests.programs.topics import Input, Sent

__all__ = ["cluster", "queue"]
pytestmark = [pytest.mark.java, java.needs_java, pytest.mark.timeout(400)]
DELIVERY_LIMIT = 10
ACKNOWLEDGED_BETWEEN_KILLS = 200


class VerifiableConsumer(Program):
    """A consumer that acknowledges by a pattern, with the number of records after which it ends; -1 for never."""

    def __init__(
        self, cluster: RunningCluster, queue: Queue, log: Path, pattern: str, most_records: int = -1
    ) -> None:
        argv = java.command(
            "org.apache.kafka.tools.VerifiableShareConsumer",
            *("--bootstrap-server", cluster.bootstrap, "--topic", queue.topic, "--group-id", queue.group),
            *("--max-messages", str(most_records), "--verbose"),
            *("--acknowledgement-mode", "sync", "--ack-pattern", pattern),
        )
        super().__init__(argv, log)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of all its runs with this name. A killed run may end within a line."""
        whole = f'"name":"{name}"'
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if whole in line and line[0] == "{" and line[-1] == "}"]

    def acknowledged(self) -> int:
        """Return the number of successful acknowledgements."""
        return sum(event["count"] for event in self.events("offsets_acknowledged") if event["success"])


def test_records_are_acknowledged_by_a_pattern(cluster: RunningCluster, queue: Queue, tmp_path: Path) -> None:
    """Records at even offsets are accepted or rejected at once, the others after their locks were renewed. The tool
    counts renewals, too."""
    values = produce(cluster, queue.topic, range(60))
    log = tmp_path / "consumer.log"
    with VerifiableConsumer(cluster, queue, log, "accept,renew,reject,renew", 90) as consumer:
        consumer.wait(WAIT_S)
        acknowledged = consumer.events("offsets_acknowledged")
        assert acknowledged
        assert all(event["success"] for event in acknowledged)
        assert {event["value"] for event in consumer.events("record_data")} == values
    wait_until_finished(cluster.bootstrap, queue.group)


def numbers(topic: str) -> Iterator[Sent]:
    return (Sent(topic, str(number), str(number)) for number in itertools.count())


def test_no_record_is_lost_while_brokers_and_a_consumer_are_killed(
    cluster: RunningCluster, queue: Queue, tmp_path: Path
) -> None:
    """In the end each record is accepted: none is left, none is rejected, and none was delivered too often."""
    from_the_beginning(cluster.bootstrap, queue.group, share__delivery__count__limit=str(DELIVERY_LIMIT))
    with ExitStack() as running:
        consumers = [
            running.enter_context(
                VerifiableConsumer(cluster, queue, tmp_path / f"{name}.log", "accept,renew")
            )
            for name in ("ann", "ben")
        ]

        def wait_for_more() -> None:
            """Wait until the consumers have acknowledged more records."""
            goal = ACKNOWLEDGED_BETWEEN_KILLS + sum(consumer.acknowledged() for consumer in consumers)
            wait_until(
                lambda: sum(consumer.acknowledged() for consumer in consumers) >= goal,
                f"{goal} acknowledgements",
                WAIT_S,
            )

        def kill_and_restart(node: Node | Program) -> None:
            wait_for_more()
            node.kill9()
            wait_for_more()
            if isinstance(node, Program):
                node.start()
            else:
                node.restart()
                cluster.wait_until_in_sync(queue.topic)

        with Input(cluster.bootstrap, numbers(queue.topic), per_second=100) as given:
            wait_for_more()
            for partition in range(PARTITIONS):
                kill_and_restart(cluster.broker(cluster.leader(queue.topic, partition) or 0))
                coordinator = state_coordinator(cluster, queue.group, queue.topic, partition)
                kill_and_restart(cluster.broker(coordinator))
            kill_and_restart(consumers[1])
        sent = {message.value for message in given.sent}
        wait_until_finished(cluster.bootstrap, queue.group)
        read = [event for consumer in consumers for event in consumer.events("record_data")]
    assert {event["value"] for event in read} == sent
    deliveries = Counter((event["partition"], event["offset"]) for event in read)
    assert len(deliveries) == len(sent)
    assert max(deliveries.values()) < DELIVERY_LIMIT
