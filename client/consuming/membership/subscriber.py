"""A consumer's subscription, kept up to date with the existing topics; as a member of a group, or without one.

Metadata is requested every `metadata_max_age_ms`, as matching topics and partitions come and go.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata import MetadataRequest
from ...backoff import Backoff
from ...connections.cluster import Cluster
from ...records import TopicPartition
from ..topic_notices import TopicNotices
from .attendance import Attendance
from .consumer_group import ConsumerGroupMember, ConsumerGroupOptions
from .group import Group, GroupOptions
from .handover import Handover
from .heartbeats import Wanted
from .listener import RebalanceListener


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of topics: by name or, with `pattern`, by a match of their whole name."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    brokers_pattern: str | None = None
    """A pattern that brokers match, in their syntax (RE2)."""


class Subscriber:
    """The subscription of one consumer. `group`: its membership, None without one."""

    def __init__(
        self,
        cluster: Cluster,
        handover: Handover,
        options: GroupOptions | ConsumerGroupOptions | None,
        attendance: Attendance,
        notices: TopicNotices,
        *,
        metadata_max_age_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self.group: Group | ConsumerGroupMember | None = None
        self._cluster = cluster
        self._handover = handover
        self._options = options
        self._attendance = attendance
        self._notices = notices
        self._max_age_s = metadata_max_age_ms / 1000
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._selection: Selection | None = None
        self._created_for: Selection | None = None
        """The selection for which brokers were last allowed to create topics."""
        self._topics: tuple[str, ...] = ()
        self._reading: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        self._started = False
        self._watch: asyncio.Task[None] | None = None
        self._dropping: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        """True while the consumer is subscribed to topics or to a pattern."""
        return self._selection is not None

    @property
    def dropping(self) -> bool:
        """True while partitions of the previous subscription are being given up."""
        return self._dropping is not None and not self._dropping.done()

    @property
    def owned(self) -> set[TopicPartition]:
        """The partitions that are assigned now."""
        return self._handover.owned

    @property
    def topics(self) -> set[str]:
        """The subscribed topics; with a pattern, the topics found so far."""
        if self._selection is not None and self._selection.brokers_pattern is not None:
            return {partition.topic for partition in self._handover.owned}
        return set(self._topics)

    def select(self, selection: Selection, listener: RebalanceListener | None) -> None:
        """Subscribe to these topics at once, or once `start` is called."""
        self._selection = selection
        self._topics = selection.names
        self._handover.listener = listener or RebalanceListener()
        self._changed.set()
        if self._started and self._watch is None:
            self._watch = asyncio.ensure_future(self._keep_up())

    async def start(self) -> None:
        """Join the group, or take all partitions of the topics. Raises KafkaError, also for a topic that does not
        appear.
        """
        await self._cluster.refresh(self._topics)
        self._started = True
        if self._selection is not None:
            self._changed.clear()
            await self._apply(self._selection)
            self._watch = asyncio.ensure_future(self._keep_up())

    def drop(self) -> asyncio.Task[None]:
        """End the subscription; return a task that ends when partitions are given up and the group is left."""
        if self._selection is not None:
            watch, before = self._watch, self._dropping
            self._watch = self._selection = None
            self._topics = self._reading = ()
            self._cluster.follow(self, ())
            self._dropping = asyncio.ensure_future(self._leave(watch, before))
        elif self._dropping is None:
            self._dropping = asyncio.ensure_future(self._handover.settled())
        return self._dropping

    async def _leave(self, watch: asyncio.Task[None] | None, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        if self.group is not None:
            await self.group.leave()
            self.group = None  # Not earlier: its listener may commit under the old membership.
        else:
            await self._handover.settled()
            await self._handover.give_up(self._handover.owned)

    # keeping up

    async def _keep_up(self) -> None:
        backoff = Backoff(self._retry_backoff_max_ms)
        wait_s = self._notices.wait_s(self._topics, self._max_age_s)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            self._changed.clear()
            try:
                if self._selection is not None:
                    await self._apply(self._selection)
                wait_s = self._notices.wait_s(self._topics, self._max_age_s)
                backoff.reset()
            except Exception as error:
                wait_s = backoff.next_s()
                if not isinstance(error, KafkaError) or not error.code.retriable:
                    self._handover.fail(error)
                    wait_s = self._max_age_s

    async def _apply(self, selection: Selection) -> None:
        if self._dropping is not None:
            await self._dropping
        if selection.pattern is None:
            topics = selection.names
        else:
            topics = await self._matching(selection.pattern)
        await self._look_at(topics, selection)
        if self._selection is not selection:
            return
        self._topics = topics
        if self._options is None:
            await self._appeared(name for name in selection.names if name not in self._reading)
            await self._read_all(topics)
        elif self.group is None:
            self.group = self._member(self._options, topics, selection)
            self.group.start()
        elif isinstance(self.group, ConsumerGroupMember):
            self.group.subscribe(self._wanted(topics, selection))
        else:
            self.group.subscribe(topics)
            self.group.metadata_refreshed()

    async def _look_at(self, topics: tuple[str, ...], selection: Selection) -> None:
        """Fetch the metadata of these topics. If the user may not read some of them, the next read raises the error."""
        self._cluster.follow(self, topics)
        # A topic matched by a pattern is never created: it would reappear after its deletion.
        if selection.names and selection is not self._created_for:
            await self._cluster.refresh(topics, create=True)
            self._created_for = selection
        else:  # All followed topics, including those found by a pattern of the brokers.
            await self._cluster.refresh()
        if (denial := self._notices.look(topics, asyncio.get_running_loop().time())) is not None:
            self._handover.deny(denial)

    def _wanted(self, topics: tuple[str, ...], selection: Selection) -> Wanted:
        """Return the topics to ask the coordinator for, without denied ones: a single one would fail them all."""
        denied = set(self._notices.denied(topics))
        return Wanted(tuple(topic for topic in topics if topic not in denied), selection.brokers_pattern)

    def _member(
        self, options: GroupOptions | ConsumerGroupOptions, topics: tuple[str, ...], selection: Selection
    ) -> Group | ConsumerGroupMember:
        if isinstance(options, GroupOptions):
            return Group(self._cluster, options, topics, self._handover, self._attendance)
        wanted = self._wanted(topics, selection)
        return ConsumerGroupMember(
            self._cluster, options, wanted, self._handover, self._attendance, self._changed.set
        )

    async def _matching(self, pattern: re.Pattern[str]) -> tuple[str, ...]:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = await self._cluster.ask_any(request)
        names = (topic.name for topic in response.topics if topic.name is not None and not topic.is_internal)
        return tuple(sorted(name for name in names if pattern.fullmatch(name)))

    async def _read_all(self, topics: tuple[str, ...]) -> None:
        self._reading = topics
        owned, known = self._handover.owned, self._cluster.metadata.topics
        wanted: list[TopicPartition] = []
        for topic in topics:
            if known[topic].partitions or known[topic].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                wanted += [TopicPartition(topic, index) for index in known[topic].partitions]
            else:  # The current partitions are unknown.
                wanted += [partition for partition in owned if partition.topic == topic]
        await self._handover.give_up(owned.difference(wanted))
        if new := [partition for partition in wanted if partition not in owned]:
            await self._handover.take_over(new)

    async def _appeared(self, topics: Iterable[str]) -> None:
        """Wait until these topics have partitions, or are denied.

        Raises KafkaError if one has no partitions within the request timeout.
        """
        wanted, known = list(topics), self._cluster.metadata.topics
        loop = asyncio.get_running_loop()
        backoff = Backoff(100)
        deadline = loop.time() + self._cluster.request_timeout_ms / 1000
        while missing := [topic for topic in wanted if topic not in known or not known[topic].partitions]:
            denied = self._notices.denied(missing)
            missing = [topic for topic in missing if topic not in denied]
            if not missing:
                return
            error = known[missing[0]].error if missing[0] in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if loop.time() > deadline:
                raise KafkaError(error, f"there is no topic {missing[0]!r}")
            await asyncio.sleep(backoff.next_s())
            await self._cluster.refresh(wanted)
            if (denial := self._notices.look(wanted, loop.time())) is not None:
                self._handover.deny(denial)
