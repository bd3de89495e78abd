"""A host with a virtual disk, for tests of code that runs without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ottla.dataplane.log import LogConfig
from ottla.dataplane.storage.directory import LogDirectory
from tests.simulation.machine.files import VirtualDisk
from tests.simulation.machine.host import Host
from tests.simulation.machine.machine import Machine
from tests.simulation.machine.process import Process
from tests.simulation.machine.trace import Trace

ENOUGH_S = 60.0
DATA = Path("/simulated/alpha/data")


class Room:
    """A host, and work for processes on it."""

    def __init__(self, seed: int) -> None:
        self.events: list[str] = []
        self.machine = Machine(seed, Trace(self.events.append))
        self.host = Host(self.machine, "alpha", "10.0.0.1", VirtualDisk(self.machine, "alpha"))
        self.disk = self.host.disk

    def begin(self, work: Callable[[], Any], process: Process | None = None) -> tuple[Process, Future[Any]]:
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        process = process or Process(self.host, "worker", None)
        process.spawn_thread(run, "work")
        return process, done

    def do(self, work: Callable[[], Any]) -> Any:
        """Run `work` in a new process, kill the process, and return the result."""
        process, done = self.begin(work)
        assert self.machine.run(self.machine.now + ENOUGH_S, done.done)
        process.kill()
        return done.result()

    def lose_power(self) -> None:
        self.host.lose_power()
        self.host.power_on()


def open_data(config: LogConfig) -> LogDirectory:
    """Open a broker's data folder with all its logs."""
    directory = LogDirectory.open(DATA, "ottla-1", 2, new_directory_id=b"d" * 16)
    directory.load({}, config, now_ms=0)
    return directory
