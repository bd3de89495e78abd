"""The replay of dead letters: they are sent back to their topics, and a consumer group keeps the progress.

A batch of letters and its offsets are one transaction, so that no failure sends a letter twice or loses one. Clusters
without transactions get a batch first and its offsets then: a failure between both sends the letters of a batch again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.nearest import nearest
from ..admin import Admin
from ..consumer import Consumer
from ..failures import seen_by
from ..producer import Producer
from ..records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from .found import FoundLetter
from .reading import up_to
from .resending import Partitions, resent, target_of
from .settled import CannotReplay, Settled, Stretch

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 32 * 1024 * 1024
"""The largest letter that is sent. Most topics have a lower limit, by which the cluster decides."""

Chooses = Callable[[ConsumerRecord], bool]
Shows = Callable[["ReplayCounts"], None]


def group_of_replay(topic: str, to: str | None = None) -> str:
    """Return the name of the group that keeps the progress of a topic's replay: to the topics of origin, or `to`."""
    return f"ottla-dlq-replay-{topic}" + ("" if to is None else f"-to-{to}")


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The letters that a replay sends back, and the topic that they go to."""

    topic: str
    to: str | None = None
    """The topic that all letters go to; None for the topic of origin of each."""
    group_id: str = ""
    """The group that keeps the progress."""
    partitions: Sequence[int] | None = None
    """The partitions that are looked at; None for all."""
    chooses: Chooses = field(default=lambda record: True)
    from_start: bool = False
    """Whether letters that were sent back before are sent again."""
    skips_others: bool = False
    """Whether letters that are not chosen count as done, so that no later replay with this group looks at them."""


@dataclass(slots=True)
class ReplayCounts:
    """The numbers of a replay so far."""

    looked_at: int = 0
    chosen: int = 0
    sent_before: int = 0
    """Chosen letters that an earlier replay has sent, and that are left out."""
    targets: Counter[str] = field(default_factory=Counter)
    """The numbers of letters by the topic that they go to."""
    without_origin: list[str] = field(default_factory=list)
    """The first letters that tell no topic of origin, as `TOPIC:PARTITION:OFFSET`."""
    without_origin_count: int = 0


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The letters that a replay would send, and the ends up to which it looks."""

    ends: Mapping[TopicPartition, int]
    counts: ReplayCounts


class LetterReplay:
    """A replay of a topic's letters: `plan` counts the letters, and `run` sends them."""

    def __init__(self, request: ReplayRequest, connection: Mapping[str, Any]) -> None:
        """`connection` has the options of clients that say how to reach the cluster."""
        self.request = request
        self.group_id = request.group_id or group_of_replay(request.topic, request.to)
        self.is_transactional = True
        """False once a cluster without transactions was found: letters are sent at least once there."""
        self._connection = dict(connection)
        self._partitions: Partitions = {}
        self._topic_id = b""
        self._seen = ""
        """The end of the sentence that a topic does not exist, for users who may not see all topics."""

    async def plan(
        self, show: Shows = lambda counts: None, *, before: Mapping[TopicPartition, int] | None = None
    ) -> ReplayPlan:
        """Count the letters that `run` would send, without a change: those before the present ends, or `before`.

        Raises CannotReplay for a topic that does not exist, and for letters without a target; KafkaError.
        """
        await self._look_at_topics()
        counts = ReplayCounts()
        async with self._consumer() as consumer:
            partitions = self._chosen_partitions()
            ends = await consumer.end_offsets(partitions) if before is None else before
            settled = await self._settled(consumer, ends)
            async for records in up_to(consumer, await self._begins(consumer, settled), ends):
                for record in self._chosen(records, settled, counts):
                    self._count_target(FoundLetter.of(record), counts)
                show(counts)
        self._check(counts)
        return ReplayPlan(ends, counts)

    async def run(self, plan: ReplayPlan, show: Shows = lambda counts: None) -> ReplayCounts:
        """Send the letters before the ends of a plan, and return their numbers.

        A call that is cancelled leaves whole batches sent; the next run continues after them. Raises CannotReplay,
        ProducerFenced once another replay with this group begins, and KafkaError.
        """
        counts = ReplayCounts()
        async with AsyncExitStack() as stack:
            producer = await self._producer(stack)
            consumer = await stack.enter_async_context(self._consumer())
            # After the start of the producer: it has ended the transaction of an earlier replay.
            settled = await self._settled(consumer, plan.ends)
            async for records in up_to(consumer, await self._begins(consumer, settled), plan.ends):
                chosen = self._chosen(records, settled, batch := ReplayCounts())
                letters = [FoundLetter.of(record) for record in chosen]
                for letter in letters:
                    self._count_target(letter, batch)
                self._check(batch)
                if letters or self.request.skips_others:
                    place = self._place(consumer, settled, records[0])
                    await self._send(producer, consumer, letters, place)
                _add(counts, batch)
                show(counts)
        return counts

    # topics and offsets

    async def _look_at_topics(self) -> None:
        async with Admin(**self._connection) as admin:
            # All topics are listed, as a question for one topic creates it in some clusters.
            topics = {topic.name: topic for topic in await admin.describe_topics()}
            self._seen = seen_by(admin.session.cluster.user)
        if self.request.topic not in topics:
            meant = nearest(self.request.topic, topics)
            hint = f"; did you mean {meant!r}?" if meant else ""
            raise CannotReplay(f"there is no topic {self.request.topic!r}{self._seen}{hint}")
        self._partitions = {name: tuple(topic.partitions) for name, topic in topics.items()}
        self._topic_id = topics[self.request.topic].id

    def _chosen_partitions(self) -> list[TopicPartition]:
        existing, asked = self._partitions[self.request.topic], self.request.partitions
        for index in asked or ():
            if index not in existing:
                raise CannotReplay(
                    f"{self.request.topic} has partitions 0 to {len(existing) - 1}, not {index}"
                )
        return [TopicPartition(self.request.topic, index) for index in (existing if asked is None else asked)]

    async def _settled(self, consumer: Consumer, ends: Mapping[TopicPartition, int]) -> Settled:
        assert consumer.commits is not None  # It has a group.
        begins = await consumer.beginning_offsets(ends)
        stretches = {partition: Stretch(begins[partition], end) for partition, end in ends.items()}
        return Settled(self._topic_id, stretches, await consumer.commits.committed(ends))

    async def _begins(self, consumer: Consumer, settled: Settled) -> dict[TopicPartition, int]:
        begins = settled.begins()
        return await consumer.beginning_offsets(begins) if self.request.from_start else begins

    def _place(
        self, consumer: Consumer, settled: Settled, record: ConsumerRecord
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offset to commit for the partition of a record."""
        partition = TopicPartition(record.topic, record.partition)
        # A large message is read from its first segment on, before the offset of the letter itself.
        start = consumer.committable(partition, settled.commit(partition).offset).offset
        return {partition: settled.commit(partition, start)}

    # letters

    def _chosen(
        self, records: Sequence[ConsumerRecord], settled: Settled, counts: ReplayCounts
    ) -> list[ConsumerRecord]:
        """Return the letters to send, and note them, and the others if they count as done, as settled."""
        chosen = []
        for record in records:
            counts.looked_at += 1
            was_settled = settled.take(record)
            wanted = self.request.chooses(record)
            if wanted and was_settled and not self.request.from_start:
                counts.sent_before += 1
            elif wanted:
                chosen.append(record)
                counts.chosen += 1
            if not was_settled and (wanted or self.request.skips_others):
                settled.settle(record)
        return chosen

    def _count_target(self, letter: FoundLetter, counts: ReplayCounts) -> None:
        target = target_of(letter, self.request.to)
        if target is not None:
            counts.targets[target] += 1
            return
        record = letter.record
        counts.without_origin_count += 1
        if len(counts.without_origin) < 3:
            counts.without_origin.append(f"{record.topic}:{record.partition}:{record.offset}")

    def _check(self, counts: ReplayCounts) -> None:
        if counts.without_origin_count:
            named = ", ".join(counts.without_origin)
            more = " and others" if counts.without_origin_count > len(counts.without_origin) else ""
            raise CannotReplay(
                f"{counts.without_origin_count} of {counts.chosen} letters tell no topic of origin ({named}{more}): "
                "name a topic that all go to, or leave these letters out by a filter"
            )
        for topic in counts.targets:
            if topic not in self._partitions:
                right = "; a replay needs WRITE on it" if self._seen else ""
                raise CannotReplay(
                    f"there is no topic {topic!r}{self._seen}, which {counts.targets[topic]} letters go to{right}"
                )

    async def _send(
        self,
        producer: Producer,
        consumer: Consumer,
        letters: Sequence[FoundLetter],
        place: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Send letters, and commit their offsets, in one transaction if the cluster can."""
        if self.is_transactional:
            async with producer.transaction():
                await self._hand_over(producer, letters)
                await producer.send_offsets_to_transaction(place, self.group_id)
            return
        deliveries = await self._hand_over(producer, letters)
        await producer.flush()
        for delivery in deliveries:
            await delivery
        await consumer.commit(place)

    async def _hand_over(self, producer: Producer, letters: Sequence[FoundLetter]) -> list[Any]:
        deliveries = []
        for letter in letters:
            made = resent(letter, self.request.to, self._partitions)
            deliveries.append(
                await producer.send(
                    made.topic, made.value, made.key, partition=made.partition, headers=made.headers
                )
            )
        return deliveries

    # clients

    def _consumer(self) -> Consumer:
        return Consumer(
            **self._connection,
            group_id=self.group_id,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )

    async def _producer(self, stack: AsyncExitStack) -> Producer:
        options = {
            **self._connection,
            "max_request_size": REQUEST_BYTES_MAX,
            "buffer_memory": 2 * REQUEST_BYTES_MAX,
        }
        if self.is_transactional:
            try:
                return await stack.enter_async_context(Producer(transactional_id=self.group_id, **options))
            except KafkaError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
                self.is_transactional = False
                logger.warning("the cluster has no transactions: a failure may send some letters twice")
        return await stack.enter_async_context(Producer(**options))


def _add(counts: ReplayCounts, batch: ReplayCounts) -> None:
    counts.looked_at += batch.looked_at
    counts.chosen += batch.chosen
    counts.sent_before += batch.sent_before
    counts.targets += batch.targets
