"""Hours of mixed load, churn and faults on real processes: reports readings that rise over time, since a rise is a bug.

    python -m benchmarks.soak_real [--minutes 180] [--busy 18] [--plot soak-real.svg] [--record FILE]   (make soak-real)

Three brokers and three quorum nodes. `benchmarks.soak_load` has the load. Once a minute a fault happens, in an order
that `--seed` decides: the last broker or the last quorum node is killed or stopped, and started again; or any node is
paused for two seconds. The other nodes are never ended, so their memory is measured over the whole time.

Every ten seconds memory, descriptors, disk and CPU of each process are read, and times of clients. At the end a line is
fitted to each of them, without the first third of the time. If it rises by more than the allowed amount and more than
chance explains, the run has found a slope, and exits with 1. It also does so if an acknowledged record was not read, if
replicas were not back in sync within two minutes of a fault, or if a broker was fenced or the quorum changed its term
without a fault (`benchmarks.soak_watch`). `--plot` draws all readings (needs matplotlib).

With `--busy` that many processes use the processors all the time beside the cluster.

Two rises are reported and do not count. Quorum nodes keep the last metadata records, and the Raft log since the last
snapshot. At this load it takes an hour until these are full, so their memory and disk only count in runs of three hours
or more. And if the load of the machine rises too, it explains slower clients.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from ottla import Admin
from ottla.cli.local_cluster.liveness import is_alive

from .churn import resident_mb
from .clusters import Cluster, Node, ottla_cluster
from .cpu import cpu_s
from .rounds import record
from .slopes import Line, Reading, line, without_warm_up
from .soak_load import SETTINGS, TOPICS, Load
from .soak_watch import Watch, keep_watching

EVERY_S = 10.0
FAULT_EVERY_S = 60.0
PAUSE_S = 2.0
AWAY_S = 3.0
IN_SYNC_S = 120.0
QUORUM_FULL_S = 3 * 3600.0
ALLOWED = {"memory MB": 4.0, "descriptors": 10.0, "disk MB": 8.0, "CPU %": 5.0, "ms": 3.0, "load": 0.5}
"""Allowed rise of a line over the considered time; the allowed share applies if it is more."""
ALLOWED_SHARE = {"memory MB": 0.05, "descriptors": 0.1, "disk MB": 0.2, "CPU %": 0.25, "ms": 0.5, "load": 0.2}
MACHINE = "machine"


class Soak:
    """A cluster under load, with its readings and faults."""

    def __init__(self, cluster: Cluster, folder: Path, seed: int) -> None:
        self._cluster, self._folder = cluster, folder
        self._random = random.Random(seed)
        self._began_s = time.monotonic()
        self._cpu: dict[tuple[str, int], tuple[float, float]] = {}
        self.readings: dict[str, dict[str, list[Reading]]] = {unit: {} for unit in ALLOWED}
        """Readings by unit, and by process."""
        self.faults: list[tuple[float, str]] = []
        self.not_in_sync: list[str] = []
        self.watch = Watch(self._faults_of, lambda: self.elapsed_s)

    @property
    def _nodes(self) -> dict[str, Node]:
        return {f"broker {node.id}": node for node in self._cluster.brokers} | {
            f"quorum {node.id}": node for node in self._cluster.quorum
        }

    def _of(self, role: str) -> dict[str, Node]:
        return {name: node for name, node in self._nodes.items() if name.startswith(role)}

    @property
    def _ended(self) -> list[str]:
        """Nodes that are ended now and then, so their memory readings are not continuous."""
        return [f"broker {self._cluster.brokers[-1].id}", f"quorum {self._cluster.quorum[-1].id}"]

    @property
    def bootstrap(self) -> str:
        """Addresses of the brokers."""
        return self._cluster.bootstrap

    @property
    def elapsed_s(self) -> float:
        return round(time.monotonic() - self._began_s, 1)

    async def run(self, minutes: float, load: Load) -> list[int]:
        """Run load, faults and readings for this time; return the numbers of lost records."""
        await load.start()
        quorum, brokers = self._of("quorum"), self._of("broker")
        beside = [
            asyncio.create_task(self._break_on()),
            asyncio.create_task(keep_watching(self.watch, quorum, brokers)),
        ]
        while self.elapsed_s < minutes * 60:
            await asyncio.sleep(EVERY_S)
            self._read(load)
        for task in beside:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._mend()
        return await load.stop()

    # Readings

    def _read(self, load: Load) -> None:
        for name, node in self._nodes.items():
            with suppress(OSError, ValueError, IndexError):
                self._read_node(name, node)
        for name, milliseconds in load.take_times().items():
            self._note("ms", name, milliseconds)
        self._note("load", MACHINE, os.getloadavg()[0])
        done = "  ".join(f"{what} {count}" for what, count in load.done.items())
        print(f"{self.elapsed_s:7.0f} s  {done}  errors {load.errors.total()}", flush=True)

    def _read_node(self, name: str, node: Node) -> None:
        memory_mb = resident_mb(node.pid)
        if not memory_mb:
            return  # the process has just ended
        now_s, used_s = time.monotonic(), cpu_s(node.pid)
        before = self._cpu.get((name, node.pid))
        self._cpu[name, node.pid] = now_s, used_s
        if before is not None:
            self._note("CPU %", name, 100 * (used_s - before[1]) / (now_s - before[0]))
        self._note("memory MB", name, memory_mb)
        self._note("descriptors", name, len(os.listdir(f"/proc/{node.pid}/fd")))
        self._note("disk MB", name, disk_mb(self._folder / name.replace(" ", "-")))

    def _note(self, unit: str, name: str, value: float) -> None:
        self.readings[unit].setdefault(name, []).append((self.elapsed_s, round(value, 2)))

    # Faults

    async def _break_on(self) -> None:
        while True:
            await asyncio.sleep(FAULT_EVERY_S)
            await self._break_something()
            await self._wait_in_sync()

    def _faults_of(self, name: str) -> list[float]:
        return [at_s for at_s, fault in self.faults if fault.endswith(f" {name}")]

    async def _break_something(self) -> None:
        name = self._random.choice([*self._ended, *self._nodes])
        how = self._random.choice(["kill", "stop"] if name in self._ended else ["pause"])
        node = self._nodes[name]
        self.faults.append((self.elapsed_s, f"{how} {name}"))
        print(f"{self.elapsed_s:7.0f} s  {how} {name}", flush=True)
        if how == "pause":
            os.kill(node.pid, signal.SIGSTOP)
            await asyncio.sleep(PAUSE_S)
            os.kill(node.pid, signal.SIGCONT)
            return
        os.kill(node.pid, signal.SIGKILL if how == "kill" else signal.SIGTERM)
        while is_alive(node.pid):
            await asyncio.sleep(0.05)
        await asyncio.sleep(AWAY_S)
        self._cluster.restart(node)

    async def _mend(self) -> None:
        """Repair the cluster, as a fault may have been interrupted."""
        for node in self._nodes.values():
            if is_alive(node.pid):
                os.kill(node.pid, signal.SIGCONT)
            else:
                self._cluster.restart(node)
        await self._wait_in_sync()

    async def _wait_in_sync(self) -> None:
        names, last = [topic.name for topic in TOPICS], self.faults[-1][1] if self.faults else "the start"
        deadline = time.monotonic() + IN_SYNC_S
        while time.monotonic() < deadline:
            with suppress(Exception):
                async with Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
                    topics = await admin.describe_topics(names)
                if all(
                    len(partition.isr) == len(partition.replicas)
                    for topic in topics
                    for partition in topic.partitions.values()
                ):
                    return
            await asyncio.sleep(0.5)
        self.not_in_sync.append(last)

    # The report

    def slopes(self) -> tuple[Table, list[str]]:
        """Return a table with a row for each line, and the names of rising lines."""
        table = Table("", "", "from", "to", "per hour", "scatter", "")
        rising = []
        for unit, by_name in self.readings.items():
            for name, readings in by_name.items():
                fitted = line(without_warm_up(readings))
                if fitted is None or (unit == "memory MB" and name in self._ended):
                    continue
                said = ""
                if rises(unit, fitted):
                    said = self._excuse(unit, name) or "a slope"
                    if said == "a slope":
                        rising.append(f"{name}: {fitted.per_hour:+.1f} {unit} an hour")
                numbers = fitted.first, fitted.last, fitted.per_hour, fitted.scatter
                table.add_row(unit, name, *(f"{number:.1f}" for number in numbers), said)
        return table, rising

    def _excuse(self, unit: str, name: str) -> str:
        """Return the reason why a rise does not count; empty if it counts."""
        if name == MACHINE:
            return "others work here, too"
        fills = unit in ("memory MB", "disk MB") and name.startswith("quorum")
        if fills and self.elapsed_s < QUORUM_FULL_S:
            return "fills up"
        if unit == "ms":
            machine = line(without_warm_up(self.readings["load"].get(MACHINE, [])))
            if machine is not None and rises("load", machine):
                return "so does the load"
        return ""


def rises(unit: str, fitted: Line) -> bool:
    """Return whether a line rises by more than the allowed amount and more than chance explains."""
    return fitted.is_slope(max(ALLOWED[unit], ALLOWED_SHARE[unit] * fitted.first))


def disk_mb(folder: Path) -> float:
    """Return the disk space of the files in a folder, which may come and go meanwhile."""
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
    return total / 1e6


def draw(soak: Soak, path: Path) -> None:
    """Draw a picture for each unit; faults are vertical lines. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(soak.readings), 1, figsize=(9, 3 * len(soak.readings)), sharex=True)
    for panel, (unit, by_name) in zip(axes, soak.readings.items(), strict=True):
        for name, readings in by_name.items():
            panel.plot([at / 60 for at, _ in readings], [value for _, value in readings], label=name, lw=1)
        for at_s, _ in soak.faults:
            panel.axvline(at_s / 60, color="0.85", lw=0.8, zorder=0)
        panel.set_ylabel(unit)
        if unit == "ms":
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=0)
        panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    axes[-1].set_xlabel("minutes; grey lines are faults")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run processes that do nothing but use a processor."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=180, help="how long (180)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the faults (any)")
    parser.add_argument("--rate", type=float, default=200, help="records of 1 KB in a second (200)")
    parser.add_argument("--pace", type=float, default=0.5, help="rounds of churn in a second (0.5)")
    parser.add_argument("--busy", type=int, default=0, help="further processes that are always busy (0)")
    parser.add_argument("--plot", type=Path, help="draw it to this file")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    with (
        tempfile.TemporaryDirectory(prefix="ottla-soak-") as name,
        ottla_cluster(Path(name), settings=SETTINGS) as cluster,
        busy_processes(arguments.busy),
    ):
        soak = Soak(cluster, Path(name), arguments.seed)
        lost, load = uvloop.run(run(soak, arguments))
    table, rising = soak.slopes()
    Console(width=120).print(table)
    print(f"{len(soak.faults)} faults; done: {dict(load.done)}; errors: {dict(load.errors)}")
    print(f"{len(soak.watch.fences)} fences of brokers, {soak.watch.terms} new terms of the quorum")
    found = [
        *(f"a slope: {slope}" for slope in rising),
        *(f"not in sync again within {IN_SYNC_S:.0f} s: {fault}" for fault in soak.not_in_sync),
        *(f"needless, {happened}" for happened in soak.watch.needless),
        *([f"{len(lost)} acknowledged records were not read: {lost[:5]}"] if lost else []),
    ]
    print("\n".join(found) or "no slope, and nothing lost")
    if arguments.record is not None:
        record(
            arguments.record, minutes=arguments.minutes, busy=arguments.busy, seed=arguments.seed, found=found,
            faults=soak.faults, fences=soak.watch.fences, terms=soak.watch.terms, done=load.done,
            errors=load.errors, readings=soak.readings,
        )  # fmt: skip
    if arguments.plot is not None:
        try:
            draw(soak, arguments.plot)
        except ImportError:
            print("no picture, since matplotlib is not there: it is the extra `bench`", file=sys.stderr)
    return 1 if found else 0


async def run(soak: Soak, arguments: argparse.Namespace) -> tuple[list[int], Load]:
    """Run the soak; `Load` is made here since it belongs to the event loop."""
    load = Load(soak.bootstrap, arguments.rate, arguments.pace)
    return await soak.run(arguments.minutes, load), load


if __name__ == "__main__":
    raise SystemExit(main())
