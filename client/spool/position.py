"""The delivered position of a spool in the cluster: the offsets of a group that has the spool's name.

Each delivery commits the position after it, in its transaction, for partition 0 of every topic that it wrote to, with
the owner's name as metadata; the highest position counts. So the deletion of a topic does not lose the position, unless
all topics of the spool are deleted. It expires like any group's offsets (offsets.retention.minutes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from ..connections.cluster import Cluster
from ..connections.coordinator import COORDINATOR_MOVED, OF_GROUP, Coordinator
from ..consuming.offsets import FIRST_WITH_STABLE, LANE, LAST_FOR_ONE_GROUP
from ..failures import SpoolPositionLost, SpoolUnusable, cluster_error
from .folder import Checkpoint, SpoolIdentity


class KnownPosition(NamedTuple):
    """The cluster's entry for a topic: the next position to deliver, and the owner who has delivered so far."""

    position: int
    owner: str


class ClusterPosition:
    """The delivered position of a spool that the cluster stores, as committed offsets of a group."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._group_id = group_id
        self._coordinator = Coordinator(cluster, group_id, OF_GROUP, LANE)

    async def read(self, topics: Iterable[str] = ()) -> dict[str, KnownPosition]:
        """Return the known positions by topic.

        `topics` are topics whose transaction may be just ending: a coordinator reports such a pending offset only for
        named topics. Raises KafkaError, UNSTABLE_OFFSET_COMMIT among others.
        """
        names = list(topics)
        try:
            known = await self._ask(None)
            return known | await self._ask(sorted({*known, *names})) if known or names else {}
        except KafkaError as error:
            if error.code in COORDINATOR_MOVED:
                self._coordinator.forget()
            raise

    async def _ask(self, topics: list[str] | None) -> dict[str, KnownPosition]:
        request = OffsetFetchRequest(
            group_id=self._group_id,
            topics=None
            if topics is None
            else [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in topics],
        )
        version = (await self._coordinator.connection()).version_for(OffsetFetchRequest, LAST_FOR_ONE_GROUP)
        request.require_stable = version >= FIRST_WITH_STABLE
        response: OffsetFetchResponse = await self._coordinator.ask(request, at_most=version)
        self._check(response.error_code)
        found: dict[str, KnownPosition] = {}
        for topic in response.topics:
            for partition in topic.partitions:
                self._check(partition.error_code)
                if partition.committed_offset >= 0:
                    known = KnownPosition(partition.committed_offset, partition.metadata or "")
                    found[topic.name] = max(known, found.get(topic.name, known))
        return found

    def _check(self, code: int) -> None:
        if code:
            error = ErrorCode.of(code)
            where = f"position of a spool, group {self._group_id!r}"
            raise cluster_error(error, where, operation="DESCRIBE", name=self._group_id)


def resolve(known: Mapping[str, KnownPosition], identity: SpoolIdentity, checkpoint: Checkpoint) -> int:
    """Return the position to continue from. Pure.

    Raises SpoolUnusable if another folder has delivered under this spool's id. Raises SpoolPositionLost if the cluster
    knows no position while a delivery had been in progress.
    """
    newest = max(known.values(), default=None)
    if newest is not None:
        if newest.owner not in (identity.owner, identity.next_owner, ""):
            raise SpoolUnusable(
                f"another copy of this spool has delivered up to position {newest.position} (group {identity.name!r}). "
                "What is in this one may be among it: remove the folder and begin a new one. Or, to deliver what is "
                f"here all the same, delete that group and commit the offset {checkpoint.delivered} for it "
                "(Admin.delete_groups, Admin.alter_offsets; partition 0 of any topic)"
            )
        return max(newest.position, checkpoint.delivered)
    if checkpoint.open:
        raise SpoolPositionLost(
            f"the offsets of group {identity.name!r} are gone (they expire with offsets.retention.minutes), and it is "
            f"not known whether the records from position {checkpoint.delivered} to before {checkpoint.under_way} were "
            f"delivered. Commit for that group and partition 0 of any topic the offset {checkpoint.delivered} to send "
            f"them, perhaps again, or {checkpoint.under_way} to go on behind them (Admin.alter_offsets): delivery "
            "goes on then"
        )
    return checkpoint.delivered
