"""A Spark cluster of processes: a master and workers on loopback, which end with the block."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.spark_integration.mishaps import process_group
from tests.spark_integration.pipelines.driver import alive

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
CORES, MEMORY = 1, "512m"
"""Cores and memory of each worker."""
FOR_ONE_CORE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "470m",  # the least that Spark takes
}
"""Settings of a driver in this cluster."""
STARTS_S = 60.0
_MASTER = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_REGISTERED = re.compile(r"Successfully registered with master")


@dataclass
class StandaloneCluster:
    """A cluster; `workers` are process ids."""

    master: str
    workers: list[int]

    def executors(self) -> dict[int, int]:
        """Return process ids, with those of their workers."""
        found = alive("CoarseGrainedExecutorBackend")
        return {pid: parent for pid, parent in found.items() if parent in self.workers}

    def kill(self, pid: int) -> None:
        """Send SIGKILL to one process, but not to its children."""
        os.kill(pid, signal.SIGKILL)


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[StandaloneCluster]:
    """Run a master and this number of workers, each of which is registered with it. Logs are in `folder`."""
    environ = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_PUBLIC_DNS": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with ExitStack() as stack:
        log = folder / "master.log"
        argv = [str(SPARK_CLASS), "org.apache.spark.deploy.master.Master"]
        argv += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        stack.enter_context(process_group(argv, log, environ))
        master = _wait_for(_MASTER, log)[1]
        pids, logs = [], []
        for number in range(workers):
            logs.append(folder / f"worker-{number}.log")
            argv = [str(SPARK_CLASS), "org.apache.spark.deploy.worker.Worker", master]
            argv += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", str(CORES)]
            argv += ["--memory", MEMORY, "--work-dir", str(folder / f"work-{number}")]
            pids.append(stack.enter_context(process_group(argv, logs[-1], environ)).pid)
        for path in logs:
            _wait_for(_REGISTERED, path)
        yield StandaloneCluster(master, pids)


def _wait_for(pattern: re.Pattern[str], log: Path) -> re.Match[str]:
    deadline = time.monotonic() + STARTS_S
    while (found := pattern.search(log.read_text())) is None:
        assert time.monotonic() < deadline, f"{pattern.pattern!r} is not in {log}:\n{log.read_text()[-3000:]}"
        time.sleep(0.05)
    return found
