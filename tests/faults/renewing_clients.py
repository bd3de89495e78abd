"""Clients that write numbered records to a topic and read them in a group, while their logins expire and are renewed:
librdkafka's, Java's and Ottla's.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka

from ottla import Consumer, Producer
from tests import java
from tests.integration.secured_cells import Cell
from tests.integration.secured_clients import librdkafka_options
from tests.integration.secured_tools import client_config

PAUSE_S = 0.03
SETTLE_S = 90.0


class Renewing(ABC):
    """A client whose sets of numbers grow until it is stopped."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.acknowledged: set[int] = set()
        self.read: set[int] = set()
        self.failed: list[str] = []
        """Sends that the client gave up, and fatal errors."""
        self.said: list[str] = []
        """Other complaints of the client."""

    @abstractmethod
    def running(self) -> Any:
        """Return a context manager in which the client works."""

    @abstractmethod
    def stop_writing(self) -> None:
        """Stop writing, and return once no send is in flight."""


class OfLibrdkafka(Renewing):
    """A confluent-kafka producer and consumer, each in a thread.

    If a connection ends while its login is renewed, librdkafka fails the records in flight with _AUTHENTICATION instead
    of sending them again. These records are not acknowledged, and do not count as failed.
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self._options = librdkafka_options(cell) | {"log_level": 0, "error_cb": self._note}
        self._writes, self._reads = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._read)]

    def _note(self, error: confluent_kafka.KafkaError) -> None:
        self.said.append(error.str())
        if "SASL" in error.str() and ("Broker: " in error.str() or "invalid credentials" in error.str()):
            self.failed.append(f"a broker refused a login: {error.str()}")

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._writes.set()
            self._reads.set()
            for thread in self._threads:
                thread.join(SETTLE_S)

    def stop_writing(self) -> None:
        self._writes.set()
        self._threads[0].join(SETTLE_S)
        assert not self._threads[0].is_alive(), "the producer is stuck"

    def _write(self) -> None:
        producer = confluent_kafka.Producer({**self._options, "enable.idempotence": True})

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is None:
                self.acknowledged.add(int(message.value() or b""))
            elif error.code() != confluent_kafka.KafkaError._AUTHENTICATION:
                self.failed.append(f"{error.str()}, after {self.said[-3:]}")

        number = 0
        while not self._writes.is_set():
            producer.produce(self.cell.topic, b"%d" % number, partition=number % 3, on_delivery=delivered)
            number += 1
            producer.poll(PAUSE_S)
        producer.flush(SETTLE_S)

    def _read(self) -> None:
        group = {"group.id": self.cell.topic, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer({**self._options, **group})
        consumer.subscribe([self.cell.topic])
        while not self._reads.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.read.add(int(message.value() or b""))
        consumer.close()


class Ours(Renewing):
    """An `ottla.Producer` and an `ottla.Consumer` on an event loop in a thread."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self._options = {
            "bootstrap_servers": cell.bootstrap,
            "security_protocol": cell.protocol,
            "ssl_cafile": cell.ca,
            "sasl_mechanism": cell.mechanism,
            "sasl_plain_username": cell.user,
            "sasl_plain_password": cell.password,
        }
        self._writes, self._written, self._reads = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._writes.set()
            self._reads.set()
            self._thread.join(SETTLE_S)

    def stop_writing(self) -> None:
        self._writes.set()
        assert self._written.wait(SETTLE_S), "the producer is stuck"

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except Exception as error:  # reported by the test
            self.failed.append(repr(error))

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self._write())
            both.create_task(self._read())

    async def _write(self) -> None:
        async with Producer(**self._options) as producer:
            number = 0
            while not self._writes.is_set():
                await producer.send_and_wait(self.cell.topic, b"%d" % number, partition=number % 3)
                self.acknowledged.add(number)
                number += 1
                await asyncio.sleep(PAUSE_S)
        self._written.set()

    async def _read(self) -> None:
        group: dict[str, Any] = {"group_id": self.cell.topic, "auto_offset_reset": "earliest"}
        async with Consumer(self.cell.topic, **group, **self._options) as consumer:
            while not self._reads.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    self.read.update(int(record.value or b"") for record in records)
                    await consumer.commit()


class OfJava(Renewing):
    """A VerifiableProducer and a VerifiableConsumer, each a process that prints its operations."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        super().__init__(cell)
        config = client_config(
            folder / "java.properties", cell.user, cell.password, Path(cell.ca), cell.mechanism
        )
        with config.open("a") as file:
            # Without these the tool never retries.
            file.write("retries=2147483647\nenable.idempotence=true\n")
        common = (
            "--bootstrap-server",
            cell.bootstrap,
            "--topic",
            cell.topic,
            "--command-config",
            str(config),
        )
        self._commands = [
            java.command("org.apache.kafka.tools.VerifiableProducer", *common, "--throughput", "50"),
            java.command(
                "org.apache.kafka.tools.VerifiableConsumer",
                *(*common, "--group-id", cell.topic, "--verbose", "--reset-policy", "earliest"),
            ),
        ]
        self._processes: list[subprocess.Popen[str]] = []
        self._threads: list[threading.Thread] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        for command in self._commands:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            thread = threading.Thread(target=self._note, args=(process,), daemon=True)
            thread.start()
            self._processes.append(process)
            self._threads.append(thread)
        try:
            yield
        finally:
            for process in self._processes:
                process.kill()
                process.wait()

    def stop_writing(self) -> None:
        self._processes[0].send_signal(signal.SIGTERM)
        self._processes[0].wait(SETTLE_S)
        self._threads[0].join(SETTLE_S)

    def _note(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            match event["name"]:
                case "producer_send_success":
                    self.acknowledged.add(int(event["value"]))
                case "producer_send_error":
                    self.failed.append(str(event))
                case "record_data":
                    self.read.add(int(event["value"]))


def wait_for_more(clients: list[Renewing]) -> None:
    """Return once each client has written and read a number that it had not at the call."""
    before = [(len(client.acknowledged), len(client.read)) for client in clients]
    deadline = time.monotonic() + SETTLE_S
    for client, (acknowledged, read) in zip(clients, before, strict=True):
        while len(client.acknowledged) <= acknowledged or len(client.read) <= read:
            assert not client.failed, f"{client.cell.name}: {client.failed[:3]}"
            assert time.monotonic() < deadline, (
                f"{client.cell.topic} is stuck: {acknowledged} and then {len(client.acknowledged)} acknowledged, "
                f"{read} and then {len(client.read)} read"
            )
            time.sleep(0.02)
