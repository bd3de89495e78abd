"""The source topic from which a copy is fetched: the topic that the quorum knows, and no other of that name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from ottla.dataplane.mirroring.copies import NOBODY, Copy
from ottla.dataplane.mirroring.mirror_link import MirrorLink
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.mirror_records import MirrorTopicRecord
from ottla.protocol.wire.schema import ZERO_UUID
from tests.dataplane.mirroring.test_rounds import BROKER, HERE, SOURCE_BROKER, THERE, Quorum, Source

DEADLINE_S = 60.0
ANOTHER = b"a" * 16


class _SourceWithMetadata(Source):
    """A source that describes one topic, and answers no fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.topic_id = THERE
        self.looked = 0
        self.failure = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)

    async def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        self.looked += 1
        parts = [MetadataResponsePartition(partition_index=0, leader_id=SOURCE_BROKER, leader_epoch=1)]
        topic = MetadataResponseTopic(name="t", topic_id=self.topic_id, partitions=parts)
        return MetadataResponse(cluster_id=self.cluster_id, topics=[topic])

    async def close(self) -> None:
        return


class _Placing:
    def __init__(self, link: MirrorLink, source: _SourceWithMetadata, quorum: Quorum) -> None:
        self.link, self.source, self.quorum = link, source, quorum
        self.partition = SimpleNamespace(
            topic="t",
            index=0,
            topic_id=HERE,
            leader=object(),
            leader_epoch=4,
            high_watermark=0,
            log=SimpleNamespace(log_end_offset=0),
        )

    async def looked(self) -> Copy:
        """Return the copy, once the source was asked again after the last change."""
        before = self.source.looked
        self.link.follow([cast(Any, self.partition)])
        async with asyncio.timeout(DEADLINE_S):
            while self.source.looked == before:
                await asyncio.sleep(0.01)
        (copy,) = self.link.copies
        return copy

    def know(self, source_topic_id: bytes) -> None:
        self.quorum.image.apply(MirrorTopicRecord(topic_id=HERE, mirror="m", source_topic_id=source_topic_id))


@asynccontextmanager
async def placing_mirror() -> AsyncIterator[_Placing]:
    source, quorum = _SourceWithMetadata(), Quorum()
    mirror = quorum.image.mirrors.by_name["m"]
    link = MirrorLink(BROKER, mirror, cast(Any, source), cast(Any, quorum), cast(Any, None), 1, lambda: 1)
    try:
        yield _Placing(link, source, quorum)
    finally:
        await link.close()


async def test_the_topic_that_the_quorum_knows_is_copied() -> None:
    async with placing_mirror() as placing:
        assert (await placing.looked()).source_leader == SOURCE_BROKER


async def test_another_topic_of_the_same_name_is_not() -> None:
    async with placing_mirror() as placing:
        placing.source.topic_id = ANOTHER
        assert (await placing.looked()).source_leader == NOBODY


async def test_while_the_quorum_does_not_know_which_topic_it_is_nothing_is_copied() -> None:
    """A topic was recreated, and an operator has accepted that.

    Until the quorum knows the new topic's id, its records must not be copied: the topic might be recreated once more,
    and both would be in one log, unnoticed.
    """
    async with placing_mirror() as placing:
        placing.know(ZERO_UUID)
        assert (await placing.looked()).source_leader == NOBODY
        placing.know(THERE)
        assert (await placing.looked()).source_leader == SOURCE_BROKER


async def test_a_source_without_ids_is_copied() -> None:
    async with placing_mirror() as placing:
        placing.know(ZERO_UUID)
        placing.source.topic_id = ZERO_UUID
        assert (await placing.looked()).source_leader == SOURCE_BROKER
