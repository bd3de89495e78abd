"""What groups had committed at a cut, by the copy of a partition of their offsets. Pure.

What counts lies below the offset at which the source cuts the partition. Below it a transaction counts if its commit
marker is there: those that were decided later, and those that were open, have none.
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
    """Takes batches in the order of the log."""

    def __init__(self, cut: int) -> None:
        """`cut` is the offset at which the source cuts the partition."""
        self._cut = cut
        self._store = OffsetStore()
        self._replay = Replay(self._store)

    def feed(self, data: memoryview) -> None:
        """Whole batches; those at and behind the cut do not count."""
        size = 0
        for start, header in walk_batches(data):
            if header.base_offset >= self._cut:
                break
            size = start + header.size
        self._replay.feed(data[:size])

    def groups(self) -> list[str]:
        """Return the groups that have committed something."""
        return list(self._store.groups())

    def committed(
        self, is_wanted: Callable[[str], bool], copied: CopiedOffset
    ) -> Iterator[tuple[str, OffsetsOfGroup]]:
        """By group, of those that are wanted. `copied` says what an offset is here, or that it is of no copy."""
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
    """What offsets of the source are in the copies of a mirror that is promoted at a cut. Who had read behind the cut
    reads again from there: other records may come to lie at these offsets."""
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
