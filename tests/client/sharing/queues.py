"""Share groups of one cluster that begin at the start of their topics, and the records in these."""

from __future__ import annotations

from ottla import Admin, Producer
from ottla.client.admin import GROUP_RESOURCE
from ottla.testing import LocalCluster

PARTITIONS = 3


async def begin_at_start(cluster: LocalCluster, group: str, **settings: object) -> None:
    """Set the settings of a share group, with `_` for a dot."""
    configs = {"share.auto.offset.reset": "earliest"} | {
        name.replace("_", "."): value for name, value in settings.items()
    }
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.alter_configs(GROUP_RESOURCE, group, configs)


async def fill(cluster: LocalCluster, topic: str, numbers: range, partitions: int = PARTITIONS) -> set[bytes]:
    """Write numbers to the partitions of a topic in turn, and return the values."""
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % partitions)
    return {b"%d" % number for number in numbers}
