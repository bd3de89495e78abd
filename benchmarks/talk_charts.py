"""The charts of LinkedIn's talk and benchmark of Kafka, measured for Ottla and Apache Kafka, with the published points.

    python -m benchmarks.talk_charts [CHART ...] [--rounds N] [--record FILE] [--picture FILE] [--draw-only]

CHARTS: acks size replicas producers consumers latency end-to-end (all of them without arguments). A chart takes some
two minutes, so they can be measured in several runs: the picture has the last readings of each chart in FILE. Three
brokers, three quorum nodes. The load comes from confluent-kafka (librdkafka) on both sides.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from confluent_kafka import Producer
from rich.console import Console

from .clusters import Cluster
from .compare import admin_of, json_like, new_topic, one_by_one, until_consumed, write_gigabytes, write_to
from .rounds import LAUNCHERS, Figure, Row, medians, percentile, record, running, show
from .security import PARTITIONS, read_from
from .talk_pictures import draw, last_readings

RECORDED = Path("benchmarks/results/talk_charts.jsonl")
PICTURE = Path("docs/images/talk-charts.png")
SMALL = 100
"""Bytes of a record in most of the published figures."""
RECORDS_MAX, GIGABYTES_MAX = 1_000_000, 0.3
"""Limits of one reading."""
WARM_GIGABYTES = 0.2
SIZES = {"10 B": 10, "100 B": 100, "1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000}
ONE_BY_ONE, WARM_ONE_BY_ONE = 3_000, 3_000


def written(cluster: Cluster, size: int = SMALL, replicas: int = 3, acks: str = "1") -> float:
    """Return the MB/s that one producer has acknowledged, in six partitions."""
    admin = admin_of(cluster)
    topic = new_topic(cluster, admin, PARTITIONS, replicas)
    gigabytes = min(GIGABYTES_MAX, RECORDS_MAX * size / 1e9)
    found = write_to(cluster, topic, gigabytes, {"acks": acks}, size)["MB/s"]
    admin.delete_topics([topic])[topic].result(60)  # so that the next reading finds as much free memory
    return found


def warmed(measure: Callable[[Cluster], Row]) -> Figure:
    """Make a figure that writes some data first, since a JVM compiles code while it runs."""

    def figure(cluster: Cluster) -> Row:
        write_gigabytes(cluster, WARM_GIGABYTES)
        written(cluster)
        return measure(cluster)

    return running(figure)


def acks(cluster: Cluster) -> Row:
    """Measure records of 100 B, replication factor 3."""
    return {f"acks={level}, MB/s": written(cluster, acks=level) for level in ("0", "1", "all")}


def size(cluster: Cluster) -> Row:
    """Measure record sizes with replication factor 3, acks=1."""
    return {f"{name}, MB/s": written(cluster, size) for name, size in SIZES.items()}


def replicas(cluster: Cluster) -> Row:
    """Measure numbers of replicas with records of 100 B."""
    return {
        f"{count} x, acks={acks}, MB/s": written(cluster, replicas=count, acks=acks)
        for acks in ("1", "all")
        for count in (1, 2, 3)
    }


def producers(cluster: Cluster) -> Row:
    """Measure processes that write to one topic: records of 100 B, replication factor 3, acks=1."""
    row: Row = {}
    for count in (1, 3):
        topic = new_topic(cluster, admin_of(cluster), PARTITIONS)
        gigabytes = RECORDS_MAX * SMALL / 1e9 / count
        row[f"{count}, MB/s"] = together(count, _write, cluster, topic, gigabytes)
    return row


def consumers(cluster: Cluster) -> Row:
    """Measure processes that each read all of one topic: records of 100 B."""
    topic = new_topic(cluster, admin_of(cluster), PARTITIONS)
    gigabytes = RECORDS_MAX * SMALL / 1e9
    write_to(cluster, topic, gigabytes, {"acks": "all"}, SMALL)
    together(1, _read, cluster, topic, gigabytes)
    return {f"{count}, MB/s": together(count, _read, cluster, topic, gigabytes) for count in (1, 2, 3)}


Load = Callable[[Cluster, str, float], tuple[float, float]]
"""A function that moves this number of gigabytes of a topic, and returns its begin and end times."""


def together(count: int, load: Load, cluster: Cluster, topic: str, gigabytes: float) -> float:
    """Return the MB/s of `count` processes that run the same load at the same time."""
    known = replace(cluster, children=[])  # child processes cannot be sent to another process
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        list(pool.map(time.sleep, [1.0] * count))  # until each process has started and imported all modules
        told = [pool.submit(load, known, topic, gigabytes) for _ in range(count)]
        times = [future.result() for future in told]
    elapsed = max(end for _, end in times) - min(start for start, _ in times)
    return count * gigabytes * 1e3 / elapsed


def _write(cluster: Cluster, topic: str, gigabytes: float) -> tuple[float, float]:
    start = time.monotonic()
    write_to(cluster, topic, gigabytes, {"acks": "1"}, SMALL)
    return start, time.monotonic()


def _read(cluster: Cluster, topic: str, _gigabytes: float) -> tuple[float, float]:
    start = time.monotonic()
    read_from(cluster, topic, {})
    return start, time.monotonic()


def latency(cluster: Cluster) -> Row:
    """Measure 1 KB, one record in flight, replication factor 3: from produce to delivery report, the median."""
    row: Row = {}
    value = json_like(1024)
    for acks in ("0", "1", "all"):
        topic = new_topic(cluster, admin_of(cluster), 1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "acks": acks})
        one_by_one(producer, topic, value, WARM_ONE_BY_ONE)
        row[f"acks={acks}, ms"] = percentile(one_by_one(producer, topic, value, ONE_BY_ONE), 50) * 1e3
    return row


def end_to_end(cluster: Cluster) -> Row:
    """Measure 100 B, one record in flight, replication factor 3: from produce to a waiting consumer."""
    took = until_consumed(cluster, bytes(SMALL), WARM_ONE_BY_ONE, ONE_BY_ONE)
    return {f"p{percent:g}, ms": percentile(took, percent) * 1e3 for percent in (50, 99, 99.9)}


CHARTS: dict[str, Figure] = {
    "acks": warmed(acks),
    "size": warmed(size),
    "replicas": warmed(replicas),
    "producers": warmed(producers),
    "consumers": warmed(consumers),
    "latency": running(latency),
    "end-to-end": running(end_to_end),
}


def main() -> int:
    """Run the benchmark; see the module's documentation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("charts", nargs="*", metavar="CHART", help=", ".join(CHARTS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--record", type=Path, default=RECORDED, help="append the readings to this file")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--draw-only", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if unknown := set(args.charts) - set(CHARTS):
        parser.error(f"unknown chart {sorted(unknown)[0]}: choose from {', '.join(CHARTS)}")
    console = Console()
    for name in [] if args.draw_only else args.charts or list(CHARTS):
        readings = {name: medians(name, CHARTS[name], LAUNCHERS, args.rounds, console)}
        show(readings, list(LAUNCHERS), {}, console)
        record(args.record, rounds=args.rounds, results=readings)
    draw(last_readings(args.record), args.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
