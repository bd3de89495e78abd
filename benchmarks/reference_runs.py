"""Building and running the small C programs in `reference/`: a load generator and the servers to compare
with.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "reference"


def build(folder: Path) -> None:
    """Compile every program into `folder`. Raises RuntimeError without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("the reference programs need a C compiler (cc)")
    for source in SOURCES.glob("*.c"):
        subprocess.run(
            [compiler, "-O2", "-pthread", "-o", str(folder / source.stem), str(source)], check=True
        )


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def reference_server(program: Path, *arguments: object) -> Iterator[tuple[int, int]]:
    """A reference server: its process id and port."""
    process = subprocess.Popen([str(program), *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@dataclass(frozen=True, slots=True)
class Load:
    """How hard to press: connections, requests in flight on each, requests per connection."""

    connections: int = 4
    depth: int = 4
    count: int = 5000


@dataclass(frozen=True, slots=True)
class Reading:
    """What one run cost."""

    cpu_us_per_request: float
    mb_per_cpu_second: float
    mb_per_second: float
    p50_us: float
    p99_us: float


def replay(folder: Path, pid: int, port: int, frames: bytes, load: Load, payload_bytes: int) -> Reading:
    """Send `frames` in turn as `load` says and read the CPU time that the server took.

    A first quarter of the load warms the server up; `payload_bytes` is what a request is worth.
    """
    file = folder / "frames"
    file.write_bytes(frames)

    def press(count: int) -> dict[str, float]:
        command = [str(folder / "replay"), *map(str, (port, load.connections, load.depth, count)), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result: dict[str, float] = json.loads(done.stdout)
        return result

    press(max(load.count // 4, 1))
    before = cpu_seconds(pid)
    result = press(load.count)
    cpu = cpu_seconds(pid) - before
    requests = load.connections * load.count
    megabytes = requests * payload_bytes / 1e6
    return Reading(
        cpu_us_per_request=cpu / requests * 1e6,
        mb_per_cpu_second=megabytes / cpu,
        mb_per_second=megabytes / result["seconds"],
        p50_us=result["p50_us"],
        p99_us=result["p99_us"],
    )
