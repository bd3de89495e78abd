"""One mirror on one broker: the connections to its source, the copies that this broker leads, and the division of work.

All brokers work for a mirror. Each copies the partitions that it leads, and the offsets of the groups that it
coordinates. A single broker, which all brokers determine alike, maintains the list of topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar
from zlib import crc32

from ...protocol.cluster.mirror_table import Mirror
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata import MetadataResponse
from ...protocol.messages.mirror_commands import MirrorPartitionReport, ReportMirrorPartitions
from ...protocol.wire.schema import ZERO_UUID
from ..patterns import compile_stored_pattern
from ..quorum.access import Quorum
from ..replication.replica.partition import Partition
from ..replication.throttle import UNLIMITED, Throttle
from .acl_list import AclList
from .copies import NEVER, NOBODY, Copy, source_name
from .fetching import SourceFetcher
from .group_offsets import GroupOffsets, OffsetCommits
from .rounds import ROUND_EVERY_S, CutRounds
from .source import SourceCluster
from .topic_list import TopicList

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_EVERY_S = 5.0
"""Interval at which the source is asked for its brokers, topics and groups."""
LOOK_AGAIN_S = 0.1
"""Delay before the source is asked again, after one of its brokers has rejected a request with outdated metadata."""
TELL_CUTS_EVERY_S = 0.1
"""Interval of the check whether copies have reached cuts."""


class MirrorLink:
    """One broker's part in one active mirror: connections to the source, and tasks that copy records, offsets, ACLs and
    topics. One writer: the event loop. Ends with `close`.
    """

    def __init__(
        self,
        broker_id: int,
        mirror: Mirror,
        source: SourceCluster,
        quorum: Quorum,
        commits: OffsetCommits,
        replication_factor: int,
        chance: Callable[[], int],
    ) -> None:
        self.mirror = mirror
        self.trouble = ""
        """Reason why the source cannot be reached at the moment; empty if it can."""
        self.copied_bytes = 0
        """Bytes copied since this link began."""
        self._broker_id = broker_id
        self._source = source
        self._quorum = quorum
        self._copies: dict[tuple[str, int], Copy] = {}
        self._fetchers: dict[int, SourceFetcher] = {}
        self._asked = asyncio.Event()
        self._throttle = Throttle(asyncio.get_running_loop().time)
        self._throttle.set_rate(mirror.bandwidth or UNLIMITED)
        topics = compile_stored_pattern(mirror.topics, "topics")
        groups = compile_stored_pattern(mirror.groups, "groups") if mirror.groups else None
        self.topic_list = TopicList(mirror, source, quorum, topics, replication_factor, chance)
        self._groups = (
            None
            if groups is None
            else GroupOffsets(mirror.name, source, groups, commits, lambda: quorum.image)
        )
        self._acls = None
        if mirror.copies_acls:
            self._acls = AclList(mirror.name, source, quorum, topics, groups)
        self.rounds = CutRounds(broker_id, mirror, source, quorum, self.topic_list)
        self._source_brokers: Sequence[int] = ()
        loop, name = asyncio.get_running_loop(), f"mirror {mirror.name}"
        self._tasks = [
            loop.create_task(self._look(), name=name),
            loop.create_task(self._announce_cuts(), name=f"{name} announces cuts"),
            loop.create_task(self._tell_cuts(), name=f"{name} tells cuts"),
        ]

    async def close(self) -> None:
        """Stop copying, and close the connections."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._source.close()

    # ------------------------------------------------------------ what it copies

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Copy these partitions from now on, and no others: all copies of this mirror that this broker leads."""
        led = {(partition.topic, partition.index): partition for partition in partitions}
        for key in self._copies.keys() - led.keys():
            del self._copies[key]
        is_new = False
        for key, partition in led.items():
            known = self._copies.get(key)
            if (
                known is None
                or known.partition is not partition
                or known.leader_epoch != partition.leader_epoch
            ):
                self._copies[key] = Copy(partition, partition.leader_epoch)
                is_new = True
        if is_new or any(copy.source_leader == NOBODY for copy in self._copies.values()):
            self.look_again()
        for fetcher in self._fetchers.values():
            fetcher.wake()

    @property
    def copies(self) -> Sequence[Copy]:
        """The copied partitions that this broker leads."""
        return list(self._copies.values())

    @property
    def looks_after_topics(self) -> bool:
        """True if this broker is the single one that maintains the mirror's list of topics."""
        usable = sorted(broker.broker_id for broker in self._quorum.image.brokers.values() if broker.usable)
        return bool(usable) and usable[crc32(self.mirror.name.encode()) % len(usable)] == self._broker_id

    def _led_by(self, source_leader: int) -> Iterator[Copy]:
        return (copy for copy in list(self._copies.values()) if copy.source_leader == source_leader)

    # ------------------------------------------------------------ the source

    def look_again(self) -> None:
        """Ask the source for its metadata soon, since the known metadata may be outdated."""
        self._asked.set()

    async def _look(self) -> None:
        while True:
            self._asked.clear()
            try:
                await self._look_once()
                self.trouble = ""
            except KafkaError as error:
                self.trouble = error.message
            except Exception:
                self.trouble = "a fault of this broker: see its log"
                logger.exception("mirror %s: looking at its source failed", self.mirror.name)
            await asyncio.sleep(LOOK_AGAIN_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._asked.wait()

    async def _look_once(self) -> None:
        is_ours = self.looks_after_topics
        metadata = await self._source.metadata(
            None if is_ours else sorted({source_name(topic) for topic, _ in self._copies})
        )
        self._check_cluster(metadata)
        self._source_brokers = [broker.node_id for broker in metadata.brokers]
        self._place(metadata)
        if is_ours:
            await self.topic_list.bring_up_to_date(metadata)
        if self._groups is not None:
            await self._groups.bring_up_to_date([broker.node_id for broker in metadata.brokers])
        if is_ours and self._acls is not None:
            await self._acls.bring_up_to_date(metadata.brokers[0].node_id)

    def _check_cluster(self, metadata: MetadataResponse) -> None:
        """Raise KafkaError if the addresses lead to another cluster by now.

        Nothing is copied from another cluster, since it may have topics of the same names, for example as another
        mirror of the source. When the right cluster answers again, the logs are compared before anything is copied.
        """
        if metadata.cluster_id in (self.mirror.source_cluster_id, None):
            return
        reason = (
            f"{self.mirror.bootstrap_servers} is cluster {metadata.cluster_id} now, and not "
            f"{self.mirror.source_cluster_id}, which is copied"
        )
        for copy in self._copies.values():
            copy.source_leader, copy.checked_epoch, copy.trouble = NOBODY, NEVER, reason
        self._have_fetchers(set())
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)

    def _place(self, metadata: MetadataResponse) -> None:
        """Update the source's leaders and leader epochs of all copies from the source's metadata."""
        leaders = {
            (topic.name or "", part.partition_index): (topic.topic_id, part.leader_id, part.leader_epoch)
            for topic in metadata.topics
            for part in topic.partitions
        }
        for copy in self._copies.values():
            found = leaders.get(copy.source_key)
            if found is None:
                copy.source_leader, copy.trouble = NOBODY, "the source has no such partition"
                continue
            topic_id, leader, epoch = found
            if not self._is_source_of(copy, topic_id):
                copy.source_leader, copy.trouble = (
                    NOBODY,
                    "the source's topic is another one of the same name",
                )
                continue
            if (topic_id, leader, epoch) != (copy.source_topic_id, copy.source_leader, copy.source_epoch):
                copy.source_topic_id, copy.source_leader, copy.source_epoch = found
                copy.not_before_s = 0.0
            if leader == NOBODY:
                copy.trouble = "nobody leads the partition in the source"
        self._have_fetchers({copy.source_leader for copy in self._copies.values()} - {NOBODY})

    def _is_source_of(self, copy: Copy, topic_id: bytes) -> bool:
        """Return whether the id is that of the copied topic in the quorum's metadata, as far as the source reports ids.

        Nothing is copied while the quorum has no id yet: the source might recreate the topic in the meantime, and the
        records of both would be mixed.
        """
        topic = self._quorum.image.mirrors.topics.get(copy.partition.topic_id)
        known = ZERO_UUID if topic is None else topic.source_topic_id
        return topic_id in (known, ZERO_UUID)

    def _have_fetchers(self, leaders: set[int]) -> None:
        for broker_id in self._fetchers.keys() - leaders:
            self._fetchers.pop(broker_id).close()
        for broker_id in leaders - self._fetchers.keys():
            self._fetchers[broker_id] = SourceFetcher(
                broker_id,
                self.mirror,
                self._source,
                lambda: self._quorum.image,
                self._led_by,
                self._report,
                self._throttle,
                self._count,
                self.look_again,
                self.rounds.ask,
            )
        for fetcher in self._fetchers.values():
            fetcher.wake()

    async def _announce_cuts(self) -> None:
        wait_s = ROUND_EVERY_S
        while True:
            await asyncio.sleep(wait_s)
            if self.looks_after_topics:
                wait_s = await self._without_end(self.rounds.announce(self._source_brokers), ROUND_EVERY_S)

    async def _tell_cuts(self) -> None:
        while True:
            await asyncio.sleep(TELL_CUTS_EVERY_S)
            await self._without_end(self.rounds.tell(self._copies.values()), None)

    async def _without_end(self, work: Awaitable[T], otherwise: T) -> T:
        """Return the result of `work`; if it fails, log the error and return `otherwise`. The next round repeats failed
        work.
        """
        try:
            return await work
        except KafkaError as error:
            logger.info("mirror %s: cuts: %s", self.mirror.name, error)
        except Exception:
            logger.exception("mirror %s: cuts failed", self.mirror.name)
        return otherwise

    def _count(self, size: int) -> None:
        self.copied_bytes += size

    async def _report(self, partitions: Sequence[MirrorPartitionReport]) -> None:
        await self._quorum.submit(
            ReportMirrorPartitions(broker_id=self._broker_id, partitions=list(partitions))
        )
