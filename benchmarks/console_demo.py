"""A live cluster for the console: flights stream in, a group reads them, delays are summed up in transactions.

Now and then a broker is killed and comes back.

    python -m benchmarks.console_demo [--data DIR] [--open]

Prints the address of the console and runs until Control-C. `make demo-console` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer

from .clusters import Cluster, ottla_cluster
from .flights_demo import CARRIER, TAIL_NUMBER, flight_rows

FLIGHTS, DELAYS, GROUP = "flights", "delays", "departures-board"
FLIGHTS_PER_S = 400
DELAY = 8
TRANSACTION_S = 2.0
WELL_S, AWAY_S = 45.0, 15.0
"""Seconds before a broker is killed, and seconds until it starts again."""
END_S = 10.0


async def produce(bootstrap: str, rows: list[bytes]) -> None:
    """Send the flights of 2013 again and again, keyed by tail number."""
    async with Producer(bootstrap_servers=bootstrap, client_id="airport") as producer:
        for number, row in enumerate(cycle(rows)):
            await producer.send(FLIGHTS, row, row.split(b",")[TAIL_NUMBER])
            if number % (FLIGHTS_PER_S // 10) == 0:
                await asyncio.sleep(0.1)


async def read(bootstrap: str, member: int) -> None:
    """Run a group member that reads flights, commits, and is slightly slower now and then."""
    async with Consumer(
        FLIGHTS,
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        client_id=f"board-{member}",
        enable_auto_commit=True,
    ) as consumer:
        number = 0
        async for _ in consumer:
            number += 1
            if number % 5_000 == 0:
                await asyncio.sleep(5)


async def sum_up(bootstrap: str) -> None:
    """Sum up delays by carrier, in a transaction every few seconds; one in ten is aborted."""
    totals: Counter[str] = Counter()
    async with (
        Consumer(FLIGHTS, bootstrap_servers=bootstrap, client_id="delays") as consumer,
        Producer(bootstrap_servers=bootstrap, transactional_id="delays", client_id="delays") as producer,
    ):
        loop = asyncio.get_running_loop()
        number, next_s = 0, loop.time() + TRANSACTION_S
        async for record in consumer:
            columns = bytes(record.value or b"").decode().split(",")
            with suppress(ValueError):
                totals[columns[CARRIER]] += int(columns[DELAY])
            if loop.time() < next_s:
                continue
            number, next_s = number + 1, loop.time() + TRANSACTION_S
            await producer.begin_transaction()
            for carrier, minutes in totals.items():
                await producer.send(DELAYS, str(minutes).encode(), carrier.encode())
            if number % 10:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()


async def break_brokers(cluster: Cluster) -> None:
    """Kill the brokers in turn, and start each again."""
    for broker in cycle(cluster.brokers):
        await asyncio.sleep(WELL_S)
        print(f"broker {broker.id} is killed", flush=True)
        await asyncio.to_thread(cluster.kill, broker)
        await asyncio.sleep(AWAY_S)
        print(f"broker {broker.id} starts again", flush=True)
        cluster.restart(broker)


async def run(cluster: Cluster) -> None:
    """Run all parts together until the task is cancelled. A part that a dead broker ends starts again."""
    rows = flight_rows()
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics(
            [
                NewTopic(FLIGHTS, 6, 3, configs={"retention.ms": "3600000"}),
                NewTopic(DELAYS, 3, 3, configs={"cleanup.policy": "compact"}),
            ]
        )

    async def again(name: str) -> None:
        while True:
            try:
                match name:
                    case "producer":
                        await produce(cluster.bootstrap, rows)
                    case "transactions":
                        await sum_up(cluster.bootstrap)
                    case _:
                        await read(cluster.bootstrap, int(name))
            except KafkaError as error:
                print(f"{name} starts again: {error}", flush=True)
                await asyncio.sleep(1)

    async with asyncio.TaskGroup() as tasks:
        for name in ("producer", "transactions", "1", "2"):
            tasks.create_task(again(name))
        tasks.create_task(break_brokers(cluster))


@contextmanager
def console(cluster: Cluster, folder: Path, *, opens: bool) -> Iterator[None]:
    """Run the console, which prints its own address."""
    told = json.loads((folder / "cluster.json").read_text())
    words = [sys.executable, "-m", "ottla", "console", "-b", cluster.bootstrap, "--allow-changes"]
    for node in (*told["brokers"], *told["quorum"]):
        words += ["--metrics", node["metrics"]]
    process = subprocess.Popen([*words, "--listen", "127.0.0.1:0", *(["--open"] if opens else [])])
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _until_told() -> None:
    """Return at Control-C or SIGTERM."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()


async def show(cluster: Cluster) -> None:
    """Run until Control-C or SIGTERM."""
    running = asyncio.create_task(run(cluster))
    ended = asyncio.create_task(_until_told())
    await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    options.add_argument("--data", type=Path, help="where the cluster lives; a temporary folder otherwise")
    options.add_argument("--open", action="store_true", help="open the address in a browser")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-console-") as temporary:
        folder = (arguments.data or Path(temporary) / "data").absolute()
        print("three quorum nodes and three brokers start; the next line is the address to open", flush=True)
        with ottla_cluster(folder) as cluster, console(cluster, folder, opens=arguments.open):
            asyncio.run(show(cluster))


if __name__ == "__main__":
    main()
