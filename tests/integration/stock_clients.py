"""Stock clients as processes, all used in the same way: started, watched by what they print, stopped or killed.

with STOCK_CLIENTS["kcat"].producer(bootstrap, "orders", per_second=300) as producer:
    producer.wait_until(lambda: len(producer.acknowledged) > 100, "acknowledgements")
    producer.stop()
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests import java
from tests.cluster import wait_until
from tests.integration.history import Place, Read

ROOT = Path(__file__).parents[2]
FOREVER = -1
AS_FAST_AS_POSSIBLE = 100_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SESSION_TIMEOUT_MS = 6_000
"""Shortest session timeout that Kafka accepts by default, in milliseconds."""

_PLACED = re.compile(r"Message delivered to partition (\d+) \(offset (\d+)\)")
_RECORD = re.compile(r"record (\d+) (\d+) (.*)")
_REBALANCED = re.compile(r"% Group .* rebalanced .*: (assigned|revoked)(.*)")
_PARTITION = re.compile(r"\[(\d+)\]")


def number_of(value: bytes) -> int:
    """Return the number at the beginning of a value."""
    return int(value.split()[0])


@dataclass
class Process:
    """A client process; leaving the block kills it if it still runs."""

    argv: list[str]
    fed_count: int = 0
    """Number of values written to its standard input; 0 for a client that makes them itself."""
    fed_per_second: int = 0
    acknowledged: list[tuple[Place, bytes | None]] = field(default_factory=list)
    """Acknowledged records in the reported order; the value is None if the client does not report it."""
    failures: list[str] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    assigned: set[int] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    """Output lines that are no events."""

    def __enter__(self) -> Self:
        self._stopping = threading.Event()
        self._process = subprocess.Popen(
            self.argv,
            cwd=ROOT,
            stdin=subprocess.PIPE if self.fed_count else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._threads = [threading.Thread(target=self._listen)]
        if self.fed_count:
            self._threads.append(threading.Thread(target=self._feed))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()

    def wait_until(self, condition: Any, what: str, timeout_s: float = 40) -> None:
        """Return once the condition holds; fail the test at the timeout, or if the process ends."""
        wait_until(lambda: condition() or self._process.poll() is not None, what, timeout_s)
        assert condition(), f"{self.argv[:4]} ended before {what}:\n" + "\n".join(self.said[-20:])

    def wait_end(self, timeout_s: float = 60) -> None:
        """Return once the process has ended on its own."""
        self._process.wait(timeout_s)
        for thread in self._threads:
            thread.join()

    def stop(self, timeout_s: float = 60) -> None:
        """End the process in good order: a producer learns the outcome of all its records."""
        self._stopping.set()
        if not self.fed_count:
            self._process.terminate()
        self.wait_end(timeout_s)

    def kill9(self) -> None:
        """Send SIGKILL, and return once the process is gone."""
        self._stopping.set()
        self._process.kill()
        self.wait_end()

    def _feed(self) -> None:
        started, number, pipe = time.monotonic(), 0, self._process.stdin
        assert pipe is not None
        try:
            while number != self.fed_count and not self._stopping.is_set():
                if number < (time.monotonic() - started) * self.fed_per_second:
                    pipe.write(f"{number} {'x' * 100}\n")
                    number += 1
                else:
                    pipe.flush()
                    self._stopping.wait(0.01)
            pipe.close()
        except BrokenPipeError:
            return

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"') and '"name"' in line:
                self._take(json.loads(line))
            elif found := _PLACED.search(line):
                self.acknowledged.append((Place(int(found[1]), int(found[2])), None))
            elif found := _RECORD.match(line):
                self.read.append(Read(Place(int(found[1]), int(found[2])), found[3].encode()))
            elif found := _REBALANCED.match(line):
                numbers = {int(number) for number in _PARTITION.findall(found[2])}
                self.assigned = numbers if found[1] == "assigned" else set()
            else:
                if "failed" in line and "elivery" in line:
                    self.failures.append(line)
                self.said.append(line.rstrip())

    def _take(self, event: dict[str, Any]) -> None:
        match event["name"]:
            case "producer_send_success":
                place = Place(event["partition"], event["offset"])
                self.acknowledged.append((place, event["value"].encode()))
            case "producer_send_error":
                self.failures.append(json.dumps(event))
            case "record_data":
                place = Place(event["partition"], event["offset"])
                self.read.append(Read(place, event["value"].encode()))
            case "partitions_assigned":
                self.assigned = {partition["partition"] for partition in event["partitions"]}
            case "partitions_revoked":
                self.assigned -= {partition["partition"] for partition in event["partitions"]}


class StockClient(ABC):
    """A stock client; both methods describe a process, which starts when it is entered."""

    @abstractmethod
    def producer(
        self,
        bootstrap: str,
        topic: str,
        *,
        codec: str = "none",
        count: int = FOREVER,
        per_second: int = AS_FAST_AS_POSSIBLE,
    ) -> Process:
        """Return an idempotent producer (acks=all) of values that begin with 0, 1, ..., until `count` or a stop."""

    @abstractmethod
    def consumer(self, bootstrap: str, topic: str, group: str) -> Process:
        """Return a group member that reads from the beginning until it is stopped."""


@dataclass
class PythonClient(StockClient):
    """A Python package, run by tests.integration.python_client."""

    package: str

    def producer(
        self,
        bootstrap: str,
        topic: str,
        *,
        codec: str = "none",
        count: int = FOREVER,
        per_second: int = AS_FAST_AS_POSSIBLE,
    ) -> Process:
        arguments = ["--codec", codec, "--count", str(count), "--per-second", str(per_second)]
        return Process([*self._argv("produce"), bootstrap, topic, *arguments])

    def consumer(self, bootstrap: str, topic: str, group: str) -> Process:
        arguments = ["--group", group, "--session-timeout-ms", str(SESSION_TIMEOUT_MS)]
        return Process([*self._argv("consume"), bootstrap, topic, *arguments])

    def _argv(self, role: str) -> list[str]:
        return [sys.executable, "-m", "tests.integration.python_client", self.package, role]


class Kcat(StockClient):
    """kcat as Debian ships it (an old librdkafka, which switches features on by exact version ranges)."""

    def producer(
        self,
        bootstrap: str,
        topic: str,
        *,
        codec: str = "none",
        count: int = FOREVER,
        per_second: int = AS_FAST_AS_POSSIBLE,
    ) -> Process:
        settings = {"enable.idempotence": "true", "linger.ms": "20", "retry.backoff.ms": "50"}
        # Twice more verbose than usual it tells where each record was placed.
        argv = ["kcat", "-P", "-vv", "-b", bootstrap, "-t", topic, "-z", codec, *_settings(settings)]
        return Process(argv, count, per_second)

    def consumer(self, bootstrap: str, topic: str, group: str) -> Process:
        settings = {
            "auto.offset.reset": "earliest",
            "session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "heartbeat.interval.ms": "500",
        }
        argv = ["kcat", "-b", bootstrap, "-u", "-f", "record %p %o %s\\n", *_settings(settings)]
        return Process([*argv, "-G", group, topic])


def _settings(settings: dict[str, str]) -> list[str]:
    return [argument for key, value in settings.items() for argument in ("-X", f"{key}={value}")]


@dataclass
class JavaClient(StockClient):
    """Kafka's own VerifiableProducer and VerifiableConsumer."""

    directory: Path
    """Folder for settings files."""

    def producer(
        self,
        bootstrap: str,
        topic: str,
        *,
        codec: str = "none",
        count: int = FOREVER,
        per_second: int = AS_FAST_AS_POSSIBLE,
    ) -> Process:
        # Without these the tool never retries, and a producer that never retries is not idempotent.
        retries = "retries=2147483647\nenable.idempotence=true\n"
        settings = self._settings(f"{codec}.properties", f"compression.type={codec}\nlinger.ms=20\n{retries}")
        return Process(
            java.command(
                "org.apache.kafka.tools.VerifiableProducer",
                *("--bootstrap-server", bootstrap, "--topic", topic, "--acks", "-1"),
                *("--max-messages", str(count), "--throughput", str(per_second)),
                *("--command-config", settings),
            )
        )

    def consumer(self, bootstrap: str, topic: str, group: str) -> Process:
        settings = self._settings("consumer.properties", "heartbeat.interval.ms=500\n")
        return Process(
            java.command(
                "org.apache.kafka.tools.VerifiableConsumer",
                *("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group, "--verbose"),
                *("--session-timeout", str(SESSION_TIMEOUT_MS), "--reset-policy", "earliest"),
                *("--command-config", settings),
            )
        )

    def _settings(self, name: str, text: str) -> str:
        file = self.directory / name
        file.write_text(text)
        return str(file)


NAMES = [
    "confluent-kafka",
    "aiokafka",
    "kafka-python",
    pytest.param(
        "kcat", marks=pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
    ),
    pytest.param("java", marks=[java.needs_java, pytest.mark.java]),
]
"""Names of the clients, for `pytest.mark.parametrize`."""


def installed(directory: Path) -> dict[str, StockClient]:
    """Return the clients on this machine by name."""
    found: dict[str, StockClient] = {
        name: PythonClient(name) for name in ("confluent-kafka", "aiokafka", "kafka-python")
    }
    if shutil.which("kcat") is not None:
        found["kcat"] = Kcat()
    if java.available():
        found["java"] = JavaClient(directory)
    return found
