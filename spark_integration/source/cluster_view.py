"""The driver's view of the cluster: partitions, offsets and cuts. One client serves the whole query."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ...client.admin import Admin, Cut, CutOffset
from ...client.admin.by_partition import settled
from ...client.admin.log_ends import ends_reaching
from ...client.backoff import Backoff
from ...client.connections.metadata import TopicInfo
from ...client.failures import VersionUnsupported
from ...client.records import TopicPartition
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.list_offsets import EARLIEST, LATEST
from ...protocol.nearest import nearest
from ..options import WrongOption, admin_options
from .settings import ATOMIC, READ_COMMITTED, SourceSettings, Topics

CLIENT_ID = "ottla-spark"
RETRY_MAX_MS = 1000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """The current partitions of the topics to read, and the ids of these topics."""

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]

    def is_part_of(self, other: Found) -> bool:
        """Return whether `other` has all of these partitions, of the same topics."""
        return self.partitions <= other.partitions and self.topic_ids.items() <= other.topic_ids.items()


class ClusterView:
    """A client that asks the cluster for partitions, offsets and cuts.

    Methods raise KafkaError, or NoBrokerReachable without a cluster; errors of options raise WrongOption.
    """

    def __init__(self, settings: SourceSettings) -> None:
        self.admin = Admin(**{"client_id": CLIENT_ID, **admin_options(settings.client)})
        self._topics = settings.topics
        self._pattern = _compiled(settings.topics)
        self._isolation = settings.isolation
        self._cluster_id = ""
        self._patience_s = settings.client.get("request_timeout_ms", 30_000) / 1000

    async def start(self) -> None:
        """Connect to the cluster."""
        await self.admin.start()  # A user who starts a query learns at once that no broker is reachable.

    async def stop(self) -> None:
        """Close the connections."""
        await self.admin.stop()

    async def cluster_id(self) -> str:
        """Return the cluster's id."""
        if not self._cluster_id:
            self._cluster_id = (await self._patiently(self.admin.describe_cluster)).cluster_id
        return self._cluster_id

    async def isolation(self) -> str:
        """Return the configured isolation. The default is atomic if the cluster has cuts, else read_committed."""
        if self._isolation is None:
            try:
                await self._patiently(lambda: self.admin.find_cut([]))
                self._isolation = ATOMIC
            except VersionUnsupported:
                self._isolation = READ_COMMITTED
        return self._isolation

    async def partitions(self, *, must_exist: bool = False) -> Found:
        """Return the current partitions. With `must_exist` raise WrongOption if a named topic or partition does not
        exist.
        """
        known = await self._known_topics()
        topics = self._topics
        if topics.partitions:
            wanted = set(topics.partitions)
        else:
            named = topics.names or [name for name in known if self._matches(name, known[name].is_internal)]
            wanted = {
                TopicPartition(name, index)
                for name in named
                if name in known
                for index in known[name].partitions
            }
        there = {
            partition
            for partition in wanted
            if partition.topic in known and partition.partition in known[partition.topic].partitions
        }
        if must_exist:
            self._check_existence(wanted, there, set(known) | set(await self._names()))
        return Found(
            frozenset(there), {partition.topic: known[partition.topic].id.hex() for partition in there}
        )

    async def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets."""
        return await self.offsets(dict.fromkeys(partitions, EARLIEST))

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offsets with read_committed, else the high watermarks."""
        return await self.offsets(dict.fromkeys(partitions, LATEST))

    async def ends_reaching(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of partitions once all have reached these offsets, or after `kafka.request.timeout.ms`."""
        return await ends_reaching(lambda: self.ends(offsets), offsets, self._patience_s)

    async def offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of the first record not older than each time in ms; -1 if there is none.

        EARLIEST and LATEST are valid times.
        """
        committed = await self.isolation() == READ_COMMITTED

        async def ask() -> dict[TopicPartition, int]:
            return settled(await self.admin.list_offsets(timestamps, read_committed=committed))

        return await self._patiently(ask)

    async def newest_cut(self, partitions: Collection[TopicPartition]) -> Cut:
        """Return the newest consistent cut of these partitions; see Admin.find_cut. Raises WrongOption if the cluster
        has no cuts."""
        try:
            return await self._patiently(lambda: self.admin.find_cut(partitions))
        except VersionUnsupported as error:
            raise WrongOption(
                f"isolation=atomic takes a cluster of Ottla; this one has no cuts ({error.message}): use read_committed"
            ) from error

    async def cut_offsets(
        self, cut: Cut, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CutOffset]:
        """Return the offset of a consistent cut in each partition; see Admin.cut_offsets."""
        wanted = list(partitions)

        async def ask() -> dict[TopicPartition, CutOffset]:
            return settled(await self.admin.cut_offsets(cut, wanted))

        return await self._patiently(ask)

    async def _known_topics(self) -> dict[str, TopicInfo]:
        """Return the named topics that exist; with a pattern, all topics."""
        topics = self._topics
        named = dict.fromkeys([*topics.names, *(partition.topic for partition in topics.partitions)])
        try:
            infos = await self._patiently(lambda: self.admin.describe_topics(named or None))
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            there = named.keys() & set(await self._patiently(self.admin.list_topics))
            infos = await self._patiently(lambda: self.admin.describe_topics(there)) if there else []
        return {info.name: info for info in infos if not info.error}

    async def _names(self) -> list[str]:
        return await self._patiently(self.admin.list_topics)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of `ask`, retrying errors that may pass, for up to `kafka.request.timeout.ms`.

        So a query survives the death of a broker, and a restart of the cluster.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        backoff = Backoff(RETRY_MAX_MS)
        while True:
            try:
                return await ask()
            except KafkaError as error:
                lasting = not error.code.retriable or error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if lasting or loop.time() > deadline:
                    raise
            await asyncio.sleep(backoff.next_s())

    def _matches(self, name: str, internal: bool) -> bool:
        return not internal and self._pattern is not None and self._pattern.fullmatch(name) is not None

    def _check_existence(
        self, wanted: set[TopicPartition], there: set[TopicPartition], known: Collection[str]
    ) -> None:
        for name in self._topics.names:
            if name not in known:
                raise WrongOption(_no_topic("subscribe", name, known))
        for partition in sorted(wanted - there):
            if partition.topic not in known:
                raise WrongOption(_no_topic("assign", partition.topic, known))
            raise WrongOption(
                f"option 'assign' names partition {partition.partition} of {partition.topic!r}, which is not there"
            )


def _no_topic(option: str, name: str, known: Collection[str]) -> str:
    meant = nearest(name, known)
    hint = f"; did you mean {meant!r}?" if meant else ""
    return f"option {option!r} names topic {name!r}, which is not there{hint}"


def _compiled(topics: Topics) -> re.Pattern[str] | None:
    if topics.pattern is None:
        return None
    try:
        return re.compile(topics.pattern)
    except re.error as error:
        raise WrongOption(
            f"option 'subscribePattern' is no regular expression: {topics.pattern!r}: {error}"
        ) from None
