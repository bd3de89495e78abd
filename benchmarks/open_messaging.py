"""Compares Ottla and Apache Kafka under the load of the OpenMessaging benchmark, and under several loads at once.

    python -m benchmarks.open_messaging [FIGURE ...] [--seconds N] [--topics N] [--partitions N] [--peak N]
                                        [--keep-gb N] [--rate N] [--no-mirror] [--turns] [--only ottla|kafka]
                                        [--rounds N] [--record FILE]

FIGURES: rates mixed (both without arguments). Three brokers, replication factor 3, acks=all, records of 1 KB. The load
comes from confluent-kafka (librdkafka): one process produces, and one consumes. The delay of a record begins when it is
due, and ends when the consumer has it (`paced_load`).

After a warm-up of 1 GB, `rates` finds the peak: the rate at which the consumer has the records of an unlimited
producer, which pauses when the consumer falls behind. 20, 50 and 80 % of this peak follow, for `--seconds` each (180).
Then the consumer pauses at 50 %, for a third of this time, and the backlog is drained while the producer continues. The
peak is that of each cluster, unless `--peak` has a rate in records a second for both.

`mixed` runs at once, for `--seconds`: a producer of `--rate` records a second (5,000), whose records are measured; 20
transactional producers of two transactions a second each; three groups, of which one gets and loses a member every few
seconds; a compacted topic, which is written to and cleaned; and a mirror of the first topic in another cluster. Kafka's
mirror is MirrorMaker 2. `--turns` also measures the longest turns of Ottla's loops, which adds some load.

`--keep-gb` is the disk that the records of all replicas take (12): topics keep no more. Twice as much has to be free in
the folder of temporary files (`TMPDIR`). `benchmarks.open_messaging_plot` draws the readings of a file.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ottla import Admin, TopicPartition

from .clusters import Cluster
from .compare import admin_of, cpu_seconds, new_topic
from .mirroring import copying, length
from .mixed_load import Groups, Transactions
from .paced_load import Delays, Reader, Remote, Writer, remote
from .rounds import LAUNCHERS, Figure, Launch, Row, command_line, compare, parsed, percentile
from .single_broker import LAUNCHERS as SINGLE_BROKER
from .wide_cluster import Pauses

FIGURES: Final = ("rates", "mixed")
SIZE: Final = 1_024
SHARES: Final = (0.2, 0.5, 0.8)
BACKLOG_SHARE: Final = 0.5
PERCENTILES: Final = (50, 90, 99, 99.9, 99.99)
REPLICAS: Final = 3
SEGMENTS: Final = 4
"""Segments of a partition that is full."""
PRODUCERS: Final = 20
"""Transactional producers."""
PER_SECOND: Final = 2.0
"""Transactions of each of them."""
REBALANCE_EVERY_S: Final = 3.0
KEYS: Final = 1_000
COMPACTED_PARTITIONS: Final = 2
COMPACTED_RATE: Final = 1_000.0
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "file.delete.delay.ms": "1000",
}
CLEANER: Final = {"log.cleaner.backoff.ms": "5000"}
SETTINGS: Final = {"log.retention.check.interval.ms": "2000"}
WARM_RECORDS: Final = 1_000_000
WARM_S: Final = 10.0
PEAK_S: Final = 20.0
WARM_SHARE: Final = 1 / 6
"""Warm-up before a rate, as a share of its time, and at most WARM_S."""
BEHIND: Final = 50_000
"""Records by which the consumer may be behind while the peak is measured."""
CAUGHT_UP_S: Final = 0.1
LOOK_S: Final = 0.1
DEADLINE_S: Final = 600.0


class Load(NamedTuple):
    """The load, as the options of the command describe it."""

    seconds: float
    topics: int
    partitions: int
    peak: float | None
    keep_gb: float
    rate: float
    mirror: bool
    turns: bool

    def topic_settings(self, topics: int) -> dict[str, str]:
        """Return settings by which the replicas of so many topics take `keep_gb` together."""
        each = self.keep_gb * 1e9 / (topics * self.partitions * REPLICAS)
        segment = max(1 << 20, round(each / SEGMENTS))
        return {
            "segment.bytes": str(segment),
            "retention.bytes": str(round(max(segment, each - segment))),
            "file.delete.delay.ms": "1000",
        }

    @property
    def backlog_max(self) -> float:
        """Return the number of records that may wait, so that none is deleted before it is consumed."""
        return self.keep_gb * 1e9 / REPLICAS / SIZE / 2


class Pair(NamedTuple):
    """The producer and the consumer of the topics."""

    writer: Remote
    reader: Remote

    @property
    def behind(self) -> int:
        """Return the number of records that the consumer does not have yet."""
        return int(self.writer.ask("sent")) - int(self.reader.ask("count"))

    def catch_up(self, records: float) -> float:
        """Wait until the consumer is no more than so many records behind; return the seconds."""
        began_s = time.monotonic()
        while self.behind > records:
            if time.monotonic() > began_s + DEADLINE_S:
                raise TimeoutError(f"the consumer did not catch up within {DEADLINE_S:g} s")
            time.sleep(LOOK_S)
        return time.monotonic() - began_s


# ---------------------------------------------------------------- rates


def rates(load: Load, launch: Launch, data: Path) -> Row:
    """Measure the peak, the delays at shares of it, and a backlog."""
    with launch(data, settings=SETTINGS) as cluster:
        topics = topics_for(cluster, load, load.topics)
        with pair_for(cluster, topics, load.partitions) as pair:
            return _rates(cluster, load, pair)


def _rates(cluster: Cluster, load: Load, pair: Pair) -> Row:
    warm_up(pair)
    row = {"peak, records/s": peak_of(pair)}
    peak = row["peak, records/s"] if load.peak is None else load.peak
    for share in SHARES:
        readings = steady(cluster, load, pair, share * peak)
        row |= {f"{share * 100:.0f} %: {name}": value for name, value in readings.items()}
    return row | drain(cluster, load, pair, BACKLOG_SHARE * peak)


def topics_for(cluster: Cluster, load: Load, count: int) -> list[str]:
    """Create topics that keep a limited number of bytes."""
    admin = admin_of(cluster)
    settings = load.topic_settings(count)
    return [new_topic(cluster, admin, load.partitions, settings=settings) for _ in range(count)]


@contextmanager
def pair_for(cluster: Cluster, topics: Sequence[str], partitions: int) -> Iterator[Pair]:
    """Run a producer that is paused, and a consumer that has all partitions of the topics."""
    with (
        remote(Writer, cluster.bootstrap, topics, SIZE) as writer,
        remote(Reader, cluster.bootstrap, topics, "measuring") as reader,
    ):
        deadline_s = time.monotonic() + DEADLINE_S
        while reader.ask("partitions") < len(topics) * partitions:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{cluster.name}: the consumer got no partitions within {DEADLINE_S:g} s")
            time.sleep(LOOK_S)
        yield Pair(writer, reader)


def warm_up(pair: Pair) -> None:
    """Let some records through, since a JVM compiles code while it runs."""
    while pair.reader.ask("count") < WARM_RECORDS:
        _unlimited(pair)
    _rest(pair)


def peak_of(pair: Pair) -> float:
    """Return the records a second that the consumer has of an unlimited producer, which waits for it if need be."""
    before, began_s = pair.reader.ask("count"), time.monotonic()
    while time.monotonic() < began_s + PEAK_S:
        _unlimited(pair)
    count, elapsed_s = pair.reader.ask("count") - before, time.monotonic() - began_s
    _rest(pair)
    return float(count / elapsed_s)


def _unlimited(pair: Pair) -> None:
    """Let the producer send as much as it can for a moment, or nothing if the consumer is behind."""
    pair.writer.ask("pace", 0.0 if pair.behind > BEHIND else None)
    time.sleep(LOOK_S)


def _rest(pair: Pair) -> None:
    """Pause the producer, and wait for the consumer."""
    pair.writer.ask("pace", 0.0)
    pair.catch_up(0)


class Observer(Protocol):
    """A reading of something else while delays are measured."""

    def clear(self) -> None:
        """Begin to measure."""

    def readings(self, elapsed_s: float) -> Row:
        """Return the readings of these seconds."""


def steady(cluster: Cluster, load: Load, pair: Pair, rate: float, observers: Sequence[Observer] = ()) -> Row:
    """Measure the delays at one rate."""
    pair.writer.ask("pace", rate)
    time.sleep(min(WARM_S, load.seconds * WARM_SHARE))
    for observer in observers:
        observer.clear()
    pair.reader.ask("clear")
    before, cpu_s, began_s = pair.reader.ask("count"), cpu_seconds(cluster.brokers), time.monotonic()
    while time.monotonic() < began_s + load.seconds:
        time.sleep(1.0)
        if pair.behind > load.backlog_max:
            raise RuntimeError(f"{cluster.name}: the consumer is too far behind at {rate:,.0f} records/s")
    elapsed_s = time.monotonic() - began_s
    count, cpu_s = pair.reader.ask("count") - before, cpu_seconds(cluster.brokers) - cpu_s
    row = delays_in(pair.reader.ask("delays"))
    row |= {"records/s": count / elapsed_s, "CPU of brokers, % of a core": cpu_s / elapsed_s * 100}
    for observer in observers:
        row |= observer.readings(elapsed_s)
    _rest(pair)
    return row


def delays_in(delays: Delays) -> Row:
    """Return the percentiles and the worst delay."""
    row = {f"p{percent:g}, ms": delays.percentile_ms(percent) for percent in PERCENTILES}
    return row | {"worst, ms": delays.worst_s * 1e3}


def drain(cluster: Cluster, load: Load, pair: Pair, rate: float) -> Row:
    """Measure how long the consumer takes for a backlog, while the producer continues."""
    pair.writer.ask("pace", rate)
    time.sleep(min(WARM_S, load.seconds * WARM_SHARE))
    pair.reader.ask("pause")
    time.sleep(min(load.seconds / 3, load.backlog_max / rate))
    backlog, before, cpu_s = pair.behind, pair.reader.ask("count"), cpu_seconds(cluster.brokers)
    pair.reader.ask("resume")
    took_s = pair.catch_up(rate * CAUGHT_UP_S)
    count, cpu_s = pair.reader.ask("count") - before, cpu_seconds(cluster.brokers) - cpu_s
    return {
        "backlog, GB": backlog * SIZE / 1e9,
        "backlog: drained, s": took_s,
        "backlog: MB/s": count * SIZE / 1e6 / took_s,
        "backlog: CPU of brokers, % of a core": cpu_s / took_s * 100,
    }


# ---------------------------------------------------------------- mixed


def mixed(load: Load, launch: Launch, data: Path) -> Row:
    """Measure the delays of one producer's records while all other loads run."""
    with ExitStack() as stack:
        cluster = stack.enter_context(launch(data / "cluster", settings=SETTINGS | CLEANER))
        (topic,) = topics_for(cluster, load, 1)
        admin = admin_of(cluster)
        moved = new_topic(cluster, admin, load.partitions)
        compacted = new_topic(cluster, admin, COMPACTED_PARTITIONS, settings=COMPACTED)
        pair = stack.enter_context(pair_for(cluster, [topic], load.partitions))
        target = stack.enter_context(mirror_of(cluster, launch, data, topic)) if load.mirror else None
        warm_up(pair)
        beside = Beside(
            stack.enter_context(
                remote(Transactions, cluster.bootstrap, moved, load.partitions, PRODUCERS, PER_SECOND)
            ),
            stack.enter_context(remote(Groups, cluster.bootstrap, [topic], REBALANCE_EVERY_S)),
            stack.enter_context(remote(Writer, cluster.bootstrap, [compacted], SIZE, KEYS)),
        )
        observers: list[Observer] = [beside]
        if load.turns and is_ottla(launch):
            observers.append(stack.enter_context(closing(Turns(cluster))))
        if target is not None:
            wait_for_mirror(target, topic, load, pair)
        beside.compacted.ask("pace", COMPACTED_RATE)
        row = steady(cluster, load, pair, load.rate, observers)
        row["compacted: bytes left, %"] = bytes_left(cluster, compacted, beside.compacted) * 100
        if target is not None:
            row["mirror: records behind"] = records_behind(target, topic, load, pair)
        return row


class Beside:
    """The loads beside the measured one."""

    def __init__(self, transactions: Remote, groups: Remote, compacted: Remote) -> None:
        self.transactions, self.groups, self.compacted = transactions, groups, compacted
        self._rebalances = 0

    def clear(self) -> None:
        """Begin to measure."""
        self.transactions.ask("clear")
        self._rebalances = self.groups.ask("rebalances")

    def readings(self, elapsed_s: float) -> Row:
        """Return the readings of transactions, and how often members of the changing group got partitions."""
        took_s = self.transactions.ask("took_s")
        row = {f"transactions: p{p:g}, ms": percentile(took_s, p) * 1e3 for p in (50, 99)}
        row |= {"transactions: worst, ms": max(took_s) * 1e3, "transactions/s": len(took_s) / elapsed_s}
        return row | {"members assigned": float(self.groups.ask("rebalances") - self._rebalances)}


class Turns:
    """The longest turns of the loops of Ottla's nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pauses = Pauses([*cluster.brokers, *cluster.quorum])

    def clear(self) -> None:
        """Begin to measure."""
        self._pauses.begin()

    def readings(self, _elapsed_s: float) -> Row:
        """Return the longest turn of a broker, and of a quorum node."""
        return {
            "longest turn of a broker, ms": self._pauses.longest_ms(self._cluster.brokers),
            "longest turn of a quorum node, ms": self._pauses.longest_ms(self._cluster.quorum),
        }

    def close(self) -> None:
        """End the measurement."""
        self._pauses.end()


def is_ottla(launch: Launch) -> bool:
    """Return whether a function launches Ottla."""
    return launch is LAUNCHERS["ottla"]


@contextmanager
def mirror_of(cluster: Cluster, launch: Launch, data: Path, topic: str) -> Iterator[Cluster]:
    """Run another cluster of the product, with one broker, that copies the topic."""
    name = next(name for name, each in LAUNCHERS.items() if each is launch)
    with (
        SINGLE_BROKER[name](data / "target") as target,
        copying(cluster, target, is_ottla(launch), data, topics=topic),
    ):
        copies = admin_of(target)
        deadline_s = time.monotonic() + DEADLINE_S
        while topic not in copies.list_topics(timeout=30).topics:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{cluster.name}: there was no mirror within {DEADLINE_S:g} s")
            time.sleep(LOOK_S)
        yield target


def wait_for_mirror(target: Cluster, topic: str, load: Load, pair: Pair) -> None:
    """Wait until the mirror has all records so far."""
    deadline_s = time.monotonic() + DEADLINE_S
    while records_behind(target, topic, load, pair) > 0:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{target.name}: the mirror did not catch up within {DEADLINE_S:g} s")
        time.sleep(LOOK_S)


def records_behind(target: Cluster, topic: str, load: Load, pair: Pair) -> float:
    """Return the number of records that the mirror does not have yet."""
    acknowledged = int(pair.writer.ask("acknowledged"))
    return float(acknowledged - length(admin_of(target), topic, load.partitions))


def bytes_left(cluster: Cluster, topic: str, writer: Remote) -> float:
    """Return the share of the written bytes that the largest replicas of a compacted topic still have."""

    async def sizes() -> int:
        places = [TopicPartition(topic, index) for index in range(COMPACTED_PARTITIONS)]
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            return sum((await admin.partition_sizes(places)).values())

    return asyncio.run(sizes()) / (int(writer.ask("acknowledged")) * SIZE)


# ---------------------------------------------------------------- the command


def main() -> int:
    """Run the benchmark; see the module's documentation."""
    parser = command_line(__doc__, FIGURES, rounds=1)
    parser.add_argument("--seconds", type=float, default=180.0, help="for each rate, and for mixed (180)")
    parser.add_argument("--topics", type=int, default=4, help="of rates (4)")
    parser.add_argument("--partitions", type=int, default=8, help="of each topic (8)")
    parser.add_argument("--peak", type=float, help="records a second of which shares are taken (measured)")
    parser.add_argument("--keep-gb", type=float, default=12.0, help="disk of all replicas (12)")
    parser.add_argument("--rate", type=float, default=5_000.0, help="records a second of mixed (5000)")
    parser.add_argument("--no-mirror", action="store_true", help="mixed without a mirror")
    parser.add_argument("--turns", action="store_true", help="measure the longest turns of Ottla's loops")
    args = parsed(parser, FIGURES)
    load = Load(
        *(args.seconds, args.topics, args.partitions, args.peak, args.keep_gb, args.rate),
        mirror=not args.no_mirror,
        turns=args.turns,
    )
    _refuse_without_room(parser, load)
    figures: dict[str, Figure] = {"rates": partial(rates, load), "mixed": partial(mixed, load)}
    compare(args, figures, load=load._asdict())
    return 0


def _refuse_without_room(parser: argparse.ArgumentParser, load: Load) -> None:
    folder = tempfile.gettempdir()
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < 2 * load.keep_gb:
        parser.error(
            f"{load.keep_gb:g} GB of records need {2 * load.keep_gb:g} GB of disk, and {folder} has "
            f"{free_gb:.1f} GB free. Choose a smaller --keep-gb, or another folder in TMPDIR"
        )


if __name__ == "__main__":
    sys.exit(main())
