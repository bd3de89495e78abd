"""Checks of a trim, which deletes a partition's records below an offset, for the console and for `ottla topic trim`.
Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..records import TopicPartition


class CannotTrim(ValueError):
    """An error: a requested deletion of records is invalid; the message says why."""


def check_within_ends(below: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    """Raise CannotTrim for an offset beyond the end of its partition.

    Brokers refuse such a partition with OFFSET_OUT_OF_RANGE, which `kafka-delete-records.sh` prints. It is most likely
    a slip, so it is found before records of other partitions are deleted.
    """
    for partition, offset in below.items():
        if offset > ends[partition]:
            raise CannotTrim(
                f"{partition.topic}-{partition.partition} ends at {ends[partition]}: "
                f"nothing lies below offset {offset} there yet"
            )
