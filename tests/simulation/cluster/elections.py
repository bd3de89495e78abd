"""Leadership of one partition that an operator moves to and fro, faster than all other parts can follow."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from ottla.client.admin import Admin
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.errors import KafkaError
from tests.simulation.cluster.cluster import SimulatedCluster

Place = tuple[str, int]
REQUEST_TIMEOUT_MS = 1000


def some_partition(image: ClusterImage, random: Random) -> Place:
    """Return the first partition, or one of the offsets topic."""
    offsets = [topic for topic in image.topics.values() if topic.name == "__consumer_offsets"]
    if offsets and random.random() < 0.5:
        return offsets[0].name, random.randrange(len(offsets[0].partitions))
    return min(topic.name for topic in image.topics.values()), 0


async def send_to_and_fro(
    cluster: SimulatedCluster, place: Place, replicas: tuple[int, ...], times: int
) -> None:
    """Make each replica in turn the preferred leader, and elect it."""
    with suppress(KafkaError):
        async with Admin(bootstrap_servers=cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS) as admin:
            for turn in range(1, times + 1):
                first = turn % len(replicas)
                await admin.alter_partition_reassignments({place: [*replicas[first:], *replicas[:first]]})
                await admin.elect_leaders([place])
