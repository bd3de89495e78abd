"""Workers of Kafka Connect, from Maven Central, controlled over their REST port on loopback."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.kafka import HOST, free_ports
from tests.cluster import wait_for, wait_until
from tests.programs.jvm import Jars
from tests.programs.process import Program

VERSION = "4.3.1"  # connect-file is not on Maven Central as 4.4.0
_MODULES = ("connect-runtime", "connect-json", "connect-transforms")
WAIT_S = 240.0  # two workers and a cluster share the cores with other tests
_BUSY = (0, 404, 409, 500, 503)  # it starts, does not know yet, rebalances, waits for another worker, begins


def connect_with(connector: str) -> Jars:
    """Return the jars of Connect and of a connector, by its Maven coordinates."""
    modules = (f"org.apache.kafka:{module}:{VERSION}" for module in _MODULES)
    return Jars("kafka-connect", (*modules, connector, "org.slf4j:slf4j-simple:1.7.36"))


FILES = connect_with(f"org.apache.kafka:connect-file:{VERSION}")


class Worker(Program):
    """A worker of a Connect cluster; it keeps its port across a kill and a restart."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, str], jars: Jars) -> None:
        (port,) = free_ports(1)
        self.id = f"{HOST}:{port}"
        properties = folder / f"{name}.properties"
        given = dict(settings) | {"listeners": f"http://{self.id}"}
        properties.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        argv = jars.run_class("org.apache.kafka.connect.cli.ConnectDistributed", str(properties))
        super().__init__(argv, folder / f"{name}.log")

    def ask(self, method: str, path: str, body: object = None, timeout_s: float = WAIT_S) -> Any:
        """Return the JSON of a REST answer, once the workers are not rebalancing."""
        data = None if body is None else json.dumps(body).encode()
        said = ""

        def answer() -> list[Any] | None:
            nonlocal said
            request = urllib.request.Request(
                f"http://{self.id}{path}", data, {"Content-Type": "application/json"}, method=method
            )
            code = 0
            try:
                with urllib.request.urlopen(request, timeout=20) as response:
                    code, said = response.status, response.read().decode()
            except urllib.error.HTTPError as error:
                code, said = error.code, error.read().decode()
            except OSError as error:
                said = str(error)
            if 200 <= code < 300:
                return [json.loads(said) if said else None]
            assert self.alive, self.said[-3000:]
            assert code in _BUSY, f"{method} {path}: {code} {said}"
            return None

        try:
            return wait_for(answer, f"{method} {path}", timeout_s)[0]
        except AssertionError as error:
            raise AssertionError(f"{error}\n{said}") from None

    def states(self, connector: str) -> list[tuple[str, str]]:
        """Return the state and worker of the connector and of each of its tasks."""
        status = self.ask("GET", f"/connectors/{connector}/status")
        return [(task["state"], task["worker_id"]) for task in (status["connector"], *status["tasks"])]

    def wait_until_running(self, connector: str, tasks: int = 1, timeout_s: float = WAIT_S) -> None:
        """Return once the connector and this number of its tasks run."""

        def running() -> bool:
            found = [state for state, _ in self.states(connector)]
            assert "FAILED" not in found, self.ask("GET", f"/connectors/{connector}/status")
            return found == ["RUNNING"] * (1 + tasks)

        wait_until(running, f"{connector} running", timeout_s)

    def pause(self) -> None:
        """Send SIGSTOP: the worker keeps its tasks, and does nothing."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self.send(signal.SIGCONT)


def worker_of(workers: Sequence[Worker], connector: str, asked: Worker | None = None) -> Worker:
    """Return the worker that runs the connector's first task, as a worker reports it."""
    answering = asked or next(worker for worker in workers if worker.alive)

    def found() -> Worker | None:
        states = answering.states(connector)
        with suppress(StopIteration, IndexError):
            return next(worker for worker in workers if states[1] == ("RUNNING", worker.id))
        return None

    return wait_for(found, f"a worker that runs {connector}", WAIT_S)
