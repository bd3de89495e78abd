"""The interface to the states of share-partitions, which other coordinators keep.

Groups use it without knowledge of these coordinators.
"""

from __future__ import annotations

from typing import NoReturn, Protocol

from ...protocol.errors import ErrorCode, KafkaError


class StateSummary(Protocol):
    """The durable state of a share-partition in brief."""

    @property
    def state_epoch(self) -> int:
        """The group's epoch at which the state was initialized."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of the partition's leader that wrote the state last."""

    @property
    def start_offset(self) -> int:
        """The first offset whose delivery is not complete; -1 until the partition's leader has chosen it."""

    @property
    def delivery_complete_count(self) -> int:
        """Number of records beyond `start_offset` whose delivery is complete; -1 if it is not known."""


class SharePersister(Protocol):
    """Writes and reads the states of share-partitions, wherever their coordinators are.

    Each method raises KafkaError if the state's coordinator refuses or cannot be reached.
    """

    async def initialize(
        self, group_id: str, topic_id: bytes, partition: int, *, state_epoch: int, start_offset: int
    ) -> None:
        """Give the partition a new state that begins at `start_offset`; -1: by the group's settings."""

    async def delete(self, group_id: str, topic_id: bytes, partition: int) -> None:
        """Delete the partition's state; nothing happens if there is none."""

    async def summary(self, group_id: str, topic_id: bytes, partition: int) -> StateSummary:
        """Return the partition's state in brief."""


class NoPersister:
    """The persister of coordinators without share groups: it refuses all requests."""

    async def initialize(
        self, group_id: str, topic_id: bytes, partition: int, *, state_epoch: int, start_offset: int
    ) -> None:
        _refuse()

    async def delete(self, group_id: str, topic_id: bytes, partition: int) -> None:
        _refuse()

    async def summary(self, group_id: str, topic_id: bytes, partition: int) -> StateSummary:
        _refuse()


def _refuse() -> NoReturn:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this coordinator serves no share groups")
