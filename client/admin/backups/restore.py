"""The restoration of a cut into a cluster.

The cut is served as a source that the cluster's brokers copy with a mirror. So topics are read-only until all of them
are whole, one decision of the quorum opens them, and an interrupted restoration continues where its copies end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ....protocol.cluster.acls import Acl
from ....protocol.cluster.mirror_table import MIRRORED_SETTINGS, MirrorPhase, is_offsets_copy
from ....protocol.errors import ErrorCode, KafkaError
from ...backup.answers import CutAnswers, source_id
from ...backup.catalog import Catalog
from ...backup.chain_reader import ChainReader
from ...backup.chains import Chain, chain_of
from ...backup.cut_file import OFFSETS_TOPIC, BackedPartition, BackedTopic
from ...backup.lanes import in_lanes
from ...backup.loaded_segments import LoadedSegments
from ...backup.names import PartitionFolder, SegmentName
from ...backup.plans import RestorePlan
from ...backup.reading import segments_of
from ...backup.serving import CutServer
from ...backup.values import Restoration, RestoredTopic, RestoreProgress
from ...backup.verify import segment_fault
from ...failures import BackupRefused, BackupUnusable
from ...objects.store import ObjectStore
from ...records import TopicPartition
from ..mirrors import MirrorDescription
from ..values import TOPIC_RESOURCE
from .calls import BackupCalls
from .restore_endpoint import RestoreEndpoint

LOOK_EVERY_S: Final = 0.5
STUCK_S: Final = 60.0
"""The time without progress after which a restoration gives up, if a broker has a reason."""
CHECKED_AT_ONCE: Final = 4
_HOLES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class PreparedPartition:
    """A partition to restore, with the segments that have its records."""

    topic: BackedTopic
    partition: BackedPartition
    chain: Chain
    size: int
    """The bytes of the segments."""


@dataclass(frozen=True, slots=True)
class PreparedRestore:
    """A restoration for which the store has all segments."""

    plan: RestorePlan
    partitions: tuple[PreparedPartition, ...]
    sizes: Mapping[SegmentName, int]
    """The bytes of each segment."""

    @property
    def size(self) -> int:
        """The bytes of records to restore."""
        return sum(part.size for part in self.partitions)


Progress = Callable[[RestoreProgress], None]


@dataclass(slots=True)
class _Rest:
    """The outcome of the steps beside the copying of records."""

    acls: int = 0
    quotas: int = 0
    refused: list[str] = field(default_factory=list)


async def prepare(store: ObjectStore, catalog: Catalog, plan: RestorePlan) -> PreparedRestore:
    """Find the segments of a restoration. Raises BackupUnusable if one is missing."""
    partitions: list[PreparedPartition] = []
    sizes: dict[SegmentName, int] = {}
    holes: list[str] = []
    for topic in plan.cut.topics:
        found: dict[PartitionFolder, list[SegmentName]] = {}
        async for name, size in segments_of(store, topic.topic_id):
            found.setdefault(name.place, []).append(name)
            sizes[name] = size
        for partition in topic.partitions:
            segments = catalog.segments_at(plan.cut.cut, found.get(topic.folder(partition), ()))
            chain = chain_of(partition, segments)
            holes += [f"{first}-{end - 1} of {topic.name}-{partition.index}" for first, end in chain.holes]
            size = sum(sizes[segment] for segment in chain.segments)
            partitions.append(PreparedPartition(topic, partition, chain, size))
    if holes:
        more = "" if len(holes) <= _HOLES_SHOWN else f" and {len(holes) - _HOLES_SHOWN} more"
        raise BackupUnusable(
            f"cut {plan.cut.cut} is not whole: no segment has the offsets {', '.join(holes[:_HOLES_SHOWN])}{more}"
        )
    return PreparedRestore(plan, tuple(partitions), sizes)


class Restore:
    """One restoration into a cluster. One writer: the event loop."""

    def __init__(
        self,
        admin: BackupCalls,
        store: ObjectStore,
        prepared: PreparedRestore,
        *,
        acls: bool = False,
        quotas: bool = False,
    ) -> None:
        """`acls` and `quotas`: whether those of the backup are created in the cluster, too."""
        self._admin = admin
        self._store = store
        self._prepared = prepared
        self._plan = prepared.plan
        self._acls = acls
        self._quotas = quotas
        self._segments = LoadedSegments(store, prepared.sizes)
        self._readers = {
            part.topic.folder(part.partition): ChainReader(part.chain, self._segments)
            for part in prepared.partitions
        }

    async def check(self) -> None:
        """Raise BackupRefused if the cluster has a topic of a name that is to be restored, or cannot take over the
        topics' groups."""
        mirror = await self._mirror()
        ours = {topic.name for topic in mirror.topics} if mirror is not None else set()
        existing = set(await self._admin.list_topics()) - ours
        taken = sorted(topic.name for topic in self._plan.topics if topic.name in existing)
        if taken:
            names = ", ".join(taken[:_HOLES_SHOWN])
            raise BackupRefused(
                f"the cluster has {names}{' and more' if len(taken) > _HOLES_SHOWN else ''} already: nothing is "
                "restored over a topic. Choose other topics, or rename them"
            )

    async def run(self, endpoint: RestoreEndpoint, progress: Progress = lambda progress: None) -> Restoration:
        """Restore the cut, and return once its topics accept records.

        A restoration that was interrupted is continued by another call for the same cut and topics. Raises
        BackupRefused, ObjectDamaged, ObjectStoreFailed and KafkaError.
        """
        await self.check()
        target = (await self._admin.describe_cluster()).cluster_id
        server = CutServer(CutAnswers(self._plan, target, endpoint.host, endpoint.port), self._readers)
        await server.start(endpoint.listening, endpoint.tls)
        try:
            return await self._run(server, endpoint, progress)
        finally:
            await server.close()
            self._segments.close()

    async def _run(self, server: CutServer, endpoint: RestoreEndpoint, progress: Progress) -> Restoration:
        total, rest = self._prepared.size, _Rest()
        progress(RestoreProgress("creating", 0, total, len(self._prepared.partitions)))
        mirror = await self._begun(endpoint)
        if mirror.phase is not MirrorPhase.PROMOTED:
            await self._copied(server, progress)
            await self._check_unread(
                lambda: progress(RestoreProgress("checking", server.served_bytes, total))
            )
            await self._set_rest(rest)
        progress(RestoreProgress("opening", server.served_bytes, total))
        await self._admin.promote_mirror(self._plan.mirror, at_cut=self._plan.cut.is_whole)
        await self._commit(rest)
        await self._admin.delete_mirror(self._plan.mirror)
        return replace(self.expected, acls=rest.acls, quotas=rest.quotas, refused=tuple(rest.refused))

    @property
    def expected(self) -> Restoration:
        """The result if the cluster refuses nothing."""
        cut = self._plan.cut
        sizes: dict[str, int] = {}
        for part in self._prepared.partitions:
            sizes[part.topic.name] = sizes.get(part.topic.name, 0) + part.size
        return Restoration(
            cut.described(),
            tuple(
                RestoredTopic(
                    topic.name,
                    self._plan.renamed.get(topic.name, topic.name),
                    len(topic.partitions),
                    topic.offsets,
                    sizes.get(topic.name, 0),
                )
                for topic in self._plan.topics
            ),
            self._plan.groups,
            len(cut.acls or ()) if self._acls else 0,
            len(cut.quotas or ()) if self._quotas else 0,
            self._prepared.size,
        )

    # the mirror

    async def _mirror(self) -> MirrorDescription | None:
        """Return the mirror of this restoration, if it has begun already."""
        try:
            (mirror,) = await self._admin.describe_mirrors([self._plan.mirror])
        except KafkaError as error:
            if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
                raise
            return None
        return mirror

    async def _begun(self, endpoint: RestoreEndpoint) -> MirrorDescription:
        """Create the mirror, or connect the existing mirror to this process."""
        mirror = await self._mirror()
        if mirror is None:
            await self._create_mirror(endpoint)
        elif mirror.source_cluster_id != source_id(self._plan):
            raise BackupRefused(f"the cluster has a mirror {mirror.name!r} of another source")
        elif mirror.phase is not MirrorPhase.PROMOTED:
            await self._admin.reconnect_mirror(
                self._plan.mirror, source=endpoint.address, options=endpoint.options
            )
        (mirror,) = await self._admin.describe_mirrors([self._plan.mirror])
        return mirror

    async def _create_mirror(self, endpoint: RestoreEndpoint) -> None:
        try:
            await self._admin.create_mirror(
                self._plan.mirror,
                source=endpoint.address,
                topics=".*",
                groups=self._plan.groups if self._plan.cut.is_whole else "",
                options=endpoint.options,
            )
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_REQUEST:
                raise
            raise BackupRefused(
                f"{error.message}. The source is this process at {endpoint.address}: `listen` gives an address of "
                "this machine that all brokers reach"
            ) from error

    async def _copied(self, server: CutServer, progress: Progress) -> None:
        """Wait until the cluster has all records, and all replicas in sync have them.

        Raises the damage of the backup, and BackupRefused if a copy cannot continue, or nothing has changed for
        STUCK_S although something is in the way.
        """
        loop = asyncio.get_running_loop()
        before, changed_s = (-1, -1), loop.time()
        while True:
            if server.damage is not None:
                raise server.damage
            (mirror,) = await self._admin.describe_mirrors([self._plan.mirror])
            self._check_goes_on(mirror)
            left = self._left(mirror)
            if left == 0 and (mirror.cut is not None or not self._plan.cut.is_whole):
                return
            if (server.served_bytes, left) != before:
                before, changed_s = (server.served_bytes, left), loop.time()
            trouble = self._trouble(mirror)
            progress(RestoreProgress("copying", server.served_bytes, self._prepared.size, left, trouble))
            if trouble and loop.time() > changed_s + STUCK_S:
                raise BackupRefused(f"the restoration makes no progress: {trouble}")
            await asyncio.sleep(LOOK_EVERY_S)

    def _trouble(self, mirror: MirrorDescription) -> str:
        """Return the first reason why the mirror does not continue; empty if there is none."""
        reasons = [f"broker {broker_id}: {reason}" for broker_id, reason in sorted(mirror.troubles.items())]
        reasons += [f"broker {broker_id}: {error.message}" for broker_id, error in mirror.unanswered.items()]
        reasons += [
            f"{topic.name}-{part.partition}: {part.trouble}"
            for topic in mirror.topics
            for part in topic.partitions
            if part.trouble
        ]
        if self._plan.cut.is_whole and mirror.cuts_trouble:
            reasons.append(mirror.cuts_trouble)
        return next(iter(reasons), "")

    def _check_goes_on(self, mirror: MirrorDescription) -> None:
        for topic in mirror.topics:
            for index, fault in topic.faults.items():
                raise BackupRefused(f"the copy of {topic.name}-{index} has stopped: {fault.reason}")
        for name, reason in (mirror.skipped or {}).items():
            raise BackupRefused(f"the cluster does not take the topic {name!r}: {reason}")

    def _left(self, mirror: MirrorDescription) -> int:
        """Return the number of partitions whose copies are not whole yet."""
        reached = {
            (
                OFFSETS_TOPIC if is_offsets_copy(topic.name) else topic.name,
                part.partition,
            ): part.high_watermark
            for topic in mirror.topics
            for part in topic.partitions
        }
        return sum(
            (reached.get((part.topic.name, part.partition.index)) or 0) < part.partition.end
            or (part.topic.name, part.partition.index) not in reached
            for part in self._prepared.partitions
            if part.topic.name != OFFSETS_TOPIC or self._plan.cut.is_whole
        )

    async def _check_unread(self, tell: Callable[[], None]) -> None:
        """Read the segments that this process has not read: an earlier process had sent them. Raises BackupUnusable for
        a damaged segment."""
        unread = (
            segment
            for part in self._prepared.partitions
            for segment in part.chain.segments
            if segment not in self._segments.checked
        )

        async def check(lane: int) -> None:
            for segment in unread:
                tell()
                fault = await segment_fault(self._store, segment, self._prepared.sizes[segment])
                if fault is not None:
                    raise BackupUnusable(fault)

        await in_lanes(CHECKED_AT_ONCE, check)

    # what is beside the records

    async def _commit(self, rest: _Rest) -> None:
        """Commit the offsets of groups that the cut has beside its records. Those of a consistent cut are taken over by
        the promotion."""
        names = {topic.name for topic in self._plan.topics}
        for group, topics in sorted(self._plan.cut.groups.items()):
            offsets = {
                TopicPartition(name, index): offset
                for name, of_topic in topics.items()
                if name in names
                for index, offset in of_topic.items()
            }
            try:
                refused = await self._admin.alter_offsets(group, offsets) if offsets else {}
            except KafkaError as error:
                rest.refused.append(f"offsets of group {group}: {error.message}")
                continue
            rest.refused += [
                f"offset of group {group} in {place.topic}-{place.partition}: {error.message}"
                for place, error in refused.items()
                if error is not None
            ]

    async def _set_rest(self, rest: _Rest) -> None:
        """Set the topics' settings that mirrors do not copy, and create ACLs and quotas."""
        for topic in self._plan.topics:
            for key, value in topic.settings.items():
                if key in MIRRORED_SETTINGS:
                    continue
                try:
                    await self._admin.alter_configs(TOPIC_RESOURCE, topic.name, {key: value})
                except KafkaError as error:
                    rest.refused.append(f"setting {key}={value} of {topic.name}: {error.message}")
        cut = self._plan.cut
        if self._acls and cut.acls:
            await self._admin.create_acls(Acl(*acl) for acl in cut.acls)
            rest.acls = len(cut.acls)
        for entity, values in (cut.quotas or ()) if self._quotas else ():
            await self._admin.alter_quotas(dict(entity), values)
            rest.quotas += 1
