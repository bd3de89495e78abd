"""What the deciding part of the Raft layer asks of the world around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .snapshots import Snapshot


class NotLeader(Exception):
    """This node does not lead, and the command was not and will not be applied. Ask `leader_id`."""

    def __init__(self, leader_id: int | None) -> None:
        where = "no leader is known" if leader_id is None else f"node {leader_id} does"
        super().__init__(f"this node does not lead the quorum, {where}")
        self.leader_id = leader_id


class OutcomeUnknown(Exception):
    """Leadership ended before the command was known to be committed: it may or may not be applied yet."""


class Overloaded(Exception):
    """Too much is waiting for the disk or the followers; the command was not taken."""


@dataclass(frozen=True, slots=True)
class RoleChange:
    """`leads`: this node is the active leader of `term`. `leader_id` is a hint."""

    leads: bool
    term: int
    leader_id: int | None


@dataclass(frozen=True, slots=True)
class FoldRequest:
    """Make a snapshot of `index` from `base` and the journal."""

    base: Snapshot | None
    index: int


Done = Callable[[object, Exception | None], None]


class Effects(Protocol):
    """The shell: an event loop with links and threads, or the simulation."""

    def send(self, peer: int, parts: Sequence[bytes]) -> None:
        """Send one message; lost if there is no connection."""

    def writable(self, peer: int) -> bool:
        """Whether `peer` takes in what it is sent."""

    def wake(self) -> None:
        """Call `pump` soon, after what has already arrived."""

    def in_order(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run `work`, which blocks, off the loop, after all work given before; then `done` on the loop."""

    def aside(self, work: Callable[[], object], done: Callable[[object, Exception | None], None]) -> None:
        """Run long `work` off the loop, not in the way of `in_order`; then `done` with its outcome."""

    def fold(self, request: FoldRequest, done: Callable[[bool], None]) -> None:
        """Run `fold.fold` in another process; then `done` on the loop with its success."""

    def role_changed(self, change: RoleChange) -> None:
        """Tell the owner."""

    def applied(self) -> None:
        """Tell the owner that the state machine has moved."""
