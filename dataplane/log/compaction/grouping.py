"""The grouping of neighbouring segments that compaction joins into one (Kafka's `groupSegmentsBySize`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..config import OFFSETS_MAX


class SegmentSizes(NamedTuple):
    """The sizes of a segment before it is cleaned, in bytes."""

    base_offset: int
    size: int
    offset_index_size: int
    time_index_size: int


def group(
    segments: Sequence[SegmentSizes], end_offset: int, segment_bytes: int, index_bytes: int
) -> list[list[SegmentSizes]]:
    """Return groups of neighbours that together stay within `segment_bytes`, `index_bytes` and 2^31 offsets even if no
    record is removed. The last of `segments` ends below `end_offset`."""
    groups: list[list[SegmentSizes]] = []
    size = offset_index = time_index = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        size += segment.size
        offset_index += segment.offset_index_size
        time_index += segment.time_index_size
        if (
            groups
            and size <= segment_bytes
            and max(offset_index, time_index) <= index_bytes
            and (segment.size == 0 or following - groups[-1][0].base_offset <= OFFSETS_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            _, size, offset_index, time_index = segment
    return groups
