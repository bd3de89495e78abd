"""Programs that read or write at the same time, and what they and the brokers take for it.

A program says that it is ready, begins when it is told a line, and prints as JSON how many bytes it has moved, how many
seconds of a processor it took, and when it ended.
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
    """Run `module` with each of the arguments, all at once. `whose` names them in the result.

    Raises RuntimeError if one ends before it begins.
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
    moved = sum(one["bytes"] for one in told)
    return {
        "MB/s": moved / 1e6 / (max(one["ended"] for one in told) - began),
        "broker CPU s/GB": cpu / moved * 1e9,
        f"{whose} CPU s/GB": sum(one["cpu_s"] for one in told) / moved * 1e9,
    }


def when_told(move: Callable[[], int]) -> None:
    """In such a program: `move` returns how many bytes it has moved."""
    print("ready", flush=True)
    sys.stdin.readline()
    before = time.process_time()
    moved = move()
    print(json.dumps({"bytes": moved, "cpu_s": time.process_time() - before, "ended": time.monotonic()}))
