"""Measures the console of a cluster with many topics: time to the first paint, memory, CPU, and the brokers' CPU.

    python -m benchmarks.console [--topics 1000] [--partitions 20000] [--record benchmarks/results/console.jsonl]

Three brokers, one replica of each partition. Pages are opened in Chromium; "seen" is the browser's first paint with
content. For a first look the console has to ask the cluster, since no page was open for a while. Afterwards it knows
the state of two seconds ago, so a page waits little. Then twenty pages are kept up to date over plain connections; four
of them are the same. In the end all pages are closed, and finally the console is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, Final

import uvloop

from ottla.client.admin import Admin, NewTopic

from .clusters import Cluster, ottla_cluster
from .cpu import cpu_s
from .scaling import memory_mb

RESULTS: Final = Path(__file__).parent / "results" / "console.jsonl"
CHROMIUM: Final = "/usr/bin/chromium"
TOPICS_AT_ONCE: Final = 50
QUIET_S, WATCHED_S, FORGOTTEN_S = 60.0, 30.0, 35.0
"""Seconds of measuring without open pages and with open pages; and the time after which a viewer is forgotten.

Brokers write checkpoints once a minute. They scan new logs for the first time soon after their creation, which takes a
minute. So their CPU at rest is measured last.
"""
LOOKS: Final = 4
BETWEEN_LOOKS_S: Final = 2.5
DEADLINE_S: Final = 300
PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
"""Milliseconds since the navigation began."""


async def create(bootstrap: str, topics: int, partitions: int) -> None:
    """Create all topics, and wait until each partition has a leader."""
    names = [f"flights-{number:04}" for number in range(topics)]
    async with Admin(bootstrap_servers=bootstrap, request_timeout_ms=120_000) as admin:
        for first in range(0, topics, TOPICS_AT_ONCE):
            some = names[first : first + TOPICS_AT_ONCE]
            await admin.create_topics([NewTopic(name, partitions // topics, 1) for name in some])
        async with asyncio.timeout(DEADLINE_S):
            while not await is_led(admin, topics):
                await asyncio.sleep(0.5)


async def is_led(admin: Admin, topics: int) -> bool:
    found = await admin.describe_topics()
    led = [partition.leader >= 0 for topic in found for partition in topic.partitions.values()]
    return len(found) >= topics and all(led)


@contextmanager
def console(bootstrap: str, log: Path, *options: str) -> Iterator[tuple[int, str]]:
    """Run a console; yield its process id, and the address that lets a browser in."""
    words = [sys.executable, "-m", "ottla", "console", "-b", bootstrap, "--listen", "127.0.0.1:0", *options]
    with log.open("w") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            if not (address := process.stdout.readline().strip()):
                raise RuntimeError(f"the console did not start:\n{log.read_text()}")
            yield process.pid, address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def used_percent(pids: Sequence[int], window_s: float) -> list[float]:
    """Return the CPU of each process in this time, in percent of a core."""
    before = [cpu_s(pid) for pid in pids]
    time.sleep(window_s)
    return [round(100 * (cpu_s(pid) - used) / window_s, 2) for pid, used in zip(pids, before, strict=True)]


def seen_after_ms(address: str, paths: Sequence[str]) -> dict[str, dict[str, float]]:
    """Measure the first paint of each page: at the first look at the cluster, and at later looks."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(address)
        origin = address.partition("/?")[0]

        def seen(path: str, unseen_s: float) -> float:
            page.goto("about:blank")
            time.sleep(unseen_s)
            page.goto(origin + path)
            while (found := page.evaluate(PAINTED)) is None:
                page.wait_for_timeout(20)
            return round(float(found), 1)

        first = {path: seen(path, FORGOTTEN_S) for path in paths}
        later = {path: [seen(path, BETWEEN_LOOKS_S) for _ in range(LOOKS)] for path in paths}
        browser.close()
    return {
        path: {
            "first": first[path],
            "later, median": statistics.median(later[path]),
            "most": max(later[path]),
        }
        for path in paths
    }


def cookie_of(address: str) -> str:
    """Return the cookie of a browser that has logged in."""
    jar = CookieJar()
    urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar)).open(address).close()
    return "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)


@asynccontextmanager
async def open_pages(address: str, paths: Sequence[str]) -> AsyncIterator[list[int]]:
    """Keep pages open and up to date; yield the number of bytes that each has received."""
    origin, cookie = address.partition("/?")[0], await asyncio.to_thread(cookie_of, address)
    host = origin.partition("//")[2]
    got = [0] * len(paths)

    async def read(number: int, path: str) -> None:
        reader, writer = await asyncio.open_connection(*host.rsplit(":", 1))
        try:
            writer.write(f"GET /events{path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n".encode())
            while piece := await reader.read(2**16):
                got[number] += len(piece)
        finally:
            writer.close()

    tasks = [asyncio.create_task(read(number, path)) for number, path in enumerate(paths)]
    try:
        yield got
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def watched(address: str, pids: Sequence[int], paths: Sequence[str]) -> tuple[list[float], int]:
    """Return the CPU of these processes while the pages are open, and the number of pages that received data."""
    async with open_pages(address, paths) as got:
        await asyncio.sleep(5)
        used = await asyncio.to_thread(used_percent, pids, WATCHED_S)
        return used, sum(number > 0 for number in got)


def measured(cluster: Cluster, folder: Path, topics: int, partitions: int) -> dict[str, Any]:
    """Measure all figures."""
    began = time.monotonic()
    uvloop.run(create(cluster.bootstrap, topics, partitions))
    created_s = time.monotonic() - began
    brokers = [node.pid for node in cluster.brokers]
    with console(cluster.bootstrap, folder / "console.log") as (pid, address):
        time.sleep(FORGOTTEN_S)
        started_mb = memory_mb(pid)
        seen = seen_after_ms(address, ("/overview", "/topics"))
        paths = ["/overview"] * 4 + [f"/topics?page={number}" for number in range(1, 9)]
        paths += [f"/topics/topic?name=flights-{number:04}" for number in range(8)]
        (console_watched, *brokers_watched), alive = uvloop.run(watched(address, [pid, *brokers], paths))
        watched_mb = memory_mb(pid)
        time.sleep(FORGOTTEN_S)
        console_quiet, *brokers_quiet = used_percent([pid, *brokers], QUIET_S)
    without = used_percent(brokers, QUIET_S)
    return {
        "topics": topics,
        "partitions": partitions,
        "created_s": round(created_s, 1),
        "seen_after_ms": seen,
        "memory_mb": {"started": round(started_mb, 1), f"{len(paths)} pages open": round(watched_mb, 1)},
        "pages_that_got_news": alive,
        "console_cpu_percent": {"nobody looks": console_quiet, f"{len(paths)} pages open": console_watched},
        "brokers_cpu_percent": {
            "without a console": without,
            "nobody looks": brokers_quiet,
            f"{len(paths)} pages open": brokers_watched,
        },
    }  # fmt: skip


def main() -> None:
    """Run, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=1_000, help="how many (1000)")
    parser.add_argument("--partitions", type=int, default=20_000, help="of all topics together (20000)")
    parser.add_argument("--record", type=Path, default=RESULTS, help=f"where the figures go ({RESULTS.name})")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ottla-console-") as folder,
        ottla_cluster(Path(folder)) as cluster,
    ):
        figures = measured(cluster, Path(folder), arguments.topics, arguments.partitions)
        figures |= {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_average": round(os.getloadavg()[0], 1),
        }
        # Print before the cluster stops: stopping so many logs takes long.
        print(json.dumps(figures, indent=2), flush=True)
        with arguments.record.open("a") as record:
            record.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
