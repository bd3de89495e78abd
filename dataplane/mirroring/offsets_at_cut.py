"""Committed offsets of groups at a cut, read from the copy of a partition of the source's offsets topic. Pure.

Batches count below the offset at which the source cuts the partition. A transaction counts if its commit marker is
below that offset, too. Transactions that were open at the cut, or decided later, have no marker there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.mirror_offsets import OffsetsOfGroup
from ...protocol.cluster.transaction_table import Place
from ...protocol.records.record_batch import walk_batches
from ...protocol.wire.schema import ZERO_UUID
from ..groups.offsets import CommittedOffset, OffsetStore, TopicPartition
from ..groups.replay import Replay

CopiedOffset = Callable[[TopicPartition, CommittedOffset], tuple[Place, int] | None]


class OffsetsAtCut:
    """A reader of one partition of the copied offsets topic, up to a cut. It takes the partition's batches in the order
    of the log, and has the groups' committed offsets.
    """

    def __init__(self, cut: int) -> None:
        """`cut` is the offset at which the source cuts the partition."""
        self._cut = cut
        self._store = OffsetStore()
        self._replay = Replay(self._store)

    def feed(self, data: memoryview) -> None:
        """Read whole batches; batches at or after the cut are ignored."""
        size = 0
        for start, header in walk_batches(data):
            if header.base_offset >= self._cut:
                break
            size = start + header.size
        self._replay.feed(data[:size])

    def groups(self) -> list[str]:
        """Return the groups that have committed an offset before the cut."""
        return list(self._store.groups())

    def committed(
        self, is_wanted: Callable[[str], bool], copied: CopiedOffset
    ) -> Iterator[tuple[str, OffsetsOfGroup]]:
        """Return the committed offsets of the wanted groups, by group. `copied` translates an offset of the source to
        one here, or returns None if its partition is not copied."""
        for group_id in sorted(self._store.groups()):
            if not is_wanted(group_id):
                continue
            found: OffsetsOfGroup = {}
            for key, committed in sorted(self._store.of_group(group_id).items()):
                here = copied(key, committed)
                if here is not None:
                    found[here[0]] = here[1], committed.metadata
            if found:
                yield group_id, found


def copied_offset(image: ClusterImage, mirror: str) -> CopiedOffset:
    """Return a function that translates committed offsets of the source to the copies of a mirror that is promoted at a
    cut.

    Offsets after the cut become the cut. Consumers that had read further read again from there, since other records may
    be written at these offsets.
    """
    copies: Mapping[str, bytes] = {
        image.topics_by_id[topic_id].name: topic_id for topic_id, _ in image.mirrors.topics_of(mirror)
    }

    def copied(key: TopicPartition, committed: CommittedOffset) -> tuple[Place, int] | None:
        name, index = key
        topic_id = copies.get(name)
        copy = None if topic_id is None else image.mirrors.partition(topic_id, index)
        if topic_id is None or copy is None or copy.resumption is None or committed.offset < 0:
            return None
        if committed.topic_id not in (ZERO_UUID, image.mirrors.topics[topic_id].source_topic_id):
            return None
        return (topic_id, index), min(committed.offset, copy.resumption.offset)

    return copied
