"""The groups that a broker coordinates, their periodic expiry, and their handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from ...protocol.features import finalized
from ...protocol.messages.config_commands import ResourceType
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..configuration.config import BrokerConfig
from ..groups.consumer.subscriptions import TopicCatalog
from ..groups.coordinator import GroupCoordinator
from ..groups.dependencies import GroupDependencies
from ..groups.persister import SharePersister
from ..handlers.consumer_groups import ConsumerGroupHandlers
from ..handlers.group_offsets import GroupOffsetHandlers
from ..handlers.groups import GroupHandlers
from ..handlers.share_group_offsets import ShareGroupOffsetHandlers
from ..handlers.share_groups import ShareGroupHandlers
from ..quorum.session import QuorumSession
from ..runtime.clocks import monotonic_ms, wall_ms
from ..runtime.periodic import PeriodicWork
from ..security.authorization.access import Authorization
from ..share.feature import share_level
from ..share.partition_ends import PartitionEnds


class GroupExpiry:
    """The periodic removal of expired offsets and groups that this broker coordinates."""

    def __init__(self, groups: GroupCoordinator, check_interval_ms: int) -> None:
        self._groups = groups
        self._check_interval_s = check_interval_ms / 1000

    def periodic_work(self) -> Iterator[PeriodicWork]:
        """Yield the removal of expired offsets and groups as periodic work, every
        offsets.retention.check.interval.ms.
        """
        yield PeriodicWork("expiry of groups", self._check_interval_s, self._expire)

    async def _expire(self) -> None:
        self._groups.expire()


def make_groups(
    config: BrokerConfig,
    session: QuorumSession,
    topics: TopicCatalog,
    persister: SharePersister,
    is_withheld: Callable[[str, int], bool],
) -> GroupCoordinator:
    """Return a broker's coordinator of groups.

    `topics` is the catalogue that the coordinator updates. `persister` writes the states of share-partitions.
    `is_withheld(group_id, partition)` returns whether a group must not be served yet, since it waits for its offsets
    from a promoted mirror.
    """

    def partitions() -> int | None:
        topic = session.image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else len(topic.partitions)

    return GroupCoordinator(
        config.groups,
        _steady_wall_ms(),
        partitions,
        lambda: session.image.topics,
        GroupDependencies(
            topics,
            group_settings=lambda group: session.image.configs.get((ResourceType.GROUP, group), {}),
            wall_ms=wall_ms,
            persister=persister,
            # All brokers of a cluster with share groups know Kafka's numbers of member states.
            has_earlier_programs=lambda: share_level(session.image.features) == 0,
        ),
        is_withheld,
    )


def make_topic_catalog(authorization: Authorization | None) -> TopicCatalog:
    """Return the catalogue of topics that groups subscribe to."""
    return TopicCatalog(
        None if authorization is None else authorization.authorizer, asyncio.get_running_loop().call_soon
    )


def group_handlers(
    config: BrokerConfig,
    session: QuorumSession,
    groups: GroupCoordinator,
) -> Iterator[object]:
    """Yield the handlers of requests about groups and their offsets."""
    yield GroupHandlers(groups)
    yield GroupOffsetHandlers(groups, lambda: session.image, wall_ms, config.offset_metadata_max_bytes)
    yield ConsumerGroupHandlers(
        groups,
        config.groups.consumer.assignors,
        lambda: finalized(session.image.features)["group.version"],
    )


def share_group_handlers(
    session: QuorumSession,
    groups: GroupCoordinator,
    topics: TopicCatalog,
    persister: SharePersister,
    ends: PartitionEnds,
) -> Iterator[object]:
    """Yield the handlers of requests about the membership and the start offsets of share groups."""

    def share_version() -> int:
        return share_level(session.image.features)

    yield ShareGroupHandlers(groups, share_version)
    yield ShareGroupOffsetHandlers(groups, topics, persister, ends.read, share_version)


def _steady_wall_ms() -> Callable[[], int]:
    """Return a clock that starts at the wall-clock time and does not jump with it, for expiring group members.

    It does not follow corrections either. So offsets are also kept as long as the wall clock requires.
    """
    ahead_ms = wall_ms() - monotonic_ms()
    return lambda: ahead_ms + monotonic_ms()
