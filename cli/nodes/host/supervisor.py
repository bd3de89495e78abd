"""The supervisor of a host's brokers: each runs in a separate process, and restarts when it has ended."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..child_processes import describe_exit

logger = logging.getLogger(__name__)

STOP_GRACE_S = 45.0
"""Seconds that a broker has to stop after SIGTERM before it is killed.

It is longer than the default of controlled.shutdown.timeout.ms, and shorter than supervisors usually wait.
"""
FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 60.0
STEADY_S: Final = 60.0
"""Seconds of running after which the next failure counts as the first again."""


class Restarts:
    """The delays before restarts of one broker process: longer each time, unless the process had run for STEADY_S
    seconds."""

    def __init__(self) -> None:
        self._next_s = FIRST_DELAY_S

    def delay_s(self, ran_s: float) -> float:
        """Return the delay in seconds before the next start, given how long the process ran."""
        if ran_s >= STEADY_S:
            self._next_s = FIRST_DELAY_S
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, LONGEST_DELAY_S)
        return delay_s


@dataclass(slots=True)
class BrokerProcess:
    """A broker of the host: its command line, and its running process."""

    node_id: int
    name: str
    argv: Sequence[str]
    first_words: Sequence[str] = ()
    """The arguments of only its first start."""
    socket: Path | None = None
    """The socket that serves its metrics."""
    starts: int = 0
    running: asyncio.subprocess.Process | None = field(default=None, repr=False)


class HostSupervisor:
    """A supervisor that keeps the broker processes of a host running until `stop`."""

    def __init__(self, brokers: Sequence[BrokerProcess], before_exec: Callable[[], None]) -> None:
        """Keep the brokers; `before_exec` runs in each child before it executes the broker."""
        self._brokers = brokers
        self._before_exec = before_exec
        self._stopping = asyncio.Event()
        self._kept: list[asyncio.Task[None]] = []
        self.killed: list[str] = []
        """The names of brokers that did not stop in time."""

    async def start(self) -> None:
        """Start the processes of all brokers, and return at once."""
        self._kept = [asyncio.create_task(self._keep(broker), name=broker.name) for broker in self._brokers]

    async def stop(self) -> None:
        """Send SIGTERM to all brokers, and return when they have ended; kill brokers that do not end in time."""
        self._stopping.set()
        self.tell(signal.SIGTERM)
        if not self._kept:
            return
        _, left = await asyncio.wait(self._kept, timeout=STOP_GRACE_S)
        if left:
            self.kill()
            await asyncio.wait(left)

    def kill(self) -> None:
        """Kill the processes of all running brokers, and note their names in `killed`."""
        self.killed += [broker.name for broker in self._brokers if broker.running is not None]
        self.tell(signal.SIGKILL)

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to every running broker process."""
        for broker in self._brokers:
            if broker.running is not None and broker.running.returncode is None:
                broker.running.send_signal(number)

    async def _keep(self, broker: BrokerProcess) -> None:
        restarts = Restarts()
        while not self._stopping.is_set():
            began_s = time.monotonic()
            end = await self._run(broker)
            if self._stopping.is_set():
                return
            delay_s = restarts.delay_s(time.monotonic() - began_s)
            logger.warning("%s %s. It starts again in %.0f s", broker.name, end, delay_s)
            try:
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def _run(self, broker: BrokerProcess) -> str:
        """Run the broker's process once until it ends, and return its end in words."""
        words = [*broker.argv, *([] if broker.starts else broker.first_words)]
        broker.starts += 1
        try:
            broker.running = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, process_group=0, preexec_fn=self._before_exec
            )
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        if self._stopping.is_set():
            broker.running.send_signal(signal.SIGTERM)
        logger.info("%s runs (pid %d)", broker.name, broker.running.pid)
        try:
            code = await broker.running.wait()
            return f"(pid {broker.running.pid}) has ended: {describe_exit(code)}"
        finally:
            broker.running = None
