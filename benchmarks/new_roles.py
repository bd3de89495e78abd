"""A broker's cost when another one dies: CPU from the bytes of the metadata feed to its new roles.

    python -m benchmarks.new_roles [--partitions 10000] [--rounds 5] [--profile | --record FILE]

One broker of three has a log of each partition. The quorum's own code makes the records that fence broker 3, which led
a third of the partitions. They are folded and followed as in a node. There is no broker to fetch from. This broker
leads two thirds from then on. The reading is the least of the rounds, each of which is a fork of the same process.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import os
import pstats
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import NamedTuple

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.dataplane.log import LogConfig
from ottla.dataplane.quorum.image_follower import Fold, ImageFollower
from ottla.dataplane.replication.leader.isr_updates import Outcome
from ottla.dataplane.replication.replica.settings import ReplicationSettings, TopicSettings
from ottla.dataplane.replication.replicas.replicas import Replicas, ReplicasConfig
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.storage.log_store import LogStore
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.messages.broker_commands import FenceBroker
from ottla.protocol.messages.metadata_records import encode_record
from ottla.protocol.messages.quorum_session import FeedRecords
from tests.metadata_quorum.state.harness import ControllerWithBrokers, topic
from tests.node_credentials import credentials

from .rounds import record

OWN_ID, DEAD_ID = 1, 3
PARTITIONS_OF_TOPIC = 1_000
SETTINGS = TopicSettings(LogConfig(), ReplicationSettings(min_in_sync=2))


async def _no_isr_changes(_proposals: Sequence[object]) -> Sequence[Outcome]:
    await asyncio.Event().wait()
    return ()


class Reading(NamedTuple):
    """CPU seconds of the loop's thread."""

    folded_s: float
    followed_s: float


class Rig:
    """The quorum's controller, and broker 1, which follows it."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.quorum = ControllerWithBrokers(3)
        for number in range(partitions // PARTITIONS_OF_TOPIC):
            self.quorum.create(topic(f"t{number}", PARTITIONS_OF_TOPIC, 3))
        self.follower = ImageFollower(OWN_ID)
        self.logs = LogStore.open([folder], "cluster", OWN_ID, wall_ms)
        self.replicas = Replicas(
            ReplicasConfig(credentials(OWN_ID), "BROKER"),
            self.logs,
            self.follower.image,
            lambda _: SETTINGS,
            _no_isr_changes,
            lambda: 7,
        )
        image = self.quorum.machine.image
        for entry in image.records():
            self.follower.image.apply(entry)
        self.follower.image.offset = image.offset

    async def start(self) -> None:
        """Create all logs, and check the ISRs, which brokers do every 15 seconds."""
        image = self.follower.image
        self.replicas.image_changed(image, ImageDelta.between(type(image)(), image))
        while len(self.replicas) < sum(len(image_topic.partitions) for image_topic in image.topics.values()):
            await asyncio.sleep(0)
        self.replicas.check_isr()

    def fence(self) -> FeedRecords:
        """Return the quorum's records about a broker that has died."""
        offset = self.quorum.machine.image.offset
        fenced = self.quorum.apply(FenceBroker(broker_id=DEAD_ID, broker_epoch=self.quorum.epoch(DEAD_ID)))
        records = [encode_record(entry) for _, entry in fenced.records]
        return FeedRecords(first_offset=offset, end_offset=offset + len(records), term=1, records=records)

    def follow(self, push: FeedRecords) -> Reading:
        """Fold the records, and take the new roles.

        First the garbage collector writes to nearly all memory. Otherwise the kernel copies it, page by page, at the
        first write after a fork, which takes 3 to 4 microseconds for each partition.
        """
        gc.collect()
        image = self.follower.image
        began = time.thread_time()
        delta = self.follower.records(push)
        folded = time.thread_time()
        assert not isinstance(delta, Fold)
        self.replicas.image_changed(image, delta)
        return Reading(folded - began, time.thread_time() - folded)

    async def close(self) -> None:
        """Close the logs."""
        await self.replicas.close()
        self.logs.close(clean=True, broker_epoch=7)


def in_a_fork(act: Callable[[], Reading]) -> Reading:
    """Run `act` in a child process, so that the next round finds the same state."""
    ours, theirs = Pipe(duplex=False)
    child = os.fork()
    if not child:
        try:
            theirs.send(act())
        finally:
            os._exit(0)
    theirs.close()
    os.waitpid(child, 0)
    return Reading(*ours.recv())


def profile(rig: Rig, push: FeedRecords) -> Reading:
    """Print a profile."""
    with cProfile.Profile() as profiler:
        reading = rig.follow(push)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)
    sys.stdout.flush()
    return reading


async def measure(partitions: int, rounds: int, *, profiled: bool) -> Reading:
    """Return the least of the rounds."""
    with tempfile.TemporaryDirectory(prefix="ottla-roles-") as folder:
        rig = Rig(Path(folder), partitions)
        await rig.start()
        push = rig.fence()
        gc.collect()
        if profiled:
            in_a_fork(lambda: profile(rig, push))
        readings = [in_a_fork(lambda: rig.follow(push)) for _ in range(rounds)]
        await rig.close()
    return min(readings, key=sum)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=10_000, help="a multiple of 1,000 (10000)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    count = arguments.partitions
    reading = uvloop.run(measure(count, arguments.rounds, profiled=arguments.profile))
    table = Table("", "ms", "microseconds for each")
    for name, taken_s in zip(("folded", "followed"), reading, strict=True):
        table.add_row(name, f"{1000 * taken_s:.0f}", f"{1e6 * taken_s / count:.1f}")
    Console().print(table)
    if arguments.record is not None:
        record(arguments.record, partitions=count, **reading._asdict())


if __name__ == "__main__":
    main()
