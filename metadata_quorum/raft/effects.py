"""The operations and callbacks that the Raft core requests from its environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .snapshots import Snapshot


class NotLeader(Exception):
    """This node is not the Raft leader, and the command was not and will not be applied. `leader_id` is the leader, as
    far as known."""

    def __init__(self, leader_id: int | None) -> None:
        where = "no leader is known" if leader_id is None else f"node {leader_id} does"
        super().__init__(f"this node does not lead the quorum, {where}")
        self.leader_id = leader_id


class OutcomeUnknown(Exception):
    """Leadership ended before the command was known to be committed: it may or may not be applied yet."""


class Overloaded(Exception):
    """Too many bytes wait for the disk or the followers; the command was not accepted."""


@dataclass(frozen=True, slots=True)
class RoleChange:
    """This node's new Raft role: `leads` is true for the active leader of `term`. `leader_id` is a hint, None if no
    leader is known."""

    leads: bool
    term: int
    leader_id: int | None


@dataclass(frozen=True, slots=True)
class FoldRequest:
    """A request to make a snapshot of the state after `index`, from the snapshot `base` and the journal's entries."""

    base: Snapshot | None
    index: int


Done = Callable[[object, Exception | None], None]


class Effects(Protocol):
    """The input and output operations that `Core` needs: implemented by an event loop with connections and threads, and
    by the simulation."""

    def send(self, peer: int, parts: Sequence[bytes]) -> None:
        """Send one Raft message to `peer`, given in parts; it is lost if there is no connection."""

    def writable(self, peer: int) -> bool:
        """Return whether the connection to `peer` accepts data without congestion."""

    def wake(self) -> None:
        """Call `Core.pump` soon, after all input that has already arrived."""

    def in_order(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run blocking `work` off the loop, after all earlier work; then call `done` on the loop."""

    def aside(self, work: Callable[[], object], done: Callable[[object, Exception | None], None]) -> None:
        """Run long `work` off the loop without delaying `in_order`; then call `done` with its outcome."""

    def fold(self, request: FoldRequest, done: Callable[[bool], None]) -> None:
        """Run `fold.fold` in another process; then call `done` on the loop with its success."""

    def role_changed(self, change: RoleChange) -> None:
        """Report the new role to the owner."""

    def applied(self) -> None:
        """Report to the owner that the state machine has changed."""
