"""In-sync sets of a partition as frozen values (KIP-497), and what a leader proposes to the quorum.

A change of the ISR is a compare-and-set command: leader epoch, partition epoch and the broker epoch of every
member (KIP-903) must match what the quorum holds. While one is in flight its outcome is unknown, so the
leader goes by the *maximal* ISR: everybody who might be a member whichever way it ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

UNKNOWN_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Committed:
    """Nothing in flight: the ISR the quorum committed."""

    committed: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        return self.committed


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """`joining` is proposed: until the outcome is known the high watermark waits for it too."""

    committed: frozenset[int]
    joining: int
    proposal: Proposal
    maximal: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "maximal", self.committed | {self.joining})


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """`leaving` are proposed to go: until that is committed the high watermark still waits for them."""

    committed: frozenset[int]
    leaving: frozenset[int]
    proposal: Proposal

    @property
    def maximal(self) -> frozenset[int]:
        return self.committed


def committed_isr(isr: Iterable[int]) -> Committed:
    """This ISR, with nothing in flight: one object for the thousands of partitions that have the same members."""
    return _committed(tuple(isr))


@lru_cache(maxsize=4096)
def _committed(isr: tuple[int, ...]) -> Committed:
    return Committed(frozenset(isr))


InSync: TypeAlias = Committed | PendingExpand | PendingShrink


@dataclass(frozen=True, slots=True)
class Proposal:
    """The ISR a leader wants, against the state it saw. `isr` pairs (broker id, broker epoch), sorted by id;
    UNKNOWN_BROKER_EPOCH stands for a member that has not fetched from this leader yet."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
