"""All mirrors of this broker: a link to the source of each active mirror, and the cleanup after a promotion."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.cluster.mirror_table import NO_EPOCH, Mirror, MirrorPhase
from ...protocol.errors import KafkaError
from ..quorum.access import Quorum
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..transactions.markers import Markers
from .offset_takeover import OffsetTakeover
from .options import MirrorOptions
from .source import Sources

if TYPE_CHECKING:
    from .group_offsets import OffsetCommits
    from .mirror_link import MirrorLink

logger = logging.getLogger(__name__)

RETRY_S = 0.5


class Mirrors:
    """The mirrors of the cluster image on this broker. It opens a link to a source when a mirror becomes active, and
    closes the link afterwards. One writer: the event loop.
    """

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        quorum: Quorum,
        markers: Markers,
        commits: OffsetCommits,
        takeover: OffsetTakeover,
        sources: Sources | None,
        options: MirrorOptions,
        replication_factor: int,
        chance: random.Random,
    ) -> None:
        """`sources` opens clients of source clusters; without it, the broker copies nothing. `markers` aborts
        transactions that the quorum does not know, and `takeover` commits the offsets of groups after a promotion."""
        self._broker_id = broker_id
        self._replicas = replicas
        self._quorum = quorum
        self._markers = markers
        self._commits = commits
        self._takeover = takeover
        self._sources = sources
        self._options = options
        self._replication_factor = replication_factor
        self._chance = chance
        self._closing: set[asyncio.Task[None]] = set()
        self._retries: set[asyncio.TimerHandle] = set()
        self._closed = False
        self.links: dict[str, MirrorLink] = {}
        """Links of the active mirrors, by name of the mirror."""
        self._follows_soon = False
        self._refused: dict[str, tuple[Mirror, str]] = {}
        """Active mirrors whose source this broker cannot reach with the mirror's settings, and the reason."""

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Open, change and close mirror links after a change of the image. The replicas have their new roles
        already.
        """
        if self._closed:
            return
        self._takeover.image_changed(image)
        if not (image.mirrors.by_name or self.links):
            return
        copied = image.mirrors.topics
        if (
            delta.mirrors
            or delta.removed_topics
            or any(topic_id in copied for topic_id, _ in delta.partitions)
        ):
            self._have_links(image.mirrors.by_name)
            self._follow()

    def _follow_soon(self) -> None:
        """Schedule one update of the mirrors' links for all copies that are elected in this iteration of the event
        loop.
        """
        if not self._follows_soon:
            self._follows_soon = True
            asyncio.get_running_loop().call_soon(self._follow)

    def _follow(self) -> None:
        self._follows_soon = False
        if self._closed:
            return
        for link in self.links.values():
            link.follow(self._led_copies(self._quorum.image, link.mirror.name))

    def _led_copies(self, image: ClusterImage, mirror: str) -> Iterator[Partition]:
        """Return the copies of a mirror that this broker leads."""
        for topic_id, _ in image.mirrors.topics_of(mirror):
            for index in image.topics_by_id[topic_id].partitions:
                partition = self._replicas.find_by_id(topic_id, index)
                if partition is not None and partition.leader is not None:
                    yield partition

    def trouble_of(self, name: str) -> str:
        """Return the reason why this broker cannot reach the source of a mirror; empty if it can, or need not."""
        if name in self._refused:
            return self._refused[name][1]
        link = self.links.get(name)
        return "" if link is None else link.trouble

    def elected(self, partition: Partition) -> None:
        """Begin to copy the partition, or clean up a promoted copy, now that this broker leads it.

        In a promoted copy no client can end transactions of the source's producers. They are aborted before anything is
        appended, and these producers are forgotten.
        """
        mirrors = self._quorum.image.mirrors
        if mirrors.mirror_of(partition.topic_id) is not None:
            # Where many replicas are created at a time, most are elected after the image change that contains them.
            self._follow_soon()
        copy = mirrors.partition(partition.topic_id, partition.index)
        if copy is None or copy.promoted_epoch == NO_EPOCH:
            return
        log = partition.log
        end = log.leader_epochs.start_of(copy.promoted_epoch)
        foreign = [producer for producer, first in log.transactions.open.items() if first < end]
        for producer_id in foreign:
            try:
                self._markers.abort_unknown(partition, producer_id)
            except KafkaError as error:
                logger.warning("a transaction of the source in %r cannot be aborted: %s", partition, error)
                self._try_again(partition, partition.leader_epoch)
                return
        log.producers.forget_copied(end)

    def _try_again(self, partition: Partition, leader_epoch: int) -> None:
        def again() -> None:
            self._retries.discard(timer)
            if partition.leader is not None and partition.leader_epoch == leader_epoch:
                self.elected(partition)

        timer = asyncio.get_running_loop().call_later(RETRY_S, again)
        self._retries.add(timer)

    def _have_links(self, mirrors: Mapping[str, Mirror]) -> None:
        active = {name: mirror for name, mirror in mirrors.items() if mirror.phase is MirrorPhase.ACTIVE}
        for name, link in list(self.links.items()):
            if active.get(name) != link.mirror:
                self._end(self.links.pop(name))
        self._refused = {
            name: refusal for name, refusal in self._refused.items() if active.get(name) == refusal[0]
        }
        for name in active.keys() - self.links.keys() - self._refused.keys():
            self._begin(active[name])

    def _begin(self, mirror: Mirror) -> None:
        from .mirror_link import MirrorLink  # A late import: only a broker with mirrors needs the module.

        try:
            source = self._options.open(self._sources, mirror)
            self.links[mirror.name] = MirrorLink(
                self._broker_id,
                mirror,
                source,
                self._quorum,
                self._commits,
                self._replication_factor,
                self._seed,
            )
        except KafkaError as error:
            logger.error("mirror %s copies nothing: %s", mirror.name, error)
            self._refused[mirror.name] = mirror, error.message

    def _end(self, link: MirrorLink) -> None:
        task = asyncio.get_running_loop().create_task(link.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _seed(self) -> int:
        return self._chance.getrandbits(63)

    async def close(self) -> None:
        """Stop copying for all mirrors, and wait until their links are closed."""
        self._closed = True
        for timer in self._retries:
            timer.cancel()
        for name in list(self.links):
            self._end(self.links.pop(name))
        if self._closing:
            await asyncio.wait(self._closing)
        await self._takeover.close()
