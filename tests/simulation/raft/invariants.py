"""What must hold at every moment, one class each. Each looks at a node right after each of its events."""

from __future__ import annotations

from ottla.metadata_quorum.raft.entries import unpack_group
from tests.simulation.raft.world import InvariantBroken, Proposal, SimulatedNode, World


class Invariant:
    """Looks at nothing; subclasses override what they need."""

    def node_started(self, world: World, node: SimulatedNode) -> None:
        """A new incarnation has recovered."""

    def observe(self, world: World, node: SimulatedNode) -> None:
        """The node has just done something."""

    def acknowledged(self, world: World, node: SimulatedNode, proposal: Proposal) -> None:
        """A client has just been told that its command is applied."""

    def at_end(self, world: World) -> None:
        """All faults are healed and every node has caught up."""

    def broken(self, what: str) -> InvariantBroken:
        """The exception to raise."""
        return InvariantBroken(f"{type(self).__name__}: {what}")


class ElectionSafety(Invariant):
    """At most one leader per term, ever."""

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}

    def observe(self, world: World, node: SimulatedNode) -> None:
        consensus = node.running.consensus
        if consensus.leads:
            leader = self._leaders.setdefault(consensus.term, node.node_id)
            if leader != node.node_id:
                raise self.broken(f"nodes {leader} and {node.node_id} both lead term {consensus.term}")


class NoContradiction(Invariant):
    """Every node agrees with itself: what is durable, committed and applied, and who waits for what."""

    def observe(self, world: World, node: SimulatedNode) -> None:
        try:
            node.running.check()
        except AssertionError as error:
            raise self.broken(f"node {node.node_id}: {error}") from error


class LogMatching(Invariant):
    """An index and a term name one entry, and one entry before it: so logs that share it share all before."""

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
    """Every machine's history is a prefix of one: no divergence, nothing committed lost, order kept."""

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
            raise self.broken(f"node {node.node_id} diverges behind command {seen}")
        self.history.extend(history[len(self.history) :])
        self._seen[node.node_id] = len(history)


class AppliedMonotone(Invariant):
    """Within an incarnation the applied index never falls, and is never above the commit index."""

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
    """An active leader's log holds whatever any node has applied from an earlier term."""

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
    """An acknowledged command stands in the history exactly once, at the place the client was told."""

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
    """A command refused with "not leader" is never applied."""

    def __init__(self, histories: SameHistoryEverywhere) -> None:
        self._histories = histories

    def at_end(self, world: World) -> None:
        applied = {command for _, _, command in self._histories.history}
        if twice_told := applied.intersection(world.refused):
            raise self.broken(f"{sorted(twice_told)[0]!r} was refused and applied")


class AcknowledgedIsDurable(Invariant):
    """When a client is told, a majority has the command on disk."""

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
    """What a leader counts for a follower is on that follower's disk, unless it has gone on to a later term.

    It may have done so before it came back with an old copy of its disk. A leader that stood still has heard of
    neither. Nor has it heard that such a follower was told by others, and does not vote.
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
    """Only a node that came back with an old copy of its disk is told that it has less than it had promised."""

    def observe(self, world: World, node: SimulatedNode) -> None:
        if node.running.formation.catching_up and node.node_id not in world.restored:
            raise self.broken(f"node {node.node_id} was never restored, and does not vote")


class Alive(Invariant):
    """Once everything is healed, the cluster leads, commits and catches up."""

    def at_end(self, world: World) -> None:
        ends = {
            (node.running.consensus.last_applied, len(node.machine.history)) for node in world.nodes.values()
        }
        if len(ends) != 1:
            raise self.broken(f"the nodes end at {sorted(ends)}")


def all_invariants() -> list[Invariant]:
    """A fresh set for one run."""
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
