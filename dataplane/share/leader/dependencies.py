"""The interface of the durable states of share partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..states import StateBatch

NO_START_OFFSET = -1
"""Start offset of a share partition that has no durable state yet. In a write: the start offset stays."""


class ShareKey(NamedTuple):
    """The identity of a share partition: a group, and a partition of a topic by the topic's id."""

    group_id: str
    topic_id: bytes
    partition: int


class StoredState(Protocol):
    """The durable state of a share partition."""

    @property
    def state_epoch(self) -> int:
        """Epoch that rises with each reset of the group's offsets."""

    @property
    def start_offset(self) -> int:
        """First offset that is not finished; -1 if the group has no start offset yet."""

    @property
    def batches(self) -> Sequence[StateBatch]:
        """States of the offsets from the start offset on. Offsets without a batch are as before their first
        delivery."""


class Persister(Protocol):
    """The way to the durable states of share partitions, at their state coordinators."""

    async def read(self, group_id: str, topic_id: bytes, partition: int, leader_epoch: int) -> StoredState:
        """Return the durable state. Writes of older leader epochs are refused from now on. Raises KafkaError."""
        ...

    async def write(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Change the durable state. A start offset of -1 leaves it unchanged.

        Raises KafkaError. Only FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH say that nothing was written.
        """
        ...
