"""Random histories over three replicas: elections, crashes, lost fetches and answers, late metadata, lost outcomes of
ISR changes, deleted records and retention.

After each step committed records agree. At the end, after healing, no acknowledged record is lost, and the logs are
byte-identical. A failing seed is printed and reproduces.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.dataplane.replication.roles.leader import Refusal
from ottla.protocol.errors import ErrorCode
from tests.dataplane.log.batches import value_of

from .harness import LAG_MS, Node, Produced, ReplicasByHand

STEPS = 250
SEEDS = range(40)
SEGMENT_BYTES = 700


class History:
    """A run: its sent records, and the quorum's actions."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = self.make(directory)
        self.sent: list[tuple[bytes, Produced]] = []
        self.napping: list[Node] = []
        self.trimmed_to = 0
        self.starts: dict[int, int] = {}
        self.cluster.elect(1, tell=())
        for node in self.cluster.nodes.values():
            self.hear(node)

    def make(self, directory: Path) -> ReplicasByHand:
        return ReplicasByHand(directory, min_in_sync=self.chance.choice([1, 2]), segment_bytes=SEGMENT_BYTES)

    def step(self) -> None:
        nodes = list(self.cluster.nodes.values())
        leaders = [node for node in nodes if node.partition.leader is not None]
        followers = [node for node in nodes if node.following is not None and node not in self.napping]
        actions = self.actions(nodes, leaders, followers)
        action, actors, _ = self.chance.choices(actions, [weight for _, _, weight in actions])[0]
        if actors:
            action(self.chance.choice(actors))
            self.check()

    def actions(
        self, nodes: Sequence[Node], leaders: Sequence[Node], followers: Sequence[Node]
    ) -> list[tuple[Callable[[Node], None], Sequence[Node], float]]:
        """Return the possible actions, their nodes, and their weights."""
        return [
            (self.produce, leaders, 20),
            (self.fetch, followers, 60),
            (self.hear, nodes, 12),
            (self.alter_isr, leaders, 14),
            (self.wait, leaders, 6),
            (self.elect, nodes, 3),
            (self.crash, nodes, 1),
            (self.nap, nodes, 5),
            (self.delete_records, leaders, 1),
            (self.retain, nodes, 1),
        ]

    def produce(self, node: Node) -> None:
        leader = node.partition.leader
        if leader is not None and not leader.under_min_in_sync:
            value = b"%d" % len(self.sent)
            self.sent.append((value, node.produce(value, count=self.chance.choice([1, 1, 3]))))

    def delete_records(self, node: Node) -> None:
        """Delete up to any offset below the high watermark, even within a batch."""
        partition = node.partition
        offset = partition.record_deletion.trim(self.chance.randint(0, partition.high_watermark))
        self.trimmed_to = max(self.trimmed_to, offset)

        def done(outcome: ErrorCode) -> None:
            leader = partition.leader
            if outcome is ErrorCode.NONE and leader is not None:
                for replica in (node.broker_id, *leader.followers):
                    log, before = self.cluster[replica].log, self.starts.get(replica, 0)
                    assert max(log.log_start_offset, before) >= min(offset, log.log_end_offset)

        partition.record_deletion.on_low_watermark(offset, done)

    def retain(self, node: Node) -> None:
        """Apply retention, which each replica does on its own."""
        offset = self.chance.randint(node.log.log_start_offset, node.partition.high_watermark)
        node.log.advance_log_start_offset(offset)
        self.trimmed_to = max(self.trimmed_to, offset)

    def fetch(self, node: Node) -> None:
        session, follower = node.following, node.partition.follower
        if session is None or follower is None:
            return
        for key in node.retries:
            session.again(key)
        node.retries.clear()
        session.open_anew()
        ask = session.next_fetch(self.cluster.brokers[node.broker_id].broker_epoch)
        fate = self.chance.random()
        if ask is None or fate < 0.1:
            session.disconnected()
            return
        answers = self.cluster[follower.leader_id].serve(ask)
        if fate < 0.2:
            session.disconnected()
        else:
            for answer in answers:
                node.take(answer)

    def hear(self, node: Node) -> None:
        if node.partition.partition_epoch < self.cluster.state.partition_epoch:
            node.hear()

    def alter_isr(self, node: Node) -> None:
        leader = node.partition.leader
        if leader is not None:
            shrink = leader.propose_shrink(self.cluster.now_ms)
            if shrink is not None:
                node.proposals.append(shrink)
        if not node.proposals:
            return
        proposal = node.proposals.pop(0)
        outcome = self.cluster.alter_partition(node.broker_id, proposal)
        if self.chance.random() < 0.5:
            outcome = Refusal.UNKNOWN
        node.proposals += self.cluster.settle(node.broker_id, proposal, outcome)

    def nap(self, node: Node) -> None:
        """Stop a follower's fetches, or resume them."""
        if self.napping:
            self.napping.clear()
        else:
            self.napping.append(node)

    def wait(self, node: Node) -> None:
        self.cluster.now_ms += self.chance.choice([10, LAG_MS // 2, LAG_MS * 2])
        node.partition.advance()

    def elect(self, _: Node) -> None:
        self.cluster.elect(self.chance.choice(sorted(self.cluster.state.isr)), tell=())

    def crash(self, node: Node) -> None:
        """Kill by kill -9: the broker leaves the ISR unless it is the last member, and comes back at once."""
        cluster = self.cluster
        isr = cluster.state.isr - {node.broker_id} or cluster.state.isr
        self.checkpoint(node)
        node.crash()
        node.proposals.clear()
        if cluster.state.leader == node.broker_id or node.broker_id in isr:
            cluster.elect(self.chance.choice(sorted(isr)), isr=isr, tell=())
        else:
            cluster.state = replace(cluster.state, isr=isr, partition_epoch=cluster.state.partition_epoch + 1)
        self.hear(node)

    def checkpoint(self, node: Node) -> None:
        """Checkpoint now, so that a later crash restores an old checkpoint."""
        self.starts[node.broker_id] = max(self.starts.get(node.broker_id, 0), node.log.log_start_offset)
        node.checkpointed_watermark = self.chance.randint(0, node.partition.high_watermark)
        node.checkpointed_log_start = self.chance.randint(
            node.checkpointed_log_start, max(node.checkpointed_log_start, node.log.log_start_offset)
        )

    def check(self) -> None:
        """Check that records which two replicas know to be committed are equal."""
        nodes = list(self.cluster.nodes.values())
        logs = {node.broker_id: by_offset(node) for node in nodes}
        for node in nodes:
            node.partition.check()
            node.log.check()
            node.check_noted()
            for other in nodes:
                known = range(
                    max(node.log.log_start_offset, other.log.log_start_offset),
                    min(node.partition.high_watermark, other.partition.high_watermark),
                )
                mine, others = logs[node.broker_id], logs[other.broker_id]
                assert {o: mine[o] for o in mine if o in known} == {
                    o: others[o] for o in others if o in known
                }

    def heal(self) -> None:
        cluster = self.cluster
        cluster.elect(self.chance.choice(sorted(cluster.state.isr)), tell=())
        for node in cluster.nodes.values():
            self.hear(node)
        for _ in range(40):
            self.heal_a_little()
        self.check_all_is_there()

    def heal_a_little(self) -> None:
        """Deliver the news to all nodes, and let each fetch once undisturbed."""
        cluster = self.cluster
        leader = cluster.state.leader
        cluster.now_ms += 10
        for node in cluster.nodes.values():
            self.hear(node)
            for proposal in node.proposals:
                cluster.settle(node.broker_id, proposal, cluster.alter_partition(node.broker_id, proposal))
            node.proposals.clear()
            if node.broker_id != leader and node.broker_id in cluster.state.replicas:
                session = node.following
                assert session is not None
                session.disconnected()
                for answer in cluster[leader].serve(node.ask()):
                    node.take(answer)

    def check_all_is_there(self) -> None:
        cluster = self.cluster
        leader = cluster[cluster.state.leader]
        assert cluster.state.isr == set(cluster.state.replicas)
        start, final = leader.log.log_start_offset, by_offset(leader)
        assert start <= self.trimmed_to
        for value, produced in self.sent:
            if produced.outcome is ErrorCode.NONE and produced.offset >= start:
                assert value_of(final[produced.offset]) == value, f"{value!r} at {produced.offset} is lost"
        for replica in cluster.state.replicas:
            node = cluster[replica]
            assert node.log.log_start_offset >= start
            kept = by_offset(node)
            assert kept == {
                offset: final[offset] for offset in final if offset >= min(kept, default=offset + 1)
            }
            assert node.log.log_end_offset == leader.log.log_end_offset
        assert leader.partition.high_watermark == leader.log.log_end_offset


def by_offset(node: Node) -> dict[int, bytes]:
    return {struct.unpack_from(">q", record)[0]: record for record in node.records()}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_history(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    for _ in range(STEPS):
        history.step()
    history.heal()
