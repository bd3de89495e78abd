"""In-sync sets of a partition as frozen values (KIP-497), and the ISR changes that a leader proposes to the quorum.

A change of the ISR is a compare-and-set command. Its leader epoch, partition epoch and the broker epoch of every member
(KIP-903) must match the quorum's state. While a proposal is in flight its outcome is unknown. So the leader uses the
*maximal* ISR: all brokers that might be members under either outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

UNKNOWN_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Committed:
    """An in-sync set with no proposal in flight: the ISR that the quorum committed."""

    committed: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        return self.committed


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """An in-sync set with a proposal that `joining` becomes a member. Until the outcome is known the high watermark
    waits for `joining`, too."""

    committed: frozenset[int]
    joining: int
    proposal: Proposal
    maximal: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "maximal", self.committed | {self.joining})


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """An in-sync set with a proposal that the members `leaving` are removed. Until it is committed the high watermark
    still waits for them."""

    committed: frozenset[int]
    leaving: frozenset[int]
    proposal: Proposal

    @property
    def maximal(self) -> frozenset[int]:
        return self.committed


def committed_isr(isr: Iterable[int]) -> Committed:
    """Return this ISR with no proposal in flight. Thousands of partitions with the same members share one object."""
    return _committed(tuple(isr))


@lru_cache(maxsize=4096)
def _committed(isr: tuple[int, ...]) -> Committed:
    return Committed(frozenset(isr))


InSync: TypeAlias = Committed | PendingExpand | PendingShrink


@dataclass(frozen=True, slots=True)
class Proposal:
    """The ISR that a leader proposes, based on the leader epoch and partition epoch that it knew.

    `isr` contains pairs (broker id, broker epoch), sorted by id. UNKNOWN_BROKER_EPOCH stands for a member that has not
    fetched from this leader yet.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
