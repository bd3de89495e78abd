"""Partitions of topics by id, as share groups name them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Place(NamedTuple):
    """A partition, by the id of its topic (16 bytes) and its number."""

    topic_id: bytes
    partition: int


def by_topic(places: Iterable[Place]) -> dict[bytes, list[int]]:
    """Return the numbers of the partitions by topic id."""
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    for topic_id, partition in places:
        found[topic_id].append(partition)
    return dict(found)
