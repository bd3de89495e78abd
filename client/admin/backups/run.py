"""The backup of a cluster: one consistent cut after the other, each with the segments that are new since the last.

The order makes a crash harmless: segments are durable before their cut, and the cut is one object that is created last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ....protocol.errors import ErrorCode, KafkaError
from ...backup.catalog import Catalog
from ...backup.chains import extended
from ...backup.cut_file import (
    OFFSETS_TOPIC,
    BackedPartition,
    BackedTopic,
    CutFile,
    written,
)
from ...backup.lanes import in_lanes
from ...backup.lease import WATCHED_S, Lease, take_lease
from ...backup.names import CutId, CutName, PartitionFolder
from ...backup.reading import read_cut
from ...backup.values import BackupCut, BackupProgress, MissedRecords
from ...connections.metadata import TopicInfo
from ...failures import BackupRefused
from ...objects.store import ObjectStore
from ...records import TopicPartition
from .backup import Backup
from .calls import BackupCalls
from .cluster import FoundCut, SourceOfBackup
from .copying import CopiedRange, PartitionCopy

COPIED_AT_ONCE: Final = 4
"""The number of partitions that are copied at a time. It bounds the memory of a backup."""
Progress = Callable[[BackupProgress], None]
Reached = dict[tuple[bytes, int], BackedPartition]
"""The partitions as far as they are durable, by topic id and index."""


@dataclass(slots=True)
class _Copied:
    """A partition after the copying of a cut."""

    topic: str
    partition: BackedPartition
    missed: MissedRecords | None = None
    size: int = 0


class BackupRun:
    """A run of backups of one cluster into one store. One writer: the event loop. Ends with `close`."""

    def __init__(
        self, source: SourceOfBackup, admin: BackupCalls, store: ObjectStore, lease: Lease, reached: Reached
    ) -> None:
        self._admin = admin
        self._store = store
        self._lease = lease
        self._source = source
        self._reached = reached
        self._number = 0

    async def cut(self, progress: Progress | None) -> BackupCut:
        """Make a cut; see `Backup.cut`."""
        self._number += 1
        await self._lease.check()
        cut = CutId(self._lease.epoch, self._number)
        cluster_id = await self._source.cluster_id()
        topics, found = await self._source.find()
        copied = await self._copy(cut, topics, found, progress or _untold)
        file = await self._file(cut, cluster_id, topics, found, copied)
        await self._lease.check()
        await self._store.put_new(CutName(cut, found.time_ms).key, written(file))
        await self._lease.check()
        return file.described(sum(each.size for each in copied))

    async def close(self) -> None:
        """Give the store free; see `Backup.close`."""
        await self._lease.release()

    # copying

    async def _copy(
        self, cut: CutId, topics: Mapping[str, TopicInfo], found: FoundCut, progress: Progress
    ) -> list[_Copied]:
        partitions = [
            (info, index, self._reached.get((info.id, index)))
            for info in topics.values()
            for index in sorted(info.partitions)
        ]
        new = [
            found.ends[TopicPartition(info.name, index)] - (before.end if before else 0)
            for info, index, before in partitions
        ]
        told = BackupProgress(sum(count > 0 for count in new), offsets=sum(max(0, count) for count in new))
        progress(told)
        waiting = iter(partitions)
        results: list[_Copied] = []

        def tell(*, size: int = 0, done: int = 0) -> None:
            nonlocal told
            told = replace(told, size=told.size + size, partitions_done=told.partitions_done + done)
            progress(told)

        async def work(lane: int) -> None:
            for info, index, before in waiting:
                copied = await self._copy_partition(
                    cut, info, index, before, found, f"backup {lane}", lambda size: tell(size=size)
                )
                results.append(copied)
                tell(done=int(copied.size > 0))

        await in_lanes(COPIED_AT_ONCE, work)
        return results

    async def _copy_partition(
        self,
        cut: CutId,
        info: TopicInfo,
        index: int,
        before: BackedPartition | None,
        found: FoundCut,
        lane: str,
        count: Callable[[int], None],
    ) -> _Copied:
        """Copy what is new in one partition. A partition whose source lost copied records begins a new generation."""
        place = TopicPartition(info.name, index)
        start, stop = found.starts[place], found.ends[place]
        epoch = info.partitions[index].leader_epoch

        def copying(generation: int) -> PartitionCopy:
            folder = PartitionFolder(info.id, index, generation)
            return PartitionCopy(self._admin, self._store, place, folder, lane, count)

        partition = before or BackedPartition(index, 0, start, start, epoch, ())
        if before is not None and await self._is_other_log(copying(before.generation), before, stop, epoch):
            partition = BackedPartition(index, before.generation + 1, start, start, epoch, ())
        first = max(partition.end, min(start, stop))
        done = CopiedRange(first, first)
        try:
            if first < stop:
                await copying(partition.generation).copy(done, stop, cut)
        finally:
            start = min(max(partition.start, start, done.moved_to or 0), max(stop, done.end))
            after = replace(
                partition,
                start=start,
                end=max(done.end, start),
                leader_epoch=epoch,
                lineage=extended(partition.lineage, done.epochs),
            )
            self._reached[info.id, index] = after
        missed = None
        deleted_to = done.moved_to or done.first
        if before is not None and partition.generation == before.generation and deleted_to > before.end:
            missed = MissedRecords(info.name, index, before.end, deleted_to)
        return _Copied(info.name, after, missed, done.size)

    async def _is_other_log(
        self, copy: PartitionCopy, before: BackedPartition, stop: int, leader_epoch: int
    ) -> bool:
        """Return whether the source's log differs from the copied log, which happens after an unclean election."""
        if not before.lineage or (stop >= before.end and leader_epoch == before.leader_epoch):
            return False
        if await copy.has_diverged(before.lineage[-1][0], before.end):
            return True
        if stop < before.end:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                "a leader of the source does not know yet what was copied from it",
            )
        return False

    # the cut's object

    async def _file(
        self,
        cut: CutId,
        cluster_id: str,
        topics: Mapping[str, TopicInfo],
        found: FoundCut,
        copied: Sequence[_Copied],
    ) -> CutFile:
        by_topic: dict[str, list[_Copied]] = {}
        for each in copied:
            by_topic.setdefault(each.topic, []).append(each)
        backed = []
        for name, info in topics.items():
            parts = sorted((each.partition for each in by_topic[name]), key=lambda part: part.index)
            replicas = max(len(part.replicas) for part in info.partitions.values())
            settings = {} if name == OFFSETS_TOPIC else await self._source.settings(name)
            backed.append(BackedTopic(name, info.id, replicas, settings, tuple(parts)))
        acls, quotas = await self._source.acls(), await self._source.quotas()
        return CutFile(
            cut,
            found.time_ms,
            cluster_id,
            found.commit_index,
            self._source.topics_pattern,
            self._source.groups_pattern,
            tuple(backed),
            found.groups,
            found.app_versions,
            None if isinstance(acls, KafkaError) else acls,
            None if isinstance(quotas, KafkaError) else quotas,
            tuple(each.missed for each in copied if each.missed is not None),
            tuple(
                f"{what}: {answer.message.removeprefix(f'{what}: ')}"
                for what, answer in (("ACLs", acls), ("quotas", quotas))
                if isinstance(answer, KafkaError)
            ),
        )


def _untold(progress: BackupProgress) -> None:
    """Ignore the progress."""


async def open_backup(
    admin: BackupCalls,
    store: ObjectStore,
    *,
    topics: str = ".*",
    groups: str = ".*",
    progress: Progress | None = None,
    watched_s: float = WATCHED_S,
) -> Backup:
    """Take the lease of a store, and return a backup that goes on after its newest cut.

    `topics` and `groups` are patterns of whole names; an empty `groups` stands for no groups. `progress` is called
    while the sign of life of an earlier run is watched, for `watched_s` seconds. Raises BackupRefused if another run is
    alive, or the store has the backup of another cluster.
    """
    tell = progress or _untold
    source = SourceOfBackup(admin, topics, groups)
    lease, catalog = await take_lease(store, lambda text: tell(BackupProgress(waits_for=text)), watched_s)
    try:
        return Backup(BackupRun(source, admin, store, lease, await _reached(store, catalog, source)))
    except BaseException:
        await lease.release()
        raise


async def _reached(store: ObjectStore, catalog: Catalog, source: SourceOfBackup) -> Reached:
    """Return the partitions of the newest cut. Raises BackupRefused if the store has the backup of another cluster."""
    newest = catalog.newest
    if newest is None:
        return {}
    previous = await read_cut(store, newest)
    cluster_id = await source.cluster_id()
    if previous.cluster_id != cluster_id:
        raise BackupRefused(
            f"{store.url} has the backup of cluster {previous.cluster_id}, and this is cluster {cluster_id}: a backup "
            "of another cluster needs another URL"
        )
    return {(topic.topic_id, partition.index): partition for topic, partition in previous.places}
