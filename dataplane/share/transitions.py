"""Changes of a share partition that wait for their durable write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .states import DeathReason, DurableState, StateBatch


class DeadRecords(NamedTuple):
    """A range of records that go to the dead letter topic, once their transition is committed."""

    first: int
    last: int
    delivery_count: int
    reason: DeathReason


@dataclass(eq=False, slots=True)
class Transition:
    """A change of a share partition. The caller writes `batches` and `start_offset` in the order of the transitions.

    Then it commits the transition. It rolls the transition back if the write has failed. Transitions may end in any
    order. A transition without batches needs no write.
    """

    batches: tuple[StateBatch, ...] = ()
    start_offset: int | None = None
    """New start offset to write; None if the written start offset stays."""
    dead_letters: tuple[DeadRecords, ...] = ()
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Offsets in which states change, first and last."""

    @property
    def needs_write(self) -> bool:
        """True if the change must be durable before it is committed."""
        return bool(self.batches)

    @property
    def archived_count(self) -> int:
        """Number of records that the change archives."""
        return sum(
            batch.last + 1 - batch.first for batch in self.batches if batch.state is DurableState.ARCHIVED
        )
