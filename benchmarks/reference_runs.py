"""Builds and runs the small C programs in `reference/`: a load generator and the servers to compare with."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

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
    """Return user and system time of a process so far, including ended threads, in nanosecond steps."""
    # This is the clock id that clock_getcpuclockid(3) returns for a process.
    return time.clock_gettime(~pid << 3 | 2)


@contextmanager
def reference_server(program: Path, *arguments: object) -> Iterator[tuple[int, int]]:
    """Run a reference server; yield its process id and port."""
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
    """The load: connections, requests in flight on each, and requests per connection."""

    connections: int = 4
    depth: int = 4
    count: int = 5000


@dataclass(frozen=True, slots=True)
class Reading:
    """The costs of one run.

    The client's CPU time is included: on loopback the kernel sends and receives in the context of either end, so part
    of one end's work is counted for the other.
    """

    cpu_us_per_request: float
    client_us_per_request: float
    mb_per_cpu_second: float
    mb_per_second: float
    p50_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class Pair:
    """The readings of the reference and of a broker, measured one after the other."""

    reference: Reading
    ottla: Reading


def touch_free_pages(folder: Path, size_bytes: int) -> None:
    """Provide `size_bytes` of free memory that was in use a moment ago.

    In a virtual machine the first touch of a page that the host has taken back costs several times as much as copying
    into it, and is counted for the process that touches it. The host takes pages back within seconds: runs are short.
    """
    path = folder / "pages"
    chunk = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(size_bytes // len(chunk) + 1):
            file.write(chunk)
    path.unlink()


def replay(
    folder: Path, pid: int, port: int, frames: bytes, load: Load, payload_bytes: int, *, writes: bool
) -> Reading:
    """Send `frames` in turn as `load` says and read the CPU time that the server used.

    A first quarter of the load warms the server up. `payload_bytes` is the payload of a request, and `writes` says that
    the server writes the payload, too.
    """
    file = folder / "frames"
    file.write_bytes(frames)

    def press(count: int) -> dict[str, float]:
        command = [str(folder / "replay"), *map(str, (port, load.connections, load.depth, count)), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result: dict[str, float] = json.loads(done.stdout)
        return result

    press(max(load.count // 4, 1))
    if writes:
        touch_free_pages(folder, load.connections * load.count * payload_bytes)
    before = cpu_seconds(pid)
    result = press(load.count)
    cpu = cpu_seconds(pid) - before
    requests = load.connections * load.count
    megabytes = requests * payload_bytes / 1e6
    return Reading(
        cpu_us_per_request=cpu / requests * 1e6,
        client_us_per_request=result["cpu_seconds"] / requests * 1e6,
        mb_per_cpu_second=megabytes / cpu,
        mb_per_second=megabytes / result["seconds"],
        p50_us=result["p50_us"],
        p99_us=result["p99_us"],
    )


# ---------------------------------------------------------------- arguments and tables


def arguments(description: str | None) -> argparse.Namespace:
    """Parse `--rounds` and `--record` of a benchmark."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    return parser.parse_args()


def median_of(readings: Sequence[Reading]) -> Reading:
    """Return the median of each field separately."""
    return Reading(
        *(statistics.median(getattr(reading, name) for reading in readings) for name in Reading.__slots__)
    )


def machine() -> str:
    """Return a description of the machine."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def report(what: str, pairs: Mapping[int, Sequence[Pair]], record: Path | None) -> None:
    """Print the medians; the ratio is CPU time per request, the broker's over the reference's."""
    table = Table(
        what,
        "server",
        "CPU us/request",
        "client's",
        "MB per CPU second",
        "MB/s",
        "p50 us",
        "p99 us",
        "CPU ratio",
    )
    results: dict[str, dict[str, float]] = {}
    for size, runs in pairs.items():
        ratio = statistics.median(p.ottla.cpu_us_per_request / p.reference.cpu_us_per_request for p in runs)
        label = f"{size / 1024:.0f} KB"
        for server in ("reference", "ottla"):
            reading = median_of([getattr(pair, server) for pair in runs])
            table.add_row(
                label,
                "C" if server == "reference" else server,
                f"{reading.cpu_us_per_request:.1f}",
                f"{reading.client_us_per_request:.1f}",
                f"{reading.mb_per_cpu_second:.0f}",
                f"{reading.mb_per_second:.0f}",
                f"{reading.p50_us:.0f}",
                f"{reading.p99_us:.0f}",
                f"{ratio:.2f}" if server == "ottla" else "",
            )
            results[f"{label} {server}"] = {
                name: round(getattr(reading, name), 1) for name in Reading.__slots__
            }
        results[f"{label} ratio"] = {"cpu": round(ratio, 2)}
    Console().print(table)
    if record is not None:
        line = {"what": what, "at": time.strftime("%F %T"), "machine": machine(), "results": results}
        with record.open("a") as out:
            out.write(json.dumps(line) + "\n")
