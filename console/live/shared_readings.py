"""Expensive readings of the cluster, such as the lag of all groups: taken on demand, and shared by all pages."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...client.admin import Admin, GroupDescription, GroupListing
from ...client.records import TopicPartition
from ...protocol.errors import KafkaError
from ..bounds import GROUPS_DESCRIBED_MAX
from ..by_broker import joined
from .group_lags import GroupLags, read_lags
from .lag_history import LagHistory
from .sampler import Sampler
from .shared_answer import AGE_S, SharedAnswer
from .throttles import Throttles, read_throttles

PATIENCE_S: Final = 1.0
"""Seconds that a page waits for a reading, before it is shown without the reading."""
DESCRIBED_AT_ONCE: Final = 8
"""The number of groups that are described at a time."""


@dataclass(frozen=True, slots=True)
class AllGroups:
    """All groups of the cluster with their lag, read at `at_s` in seconds since 1970.

    `silent` has the errors of brokers that listed no groups, by broker id.
    """

    at_s: float
    listed: Mapping[str, GroupListing]
    silent: Mapping[int, str]
    lags: GroupLags


@dataclass(frozen=True, slots=True)
class TopicSize:
    """The bytes of the largest replica of each partition of a topic, added up, and the number of these partitions."""

    bytes: int
    partitions: int


class SharedReadings:
    """Expensive readings of one cluster, each shared by all pages of a session."""

    def __init__(self, admin: Admin, sampler: Sampler, *, now: Callable[[], float] = time.time) -> None:
        self._admin, self._sampler, self._now = admin, sampler, now
        self._groups = SharedAnswer(self._read_groups)
        self._sizes = SharedAnswer(self._read_sizes)
        self._throttles = SharedAnswer(self._read_throttles)
        self._described: OrderedDict[str, tuple[float, GroupDescription]] = OrderedDict()
        self.lag_history = LagHistory()
        """The lag of groups that pages showed, over time."""

    async def groups(self, *, patience_s: float = PATIENCE_S) -> AllGroups | None:
        """Return all groups with their lag, some seconds old; None if the reading takes longer than `patience_s`.

        Raises KafkaError.
        """
        return await self._groups.get(patience_s=patience_s)

    async def sizes(self, *, patience_s: float = PATIENCE_S) -> Mapping[str, TopicSize] | None:
        """Return the sizes of all topics by name, some seconds old; None if the reading takes longer than `patience_s`.

        Topics without a known size are left out. Raises KafkaError.
        """
        return await self._sizes.get(patience_s=patience_s)

    async def throttles(self, *, patience_s: float = PATIENCE_S) -> Throttles | None:
        """Return the limits of copying of all brokers, some seconds old; None if the reading takes longer than
        `patience_s`. Raises KafkaError."""
        return await self._throttles.get(patience_s=patience_s)

    def expire_throttles(self) -> None:
        """Let the next page read the limits of copying again, since a change has altered them."""
        self._throttles.expire()

    async def describe(self, names: Iterable[str]) -> dict[str, GroupDescription]:
        """Return descriptions of groups, at most AGE_S seconds old. Groups that cannot be described are left out."""
        gate = asyncio.Semaphore(DESCRIBED_AT_ONCE)

        async def described(name: str) -> tuple[str, GroupDescription | None]:
            async with gate:
                return name, await self._described_now(name)

        found = await asyncio.gather(*map(described, names))
        return {name: group for name, group in found if group is not None}

    async def stop(self) -> None:
        """Stop reading, and drop all readings."""
        await asyncio.gather(self._groups.stop(), self._sizes.stop(), self._throttles.stop())

    async def _described_now(self, name: str) -> GroupDescription | None:
        at_s, known = self._described.get(name, (0.0, None))
        if known is not None and self._now() - at_s < AGE_S:
            return known
        try:
            (group,) = await self._admin.describe_groups([name])
        except (
            KafkaError
        ):  # The group may be gone, or its coordinator may be away. Other groups must not suffer.
            return None
        self._described[name] = (self._now(), group)
        self._described.move_to_end(name)
        if len(self._described) > GROUPS_DESCRIBED_MAX:
            self._described.popitem(last=False)
        return group

    async def _read_groups(self) -> AllGroups:
        at_s = self._now()
        groups, silent = joined(await self._admin.list_groups_by_broker())
        listed = {group.group_id: group for group in sorted(groups, key=lambda group: group.group_id)}
        return AllGroups(at_s, listed, silent, await read_lags(self._admin, list(listed.values())))

    async def _read_throttles(self) -> Throttles:
        return await read_throttles(self._admin)

    async def _read_sizes(self) -> dict[str, TopicSize]:
        snapshot = await self._sampler.snapshot()
        sizes = await self._admin.partition_sizes([name for name, _ in snapshot.partitions()])
        return sizes_by_topic(sizes)


def sizes_by_topic(sizes: Mapping[TopicPartition, int]) -> dict[str, TopicSize]:
    """Return the size of each topic from the sizes of its partitions."""
    found: dict[str, TopicSize] = {}
    for name, size in sizes.items():
        before = found.get(name.topic, TopicSize(0, 0))
        found[name.topic] = TopicSize(before.bytes + size, before.partitions + 1)
    return found
