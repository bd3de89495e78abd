"""The public class of the consumer of a share group.

Fetches and acknowledgements are in `fetcher.py` and `leader.py`, heartbeats in `membership.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Final, Unpack

from ...protocol.errors import KafkaError
from ...protocol.messages.share_fetch import AcknowledgeType
from ..arguments import timeout, topic_name, whole_number
from ..consuming.large_messages.referenced import ReferencedValues
from ..consuming.options import check_topics
from ..failures import ClientClosed, SerializationFailed, UnreadableValue
from ..lifecycle import Lifecycle, ReadWithAwait
from ..objects.references import is_reference
from ..options import checks_options
from ..records import ConsumerRecord, TopicPartition
from ..segment_header import segment_of
from .acquired import WAY_ON
from .fetcher import ShareFetcher, Waiting
from .membership import ShareGroupMember
from .options import SHARE_OPTIONS, ShareConsumerOptions, ShareConsumerSettings
from .outstanding import OutstandingTasks
from .places import Place
from .tasks import ShareTask, task_of

LOOKAHEAD: Final = 64
"""The number of waiting records among which values of objects are fetched ahead."""
LAST_S: Final = 1.0
"""The least time that the cluster has for the last requests of a consumer."""
TASKS_PER_READ: Final = 2_000
"""The most tasks that one read returns, since making them blocks the event loop."""

logger = logging.getLogger(__name__)


@checks_options(*SHARE_OPTIONS)
class ShareConsumer(ReadWithAwait):
    """A consumer of a share group (KIP-932): a queue of tasks over topics, acknowledged one by one.

        async with ShareConsumer("tasks", group_id="mailers", bootstrap_servers="localhost:9092") as queue:
            async for task in queue:
                async with task:
                    print(task.value)

    Each record goes to one member of the group at a time, whatever its partition, so a group may have more members than
    partitions. The broker locks a record that it delivers. Without an acknowledgement the lock ends, and the record is
    delivered again, up to the group's limit of deliveries.

    A block `async with task` accepts its record at the end, releases it if the block raises, and rejects it if the
    block raises Reject. The consumer renews the locks of the program's tasks at a third of their duration. An
    acknowledgement is sent without waiting for the answer: await `task.accept()` or `flush()` where that matters.

    At most `max_in_flight` tasks are with the program and not acknowledged; a further read waits. At the end of the
    consumer's block the blocks of tasks end first, then acknowledgements are sent and answered, and then the consumer
    leaves the group. Other tasks of the program are released.
    """

    def __init__(self, *topics: str, **options: Unpack[ShareConsumerOptions]) -> None:
        check_topics(topics)
        if not topics:
            raise TypeError("ShareConsumer needs a topic, as in ShareConsumer('tasks', group_id='mailers')")
        names = tuple(dict.fromkeys(map(topic_name, topics)))
        settings = ShareConsumerSettings.of(options)
        connection, sharing = settings.connection, settings.sharing
        self._settings = settings
        self._topics = names
        self._life = Lifecycle("share consumer")
        self._cluster = connection.cluster(settings.security)
        self._member = ShareGroupMember(
            self._cluster, sharing.of_member(names, connection), assigned=self._assigned, failed=self._failed
        )
        self._fetcher = ShareFetcher(
            self._cluster,
            settings.acquiring.of_leaders(sharing.group_id, connection),
            self._member.member_id,
            max_in_flight=sharing.max_in_flight,
            max_wait_ms=settings.acquiring.fetch_max_wait_ms,
        )
        self._deserialization = settings.tasks.deserialization()
        self._referenced = settings.references.referenced_values(
            connection.request_timeout_ms / 1000, self._fetcher.wake_readers
        )
        self._outstanding = OutstandingTasks(
            self._fetcher,
            self._life,
            sharing.group_id,
            settings.tracing.handling(connection.client_id, sharing.group_id),
        )
        self._stopping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ShareConsumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __aiter__(self) -> AsyncIterator[ShareTask]:
        return self

    async def __anext__(self) -> ShareTask:
        try:
            return await self.getone()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def start(self) -> None:
        """Reach the cluster and join the group. Raises KafkaError; VersionUnsupported if the cluster has no share
        groups."""
        self._life.start()
        self._outstanding.loop = asyncio.get_running_loop()
        try:
            await self._cluster.start()
            self._fetcher.start(frozenset(self._topics))
            with suppress(KafkaError):  # Otherwise the fetcher asks again.
                await self._cluster.refresh(self._topics, create=True)
            self._cluster.refresh_every(self._settings.connection.metadata_max_age_ms / 1000)
            await self._member.join()
        except BaseException:
            self._life.stopped()
            await self._fetcher.stop(asyncio.get_running_loop().time() + LAST_S)
            await self._cluster.close()
            raise

    async def stop(self) -> None:
        """Let the blocks of tasks end for up to `drain_s`, have all acknowledgements answered, leave the group, and
        close; idempotent. Other tasks of the program are released. A cancelled caller does not interrupt it.

        The cluster has `request_timeout_ms` for its answers. Call it outside the blocks of tasks, since it waits for
        them."""
        await self._stop_within(self._settings.connection.request_timeout_ms / 1000)

    async def _stop_within(self, patience_s: float) -> None:
        if self._life.stop():
            self._stopping = asyncio.ensure_future(self._stop(patience_s))
            await asyncio.shield(self._stopping)
        elif self._stopping is not None:
            await asyncio.wait([self._stopping])

    async def _stop(self, patience_s: float) -> None:
        fetcher, group = self._fetcher, self._settings.sharing.group_id
        loop = asyncio.get_running_loop()
        until_s = loop.time()
        fetcher.drain()
        fetcher.wake_readers()
        try:
            await self._outstanding.blocks_end(self._settings.sharing.drain_s)
            self._outstanding.release_all()
            until_s = loop.time() + patience_s
            if not await fetcher.flush(patience_s):
                logger.warning(
                    "share group %r: acknowledgements were not answered in %g s", group, patience_s
                )
        finally:
            self._life.stopped()
            if self._referenced is not None:
                self._referenced.keep(())
            await fetcher.stop(max(until_s, loop.time() + LAST_S))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(max(until_s, loop.time() + LAST_S)):
                    await self._member.leave()
            await self._cluster.close()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions of which the consumer takes records now. Other members may have them, too."""
        return self._fetcher.assignment()

    # reading

    async def getone(self) -> ShareTask:
        """Return the next task, waiting for it, and while `max_in_flight` tasks are not acknowledged.

        Raises KafkaError, ClientClosed once stopped. Raises SerializationFailed or UnreadableRecords for a record that
        cannot be read, which is released, unless `unreadable` is "reject"; the next read goes on after it.
        """
        while True:
            self._check()
            if (task := self._next()) is not None:
                return task
            await self._fetcher.wait(1, None)

    async def getmany(
        self, *, timeout_ms: float | None = 0, max_records: int | None = None
    ) -> list[ShareTask]:
        """Return the tasks that are there, at most `max_records`, by default `max_poll_records`, and never more than
        2,000.

        Waits up to `timeout_ms` for some tasks (None: no limit). Raises as `getone`.
        """
        timeout(timeout_ms)
        if max_records is not None and whole_number("max_records", max_records) == 0:
            raise ValueError("max_records is 1 or more, not 0")
        count = min(max_records or self._settings.tasks.max_poll_records, TASKS_PER_READ)
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        while True:
            self._check()
            if tasks := self._take(count):
                return tasks
            left_s = None if deadline_s is None else deadline_s - loop.time()
            if left_s is not None and left_s <= 0:
                return []
            await self._fetcher.wait(count, left_s)

    async def flush(self) -> None:
        """Wait until all acknowledgements so far are answered. Their errors are raised where the acknowledgement is
        awaited, and logged."""
        self._life.check_here(or_stopping=True)
        await self._fetcher.flush(None)

    def _check(self) -> None:
        self._life.check_here()
        if self._member.failure is not None:
            raise self._member.failure
        if not self._fetcher.waiting:
            self._fetcher.raise_failure()

    def _take(self, count: int) -> list[ShareTask]:
        tasks: list[ShareTask] = []
        while len(tasks) < count:
            try:
                task = self._next(or_raise=not tasks)
            except KafkaError:
                if tasks:
                    break
                raise
            if task is None:
                break
            tasks.append(task)
        return tasks

    def _next(self, *, or_raise: bool = True) -> ShareTask | None:
        """Return the next task that is there; None if there is none, or no room for it, or without `or_raise` if the
        next record cannot be read."""
        fetcher = self._fetcher
        while fetcher.waiting and fetcher.room > 0:
            waiting = fetcher.waiting[0]
            if waiting.held.is_lost:
                fetcher.waiting.popleft()
                continue
            try:
                if (record := self._readable(waiting)) is None:
                    return None
            except KafkaError as error:
                if not or_raise:
                    return None
                fetcher.waiting.popleft()
                self._give_up(waiting, error)
                continue
            fetcher.waiting.popleft()
            fetcher.out[waiting.held] = waiting.leader
            fetcher.prefetch.took(1)
            if not fetcher.waiting:
                fetcher.wake()
            return task_of(record, waiting.held, self._outstanding)
        return None

    def _readable(self, waiting: Waiting) -> ConsumerRecord | None:
        """Return the record with key and value deserialized; None while its value is on the way. Raises KafkaError."""
        record = waiting.content
        if isinstance(record, KafkaError):
            raise record
        if self._referenced is not None and record.headers:
            found = self._with_value(record, self._referenced)
            if found is None:
                return None
            record = found
        return record if self._deserialization is None else self._deserialization.record(record)

    def _with_value(self, record: ConsumerRecord, values: ReferencedValues) -> ConsumerRecord | None:
        """Return the record with the value that it refers to; None while the value is on the way. Raises KafkaError."""
        if segment_of(record.headers) is not None:
            where = TopicPartition(record.topic, record.partition)
            raise SerializationFailed(
                f"the record at offset {record.offset} of {where.topic}-{where.partition} is a part of a large "
                "message, whose parts a share group may give to different members: read it with a Consumer",
                partition=where,
                offset=record.offset,
            )
        if not is_reference(record.headers):
            return record
        where = TopicPartition(record.topic, record.partition)
        contents = (waiting.content for waiting in islice(self._fetcher.waiting, LOOKAHEAD))
        following = [
            content
            for content in contents
            if isinstance(content, ConsumerRecord) and (content.topic, content.partition) == where
        ]
        found = values.resolve(where, following, most=1)
        if (failure := found.failure) is not None:
            raise UnreadableValue(
                failure.reason, where, record.offset, record.offset + 1, what="the record", way_on=WAY_ON
            )
        return found.records[0] if found.records else None

    def _give_up(self, waiting: Waiting, error: KafkaError) -> None:
        """Reject an unreadable record, or release it and raise its error."""
        if self._settings.tasks.unreadable == "raise" or isinstance(error, UnreadableValue):
            waiting.leader.acknowledge(waiting.held, AcknowledgeType.RELEASE)
            self._fetcher.wake()
            raise error
        waiting.leader.acknowledge(waiting.held, AcknowledgeType.REJECT)
        self._fetcher.wake()
        logger.warning("share group %r: rejected: %s", self._settings.sharing.group_id, error)

    # the owner of the member

    def _assigned(self, places: frozenset[Place]) -> None:
        self._fetcher.assign(places)

    def _failed(self, error: KafkaError) -> None:
        self._fetcher.fail(error)


async def stop_within(queue: ShareConsumer, patience_s: float) -> None:
    """Stop a consumer as its method does. The cluster has `patience_s` for its answers."""
    await queue._stop_within(patience_s)
