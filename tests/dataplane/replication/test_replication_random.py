"""Random histories over three replicas: elections, crashes, lost fetches and answers, late metadata, lost
outcomes of ISR changes. After each step: committed records agree. At the end, healed: nothing acknowledged is
lost, and the logs are byte-identical. A failing seed is printed and reproduces."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.dataplane.replication.leader import Refusal
from ottla.protocol.errors import ErrorCode

from .harness import LAG_MS, Cluster, Node, Produced

STEPS = 250
SEEDS = range(40)


class History:
    """One run: what was sent, and what the quorum did."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = Cluster(directory, min_in_sync=self.chance.choice([1, 2]))
        self.sent: list[tuple[bytes, Produced]] = []
        self.napping: list[Node] = []
        self.cluster.elect(1)

    def step(self) -> None:
        nodes = list(self.cluster.nodes.values())
        leaders = [node for node in nodes if node.partition.leader is not None]
        followers = [node for node in nodes if node.following is not None and node not in self.napping]
        action, actors = self.chance.choices(
            [
                (self.produce, leaders),
                (self.fetch, followers),
                (self.hear, nodes),
                (self.alter_isr, leaders),
                (self.wait, leaders),
                (self.elect, nodes),
                (self.crash, nodes),
                (self.nap, nodes),
            ],
            [20, 60, 12, 14, 6, 3, 1, 5],
        )[0]
        if actors:
            action(self.chance.choice(actors))
            self.check()

    def produce(self, node: Node) -> None:
        leader = node.partition.leader
        if leader is not None and not leader.under_min_in_sync:
            value = b"%d" % len(self.sent)
            self.sent.append((value, node.produce(value)))

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
        """A follower stops fetching, or goes on."""
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
        """kill -9: the broker leaves the ISR unless it is the last member, and comes back at once."""
        cluster = self.cluster
        isr = cluster.state.isr - {node.broker_id} or cluster.state.isr
        node.checkpointed_watermark = self.chance.randint(0, node.partition.high_watermark)
        node.crash()
        node.proposals.clear()
        if cluster.state.leader == node.broker_id or node.broker_id in isr:
            cluster.elect(self.chance.choice(sorted(isr)), isr=isr, tell=())
        else:
            cluster.state = replace(cluster.state, isr=isr, partition_epoch=cluster.state.partition_epoch + 1)
        node.hear()

    def check(self) -> None:
        """Whatever two replicas know to be committed is the same on both."""
        nodes = list(self.cluster.nodes.values())
        logs = {node.broker_id: node.records() for node in nodes}
        for node in nodes:
            node.partition.check()
            for other in nodes:
                common = min(node.partition.high_watermark, other.partition.high_watermark)
                assert logs[node.broker_id][:common] == logs[other.broker_id][:common]

    def heal(self) -> None:
        cluster = self.cluster
        cluster.elect(self.chance.choice(sorted(cluster.state.isr)))
        for _ in range(40):
            self.heal_a_little()
        self.check_all_is_there()

    def heal_a_little(self) -> None:
        """Everybody hears the news, and follows it in one undisturbed fetch."""
        cluster = self.cluster
        leader = cluster.state.leader
        cluster.now_ms += 10
        for node in cluster.nodes.values():
            self.hear(node)
            for proposal in node.proposals:
                cluster.settle(node.broker_id, proposal, cluster.alter_partition(node.broker_id, proposal))
            node.proposals.clear()
            if node.broker_id != leader:
                session = node.following
                assert session is not None
                session.disconnected()
                for answer in cluster[leader].serve(node.ask()):
                    node.take(answer)

    def check_all_is_there(self) -> None:
        cluster = self.cluster
        leader = cluster.state.leader
        assert cluster.state.isr == {1, 2, 3}
        final = [record[61:] for record in cluster[leader].records()]
        for value, produced in self.sent:
            if produced.outcome is ErrorCode.NONE:
                assert final[produced.offset] == value, f"acknowledged {value!r} at {produced.offset} is lost"
        assert cluster[1].records() == cluster[2].records() == cluster[3].records()
        assert cluster[leader].partition.high_watermark == len(final)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_history(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    for _ in range(STEPS):
        history.step()
    history.heal()
