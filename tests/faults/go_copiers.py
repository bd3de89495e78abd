"""A Go program that feeds a topic and copies it exactly once into another, in a group of transactional members.

The programs in `tests/integration/go/` and `tests/integration/sarama/` do so under the name `outlive`. They print their
progress, and the durations of their calls.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from tests.cluster import wait_until
from tests.faults.actors import CONSUMER, SETTLE_S

CALL_MAX_S = 60.0
"""No call of a client takes longer while brokers die."""


class GoCopiers:
    """A process of the program, until the block ends."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        self._out, self._err = folder / "outlive.out", folder / "outlive.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=err)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"The Go program was at {self._told()}")
        self._process.kill()
        self._process.communicate()

    def wait_for_more(self, more: int) -> None:
        """Return once each member has committed `more` further transactions."""
        goals = {name: count + more for name, count in self._commits().items()}

        def reached() -> bool:
            self._raise_end()
            commits = self._commits()
            return bool(commits) and all(commits[name] >= goal for name, goal in goals.items())

        wait_until(reached, f"{goals} commits", SETTLE_S)

    def check(self, bootstrap: str, source: str, target: str, partitions: int) -> None:
        """Stop feeding, and fail unless every number was acknowledged and is once in both topics, in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None
        wait_until(lambda: self._raise_end() or self._told()["fed"], "the outcome of every number", SETTLE_S)
        fed = self._told()
        assert fed["failed"] == []
        expected = [[*range(index, fed["acknowledged"], partitions)] for index in range(partitions)]
        assert read_committed(bootstrap, source, expected) == expected
        assert read_committed(bootstrap, target, expected) == expected
        longest_s = self._told()["longest_s"]
        assert max(longest_s.values()) < CALL_MAX_S, longest_s

    def _commits(self) -> dict[str, int]:
        commits: dict[str, int] = self._told().get("commits", {})
        return commits

    def _told(self) -> dict[str, Any]:
        lines = self._out.read_text().rpartition("\n")[0].splitlines()
        report: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return report

    def _raise_end(self) -> None:
        assert self._process.poll() is None, self._err.read_text()[-3000:]


def read_committed(bootstrap: str, topic: str, expected: list[list[int]]) -> list[list[int]]:
    """Return the committed numbers of each partition: the expected number of them, and any that arrive in another
    second.
    """
    settings = CONSUMER | {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(len(expected))])
    found: list[list[int]] = [[] for _ in expected]

    def take(timeout_s: float) -> bool:
        messages = [message for message in consumer.consume(1000, timeout_s) if message.error() is None]
        for message in messages:
            found[message.partition() or 0].append(int(message.value() or b""))
        return bool(messages)

    def reached() -> bool:
        take(0.2)
        return all(len(values) >= len(wanted) for values, wanted in zip(found, expected, strict=True))

    try:
        wait_until(reached, f"all of {topic}", SETTLE_S)
        while take(1.0):
            pass
    finally:
        consumer.close()
    return found
