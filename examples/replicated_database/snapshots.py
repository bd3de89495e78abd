"""Backfill: a compacted topic with the newest image of every row, and the commit index of all images.

Each snapshot is one transaction, and its app version is that commit index. So no other store is needed: the next writer
learns from `last_app_version` the state of the topic, and adds the rows that changed since. A late writer is refused,
as versions only rise.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ottla import Admin, Consumer, Cut, CutOffset, ErrorCode, Producer, TopicPartition, TransactionDescription

from .changes import Row

if TYPE_CHECKING:
    from .replica import Replica

ROW_BYTES_MAX = 16 << 20
"""Largest size of a row. A compacted topic keeps one record of each key, and a large message has several records, so
rows are not segmented here.
"""
_PLACE = b"place"
"""Key of the last record of each snapshot: generation, SCN and commit index. Keys of rows begin with a partition's
number.
"""


async def write(replica: Replica) -> bool:
    """Write a snapshot of the rows that changed since the last one, then delete the log before the last one.

    Return False if no row has changed.
    """
    name = replica.names.snapshots
    async with Producer(
        bootstrap_servers=replica.bootstrap,
        transactional_id=name,
        max_request_size=ROW_BYTES_MAX,
        compression_type="zstd",
    ) as producer:
        before = -1 if producer.last_app_version is None else producer.last_app_version
        # No await until the rows are collected: the next transaction may be applied at any await.
        index = replica.commit_index
        places = [(partition.generation, partition.scn) for partition in replica.partitions]
        changed = [partition.changed_after(before) for partition in replica.partitions]
        if not replica.is_whole or index <= before or not any(changed):
            return False
        async with producer.transaction(app_version=index):
            for partition, rows in enumerate(changed):
                for key, row in rows.items():
                    image = None if row is None else json.dumps(row).encode()
                    await producer.send(name, image, key=f"{partition}/{key}".encode(), partition=0)
            await producer.send(name, json.dumps([index, places]).encode(), key=_PLACE, partition=0)
    if before >= 0:
        await _trim(replica, before)
    return True


async def newest(replica: Replica) -> int:
    """Return the commit index of the newest snapshot; -1 if there is no snapshot."""
    name = replica.names.snapshots
    async with Admin(bootstrap_servers=replica.bootstrap) as admin:
        found = (await admin.describe_transactions([name]))[name]
    if isinstance(found, TransactionDescription):
        return found.app_version
    if found.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return -1
    raise found


async def restore_if_newer(replica: Replica) -> None:
    """Restore the newest snapshot if it is newer than this replica: the log may no longer have the difference."""
    applied = min(partition.commit_index for partition in replica.partitions)
    if await newest(replica) <= applied:
        return
    rows, index, places = await _read(replica)
    for state, found, (generation, scn) in zip(replica.partitions, rows, places, strict=True):
        if index > state.commit_index:
            state.restore(found, generation, scn, index)
    replica.restored(index)


async def _read(replica: Replica) -> tuple[list[dict[str, Row | None]], int, list[tuple[int, int]]]:
    """Return rows by partition and key, their commit index, and generation and SCN of each partition."""
    where = TopicPartition(replica.names.snapshots, 0)
    rows: list[dict[str, Row | None]] = [{} for _ in replica.partitions]
    index, places = -1, [(-1, 0) for _ in replica.partitions]
    async with Consumer(
        bootstrap_servers=replica.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([where])
        # Read until the end is stable: compaction may have removed rows that a later snapshot contains again.
        while await consumer.position(where) < (await consumer.end_offsets([where]))[where]:
            for record in (await consumer.getmany(timeout_ms=100)).get(where, []):
                if record.key == _PLACE:
                    index, places = json.loads(record.value)
                    continue
                partition, _, key = record.key.decode().partition("/")
                rows[int(partition)][key] = None if record.value is None else json.loads(record.value)
    return rows, index, places


async def _trim(replica: Replica, commit_index: int) -> None:
    """Delete the log before a snapshot, except records of transactions that were open then."""
    places = [TopicPartition(replica.names.log, index) for index in range(len(replica.partitions))]
    async with Admin(bootstrap_servers=replica.bootstrap) as admin:
        newest = await admin.find_cut(places)
        found = await admin.cut_offsets(Cut(commit_index, newest.metadata_offset), places)
        ends = {partition: cut.open_from for partition, cut in found.items() if isinstance(cut, CutOffset)}
        await admin.delete_records(ends)
