"""Invariants of Raft, one class each, checked right after each event of a node."""

from __future__ import annotations

from ottla.metadata_quorum.raft.entries import unpack_group
from tests.simulation.raft.world import InvariantBroken, Proposal, SimulatedNode, World


class Invariant:
    """The base class of invariants, whose hooks do nothing."""

    def node_started(self, world: World, node: SimulatedNode) -> None:
        """Check a new incarnation after its recovery."""

    def observe(self, world: World, node: SimulatedNode) -> None:
        """Check a node after one of its events."""

    def acknowledged(self, world: World, node: SimulatedNode, proposal: Proposal) -> None:
        """Check a command after its acknowledgement to the client."""

    def at_end(self, world: World) -> None:
        """Check the end, when all faults are healed and every node has caught up."""

    def broken(self, what: str) -> InvariantBroken:
        """Return the exception for a violation."""
        return InvariantBroken(f"{type(self).__name__}: {what}")


class ElectionSafety(Invariant):
    """An invariant: there is at most one leader per term."""

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}

    def observe(self, world: World, node: SimulatedNode) -> None:
        consensus = node.running.consensus
        if consensus.leads:
            leader = self._leaders.setdefault(consensus.term, node.node_id)
            if leader != node.node_id:
                raise self.broken(f"nodes {leader} and {node.node_id} both lead term {consensus.term}")


class NoContradiction(Invariant):
    """An invariant: every node is consistent in its durable, committed and applied state, and in
    its waiting callers.
    """

    def observe(self, world: World, node: SimulatedNode) -> None:
        try:
            node.running.check()
        except AssertionError as error:
            raise self.broken(f"node {node.node_id}: {error}") from error


class LogMatching(Invariant):
    """An invariant: an index and a term identify one entry, and the entry before it.

    So logs with a common entry agree on all earlier entries.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._checked: dict[int, tuple[int, int]] = {}

    def node_started(self, world: World, node: SimulatedNode) -> None:
        self._checked[node.node_id] = (0, 0)
        self._check(node, 1)

    def observe(self, world: World, node: SimulatedNode) -> None:
        journal = node.running.journal
        end = (journal.last_index, journal.last_term)
        if end != self._checked.get(node.node_id):
            previous = self._checked.get(node.node_id, (0, 0))[0]
            self._checked[node.node_id] = end
            self._check(node, max(1, min(previous, end[0] - 8) - journal.base_index))

    def _check(self, node: SimulatedNode, first: int) -> None:
        held = node.running.journal.entries
        for position in range(max(1, first), len(held)):
            payload, index, term = held[position]
            known = self._entries.setdefault((index, term), (payload, held[position - 1][2]))
            if known != (payload, held[position - 1][2]):
                raise self.broken(f"node {node.node_id} has another entry at ({index}, term {term})")


class SameHistoryEverywhere(Invariant):
    """An invariant: the histories of all machines are prefixes of one history, so no committed entry is lost or
    reordered.
    """

    def __init__(self) -> None:
        self.history: list[tuple[int, int, bytes]] = []
        self._seen: dict[int, int] = {}

    def node_started(self, world: World, node: SimulatedNode) -> None:
        self._seen[node.node_id] = 0

    def observe(self, world: World, node: SimulatedNode) -> None:
        history = node.machine.history
        seen = self._seen[node.node_id]
        if len(history) == seen:
            return
        if len(history) < seen:
            raise self.broken(f"node {node.node_id} forgot {seen - len(history)} applied commands")
        common = min(len(history), len(self.history))
        if history[seen:common] != self.history[seen:common]:
            raise self.broken(f"node {node.node_id} diverges after command {seen}")
        self.history.extend(history[len(self.history) :])
        self._seen[node.node_id] = len(history)


class AppliedMonotone(Invariant):
    """An invariant: within an incarnation the applied index never falls, and is never above the commit index."""

    def __init__(self) -> None:
        self._applied: dict[int, int] = {}

    def node_started(self, world: World, node: SimulatedNode) -> None:
        self._applied[node.node_id] = 0

    def observe(self, world: World, node: SimulatedNode) -> None:
        consensus = node.running.consensus
        applied = consensus.last_applied
        if applied < self._applied[node.node_id]:
            raise self.broken(f"node {node.node_id} went from {self._applied[node.node_id]} to {applied}")
        if applied > consensus.commit_index:
            raise self.broken(f"node {node.node_id} applied {applied}, committed {consensus.commit_index}")
        self._applied[node.node_id] = applied


class LeaderHasAllCommitted(Invariant):
    """An invariant: an active leader's log holds all entries of earlier terms that any node has applied."""

    def __init__(self, histories: SameHistoryEverywhere) -> None:
        self._histories = histories
        self._terms: set[int] = set()

    def observe(self, world: World, node: SimulatedNode) -> None:
        consensus, journal = node.running.consensus, node.running.journal
        if not consensus.active or consensus.term in self._terms:
            return
        self._terms.add(consensus.term)
        for index, term, _ in reversed(self._histories.history):
            if term < consensus.term:
                if journal.term_at(index) != term and index > journal.base_index:
                    raise self.broken(
                        f"node {node.node_id} leads term {consensus.term} without ({index}, term {term})"
                    )
                return


class AcknowledgedOnce(Invariant):
    """An invariant: an acknowledged command is in the history exactly once, at the position in the answer."""

    def __init__(self, histories: SameHistoryEverywhere) -> None:
        self._histories = histories

    def acknowledged(self, world: World, node: SimulatedNode, proposal: Proposal) -> None:
        place = proposal.outcome
        assert isinstance(place, int)
        if node.machine.history[place - 1][2] != proposal.command:
            raise self.broken(f"{proposal.command!r} is not at place {place} of node {node.node_id}")

    def at_end(self, world: World) -> None:
        commands = [command for _, _, command in self._histories.history]
        if len(set(commands)) != len(commands):
            raise self.broken("a command was applied twice")
        for proposal in world.proposals:
            if not proposal.answered or proposal.error is not None:
                continue
            place = proposal.outcome
            assert isinstance(place, int)
            if place > len(commands) or commands[place - 1] != proposal.command:
                raise self.broken(f"acknowledged {proposal.command!r} is not in the history at {place}")


class RefusedNever(Invariant):
    """An invariant: a command refused with "not leader" is never applied."""

    def __init__(self, histories: SameHistoryEverywhere) -> None:
        self._histories = histories

    def at_end(self, world: World) -> None:
        applied = {command for _, _, command in self._histories.history}
        if twice_told := applied.intersection(world.refused):
            raise self.broken(f"{sorted(twice_told)[0]!r} was refused and applied")


class AcknowledgedIsDurable(Invariant):
    """An invariant: when a client gets its answer, a majority has the command on disk."""

    def acknowledged(self, world: World, node: SimulatedNode, proposal: Proposal) -> None:
        place = proposal.outcome
        assert isinstance(place, int)
        index = node.machine.history[place - 1][0]
        holders = sum(_durably_holds(holder, index, proposal.command) for holder in world.nodes.values())
        down = sum(holder.core is None for holder in world.nodes.values())
        if holders + down <= world.size // 2:
            raise self.broken(
                f"{proposal.command!r} is on {holders} disks of {world.size}, {down} nodes are down"
            )


def _durably_holds(node: SimulatedNode, index: int, command: bytes) -> bool:
    if node.core is None:
        return False
    journal = node.core.journal
    if index <= journal.base_index:
        return True
    if index > journal.durable_index:
        return False
    return command in unpack_group(journal.entries[index - journal.base_index][0])


class ConfirmedIsHeld(Invariant):
    """An invariant: entries that a leader counts for a follower are on that follower's disk, unless it has gone on to a
    later term.

    The follower may have done so before it came back with an old copy of its disk. A leader that stood still has heard
    of neither. Nor has it heard that other nodes have notified such a follower, which then does not vote.
    """

    def __init__(self) -> None:
        self._latest_terms: dict[int, int] = {}

    def observe(self, world: World, node: SimulatedNode) -> None:
        consensus, journal = node.running.consensus, node.running.journal
        latest = self._latest_terms
        latest[node.node_id] = max(latest.get(node.node_id, 0), consensus.term)
        if not consensus.leads:
            return
        for peer, matched in consensus._SyncObj__raftMatchIndex.items():
            follower = world.nodes[peer.id].core
            if not matched or follower is None:
                continue
            if max(latest.get(peer.id, 0), follower.consensus.term) > consensus.term:
                continue
            if follower.formation.catching_up:
                continue
            held = follower.journal
            if matched <= held.base_index or matched <= journal.base_index:
                continue
            if matched > held.durable_index or held.term_at(matched) != journal.term_at(matched):
                raise self.broken(
                    f"node {node.node_id} counts {matched} for node {peer.id}, which has {held.durable_index} on disk"
                )


class NoneAccusedWrongly(Invariant):
    """An invariant: only a node that came back with an old copy of its disk is notified of broken promises."""

    def observe(self, world: World, node: SimulatedNode) -> None:
        if node.running.formation.catching_up and node.node_id not in world.restored:
            raise self.broken(f"node {node.node_id} was never restored, and does not vote")


class Alive(Invariant):
    """An invariant: once everything is healed, the cluster elects a leader, commits and catches up."""

    def at_end(self, world: World) -> None:
        ends = {
            (node.running.consensus.last_applied, len(node.machine.history)) for node in world.nodes.values()
        }
        if len(ends) != 1:
            raise self.broken(f"the nodes end at {sorted(ends)}")


def all_invariants() -> list[Invariant]:
    """Return new invariants for one run."""
    histories = SameHistoryEverywhere()
    return [
        NoContradiction(),
        ElectionSafety(),
        LogMatching(),
        histories,
        AppliedMonotone(),
        LeaderHasAllCommitted(histories),
        AcknowledgedOnce(histories),
        RefusedNever(histories),
        AcknowledgedIsDurable(),
        ConfirmedIsHeld(),
        NoneAccusedWrongly(),
        Alive(),
    ]
