"""Share groups as their tests see them from outside: settings of a group, the records that it has not finished, and the
broker with its states.
"""

from __future__ import annotations

import asyncio

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla import Admin
from ottla.dataplane.cluster.internal_topics import SHARE_STATE_TOPIC
from ottla.dataplane.coordinated_log.key_hash import partition_for
from ottla.protocol.messages.find_coordinator import SharePartition
from tests.cluster import RunningCluster, wait_for, wait_until


def from_the_beginning(bootstrap: str, group: str, **settings: str) -> str:
    """Set the settings of a share group, with `__` for a dot, and return its name."""
    values = {"share.auto.offset.reset": "earliest"} | {
        name.replace("__", "."): value for name, value in settings.items()
    }
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
    return group


def unfinished(bootstrap: str, group: str) -> int:
    """Return the number of records that a share group has still to finish; -1 while a leader does not know it."""

    async def lags() -> list[int]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            found = await admin.share_group_offsets(group)
        return [-1 if offset.lag is None else offset.lag for offset in found.values()]

    found = asyncio.run(lags())
    return -1 if not found or min(found) < 0 else sum(found)


def wait_until_finished(bootstrap: str, group: str) -> None:
    """Return once a share group has finished all records."""
    wait_until(lambda: unfinished(bootstrap, group) == 0, f"the group {group} to finish all records")


def state_coordinator(cluster: RunningCluster, group: str, topic: str, partition: int) -> int:
    """Return the id of the broker that keeps the state of a share-partition."""

    async def topic_id() -> bytes:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            (described,) = await admin.describe_topics([topic])
            return described.id

    key = SharePartition(group, asyncio.run(topic_id()), partition).key
    count = len(cluster.partitions(SHARE_STATE_TOPIC))
    return wait_for(lambda: cluster.leader(SHARE_STATE_TOPIC, partition_for(key, count)), "a coordinator")
