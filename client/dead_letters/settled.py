"""The letters of a topic that were sent back, as the offsets of the replay's group tell. Pure.

The committed offset of a partition is the first letter that was not sent back. Letters beyond it that were sent back
stand in the commit's metadata, in the form of a worker's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ..worker.commit_metadata import BeyondCommit, decode, encode
from ..worker.watermark import FinishedOffsets


class CannotReplay(Exception):
    """A replay that is not possible as it was asked for. The message names the reason and the way on."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The offsets of a partition that a replay looks at: from the first to before the second."""

    begin: int
    end: int


class Settled:
    """The letters of a topic that were sent back, or passed over for good, by partition."""

    def __init__(
        self,
        topic_id: bytes,
        stretches: Mapping[TopicPartition, Stretch],
        committed: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """`stretches` have the readable offsets of each partition, and `committed` the offsets of the replay's group.

        An offset outside of the log counts as its nearest end. Metadata of another topic with this name, and metadata
        that no replay has written, tell nothing.
        """
        self._topic_id = topic_id
        self._offsets = {
            partition: _finished(topic_id, stretch, committed.get(partition))
            for partition, stretch in stretches.items()
        }

    def begins(self) -> dict[TopicPartition, int]:
        """Return the offset of each partition at which reading begins."""
        return {partition: offsets.watermark for partition, offsets in self._offsets.items()}

    def take(self, record: ConsumerRecord) -> bool:
        """Take the next letter of its partition. Return whether it was settled before."""
        offsets = self._of(record)
        if record.offset < offsets.position:
            return True  # Reading has begun before the committed offset.
        return offsets.take(record.offset, record.leader_epoch)

    def settle(self, record: ConsumerRecord) -> None:
        """Note that a letter taken before is sent back, or passed over for good."""
        self._of(record).finish(record.offset)

    def commit(self, partition: TopicPartition, start: int | None = None) -> OffsetAndMetadata:
        """Return the value to commit for a partition. `start` is a lower offset, if reading has to begin there.

        Raises CannotReplay if the letters sent back lie too scattered for the metadata of a commit.
        """
        offsets = self._offsets[partition]
        offset, runs = offsets.watermark, offsets.runs()
        if start is not None and start < offset:
            runs.insert(0, (start, offset))
            offset = start
        beyond = BeyondCommit(self._topic_id, offset, (), tuple(runs))
        try:
            return OffsetAndMetadata(offset, encode(beyond))
        except ValueError:
            raise CannotReplay(
                f"the letters sent back in partition {partition.partition} lie too scattered to remember: "
                f"{len(runs)} stretches beyond offset {offset}. Choose more letters at once, or let the letters that "
                "are not chosen count as done"
            ) from None

    def _of(self, record: ConsumerRecord) -> FinishedOffsets:
        return self._offsets[TopicPartition(record.topic, record.partition)]


def _finished(topic_id: bytes, stretch: Stretch, found: OffsetAndMetadata | None) -> FinishedOffsets:
    if found is None or found.offset > stretch.end:
        return FinishedOffsets(stretch.begin)
    begin = max(found.offset, stretch.begin)
    try:
        beyond = decode(found.metadata)
    except ValueError:
        return FinishedOffsets(begin)
    if beyond.topic_id != topic_id or beyond.offset != found.offset:
        return FinishedOffsets(begin)
    runs = [(max(start, begin), end) for start, end in beyond.runs if begin < end <= stretch.end]
    return FinishedOffsets(begin, runs)
