"""Programs that read or write at the same time, and the CPU that they and the brokers use.

A program prints that it is ready, begins when it gets a line, and prints as JSON the bytes it has moved, its CPU
seconds, and its end time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from .clusters import Cluster
from .compare import cpu_seconds
from .rounds import Row


def together(cluster: Cluster, module: str, arguments: Sequence[Sequence[str]], whose: str) -> Row:
    """Run `module` once with each of the arguments, all at once. `whose` names the programs in the result.

    Raises RuntimeError if a program ends before it begins.
    """
    programs = [
        subprocess.Popen(
            [sys.executable, "-m", module, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for given in arguments
    ]
    for program in programs:
        assert program.stdout is not None
        if not program.stdout.readline():
            raise RuntimeError(f"{cluster.name}: a program of {module} has ended before it began")
    before, began = cpu_seconds(cluster.brokers), time.monotonic()
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
    told = [json.loads(program.communicate()[0]) for program in programs]
    cpu = cpu_seconds(cluster.brokers) - before
    moved = sum(report["bytes"] for report in told)
    return {
        "MB/s": moved / 1e6 / (max(report["ended"] for report in told) - began),
        "broker CPU s/GB": cpu / moved * 1e9,
        f"{whose} CPU s/GB": sum(report["cpu_s"] for report in told) / moved * 1e9,
    }


def when_told(move: Callable[[], int]) -> None:
    """Run in such a program: wait for the line, and report. `move` returns the number of bytes moved."""
    print("ready", flush=True)
    sys.stdin.readline()
    before = time.process_time()
    moved = move()
    print(json.dumps({"bytes": moved, "cpu_s": time.process_time() - before, "ended": time.monotonic()}))
