"""Takeover of committed offsets after a promotion at a cut: from the copy of the source's offsets topic into the groups
of this cluster.

The leader of each partition of that copy reports the offsets at the cut to the quorum. Once all leaders have reported,
each group coordinator commits the offsets of its groups, and reports to the quorum when it is done. A new leader
continues with the groups that remain.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.mirror_offsets import MirrorOffsetsDue, OffsetsOfGroup, mirrored_offsets
from ...protocol.errors import KafkaError
from ...protocol.messages.mirror_commands import ReportOffsetsTaken, TakenOffsets, TellMirrorOffsets
from ...protocol.messages.mirror_records import MirroredOffset
from ...protocol.wire.schema import ZERO_UUID
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..coordinated_log.key_hash import partition_for
from ..coordinated_log.replicated_log import ReplicatedLog
from ..groups.coordinator import GroupCoordinator
from ..groups.offsets import CommittedOffset, TopicPartition
from ..groups.shard import Shard
from ..patterns import Pattern, compile_stored_pattern
from ..quorum.access import Quorum
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..runtime.matching import matching
from ..runtime.time_slices import pieces
from .group_offsets import OffsetCommits, is_copied
from .offset_commits import UNKNOWN_EPOCH, commit, forget
from .offsets_at_cut import OffsetsAtCut, copied_offset

logger = logging.getLogger(__name__)

OFFSETS_AT_ONCE: Final = 1000
"""Maximum number of offsets in one command."""
GROUPS_AT_ONCE: Final = 100
LOOK_AGAIN_S: Final = 0.2
"""Delay before the next attempt. Meanwhile coordinators load their shards; failed steps are repeated."""


class OffsetTakeover:
    """The takeover of committed offsets after promotions at a cut: it follows the cluster image, and runs a task for
    each mirror whose offsets are to be taken over. One writer: the event loop.
    """

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        quorum: Quorum,
        groups: GroupCoordinator,
        commits: OffsetCommits,
        wall_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._quorum = quorum
        self._groups = groups
        self._commits = commits
        self._wall_ms = wall_ms
        self._news = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._patterns: dict[str, Pattern] = {}
        self._ended: set[asyncio.Task[None]] = set()

    def is_withheld(self, group_id: str, partition: int) -> bool:
        """Return whether a group in this partition of `__consumer_offsets` still waits for its offsets from the
        mirror."""
        due = self._quorum.image.mirror_offsets.due
        return bool(due) and any(
            partition not in due[name].taken and self._pattern(name).fullmatch(group_id) for name in due
        )

    def _pattern(self, mirror: str) -> Pattern:
        if mirror not in self._patterns:
            groups = self._quorum.image.mirrors.by_name[mirror].groups
            self._patterns[mirror] = compile_stored_pattern(groups, "groups")
        return self._patterns[mirror]

    def image_changed(self, image: ClusterImage) -> None:
        """Start and stop takeovers after a change of the image. The replicas have their new roles already."""
        due = image.mirror_offsets.due
        for name in self._tasks.keys() - due.keys():
            self._end(self._tasks.pop(name))
            self._patterns.pop(name, None)
        for name in due.keys() - self._tasks.keys():
            task = asyncio.get_running_loop().create_task(self._run(name), name=f"offsets of mirror {name}")
            self._tasks[name] = task
        self._news.set()

    def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._ended.add(task)
        task.add_done_callback(self._ended.discard)

    async def close(self) -> None:
        """Stop all takeovers."""
        for name in list(self._tasks):
            self._end(self._tasks.pop(name))
        if self._ended:
            await asyncio.wait(self._ended)

    async def _run(self, mirror: str) -> None:
        while True:
            self._news.clear()
            try:
                await self._go_on(mirror)
            except KafkaError as error:
                logger.info("mirror %s: committed offsets: %s", mirror, error.message)
            except Exception:
                logger.exception("mirror %s: committed offsets cannot be taken over", mirror)
            await asyncio.sleep(LOOK_AGAIN_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self._news.wait()

    async def _go_on(self, mirror: str) -> None:
        """Report the mirror's offsets at the cut to the quorum for the partitions that this broker leads. If all
        leaders have reported, commit the offsets to groups. Raises KafkaError.
        """
        image = self._quorum.image
        due = image.mirror_offsets.due.get(mirror)
        if due is None:
            return
        copy = image.topics_by_id.get(due.topic_id)
        parts = set() if copy is None else set(copy.partitions)
        for index in sorted(parts - due.told):
            partition = self._replicas.find_by_id(due.topic_id, index)
            if partition is not None and partition.leader is not None:
                await self._tell(mirror, partition)
        if due.told >= parts:
            await self._commits.have_a_place()
            await self._take(mirror, due)

    # ------------------------------------------------------------ what the copy has

    async def _tell(self, mirror: str, partition: Partition) -> None:
        leader_epoch, image = partition.leader_epoch, self._quorum.image
        copy = image.mirrors.partition(partition.topic_id, partition.index)
        assert copy is not None
        assert copy.resumption is not None, "a promotion at a cut tells where the log ends"
        found = OffsetsAtCut(copy.resumption.offset)
        async for data in ReplicatedLog(partition).read_below(copy.resumption.offset):
            found.feed(data)
        wanted = set(filter(is_copied, await matching(self._pattern(mirror), found.groups())))
        offsets: list[MirroredOffset] = []
        of_groups = found.committed(wanted.__contains__, copied_offset(image, mirror))
        for group_id, of_group in of_groups:
            offsets += mirrored_offsets(group_id, of_group)
        batches = list(pieces(offsets, OFFSETS_AT_ONCE)) or [[]]
        for number, some in enumerate(batches, 1):
            await self._quorum.submit(
                TellMirrorOffsets(
                    broker_id=self._broker_id,
                    topic_id=partition.topic_id,
                    partition=partition.index,
                    leader_epoch=leader_epoch,
                    offsets=list(some),
                    is_last=number == len(batches),
                )
            )

    # ------------------------------------------------------------ what groups get

    async def _take(self, mirror: str, due: MirrorOffsetsDue) -> None:
        topic = self._quorum.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return
        groups: dict[int, set[str]] = defaultdict(set)
        for group_id in due.by_group:
            groups[partition_for(group_id, len(topic.partitions))].add(group_id)
        taken = []
        for index, shard in sorted(self._groups.led().items()):
            partition = self._replicas.find(OFFSETS_TOPIC, index)
            if index in due.taken or partition is None:
                continue
            leader_epoch = partition.leader_epoch
            # Pending commits count, too. They are known once they are below the high watermark.
            await partition.high_watermark_at(partition.log.log_end_offset)
            await self._take_into(mirror, due, shard, index, groups[index])
            taken.append(TakenOffsets(partition=index, leader_epoch=leader_epoch))
        if taken:
            command = ReportOffsetsTaken(
                broker_id=self._broker_id, mirror=mirror, topic_id=topic.id, partitions=taken
            )
            await self._quorum.submit(command)

    async def _take_into(
        self, mirror: str, due: MirrorOffsetsDue, shard: Shard, index: int, groups: set[str]
    ) -> None:
        """Set the offsets of groups in one partition of `__consumer_offsets` (`shard`) to the offsets at the cut:
        `groups`, and groups with later offsets of this mirror. Raises KafkaError.
        """
        copy = self._quorum.image.topics_by_id.get(due.topic_id)
        ahead = {
            group_id
            for group_id in shard.offsets.groups()
            if any(committed.mirror == mirror for committed in shard.offsets.of_group(group_id).values())
        }
        for some in pieces(sorted(groups | ahead), GROUPS_AT_ONCE):
            changes = [
                self._set_back(mirror, shard, group_id, index)
                if copy is not None and partition_for(group_id, len(copy.partitions)) in due.given_up
                else self._change(mirror, due, shard, group_id, index)
                for group_id in some
            ]
            await asyncio.gather(*changes)

    async def _change(
        self, mirror: str, due: MirrorOffsetsDue, shard: Shard, group_id: str, index: int
    ) -> None:
        """Change a group's offsets to those at the cut. An offset that only this mirror has committed, and that did not
        exist at the cut, is removed.

        Before each step it is checked whether another broker has finished the takeover and lets clients commit. Commits
        of clients remain.
        """
        if shard.has_members(group_id) or not self.is_withheld(group_id, index):
            return
        ours = self._here(due.by_group.get(group_id, {}))
        known = shard.offsets.of_group(group_id)
        news = {
            key: committed
            for key, committed in ours.items()
            if key not in known or (known[key].offset, known[key].mirror) != (committed.offset, "")
        }
        gone = [key for key, committed in known.items() if committed.mirror == mirror and key not in ours]
        if news:
            await commit(shard, group_id, news)
        if gone and self.is_withheld(group_id, index):
            await forget(shard, group_id, gone)

    async def _set_back(self, mirror: str, shard: Shard, group_id: str, index: int) -> None:
        """Move a group back to the cut if its offsets at the cut are unknown.

        The group keeps its offsets, except those that this mirror has committed and that are after the cut: the records
        that the group had read there do not exist here.
        """
        if shard.has_members(group_id) or not self.is_withheld(group_id, index):
            return
        copied = copied_offset(self._quorum.image, mirror)
        ahead: OffsetsOfGroup = {}
        for key, committed in shard.offsets.of_group(group_id).items():
            here = copied(key, replace(committed, topic_id=ZERO_UUID)) if committed.mirror == mirror else None
            if here is not None and here[1] < committed.offset:
                ahead[here[0]] = here[1], committed.metadata
        if ahead:
            await commit(shard, group_id, self._here(ahead))

    def _here(self, offsets: OffsetsOfGroup) -> Mapping[TopicPartition, CommittedOffset]:
        topics, now_ms = self._quorum.image.topics_by_id, self._wall_ms()
        return {
            (topics[topic_id].name, index): CommittedOffset(offset, UNKNOWN_EPOCH, metadata, now_ms, topic_id)
            for (topic_id, index), (offset, metadata) in offsets.items()
            if topic_id in topics
        }
