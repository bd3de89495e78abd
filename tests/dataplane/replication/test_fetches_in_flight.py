"""Random histories with fetches and answers in flight while roles change.

One fetch session for each pair of brokers lives across leader epochs. Requests are pipelined, parked, answered late,
lost with their connection, or come long after the follower has given that up. The promises are those of
`test_replication_random`, with and without flushes before acknowledging.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from ottla.dataplane.replication.fetch_values import FollowerFetch, SessionAnswer
from ottla.dataplane.replication.follower.fetching import FetchLimits, LeaderSession

from .harness import KEY, Node, ReplicasByHand, over_the_wire
from .test_replication_random import SEGMENT_BYTES, History

STEPS = 400
SEEDS = range(25)
CONNECTIONS = itertools.count(1)
"""Rising numbers of connections."""


@dataclass
class Link:
    """A follower's connection to one leader: its unserved requests and unread answers.

    It also keeps late requests of earlier connections.
    """

    session: LeaderSession
    requests: deque[FollowerFetch] = field(default_factory=deque)
    answers: deque[SessionAnswer] = field(default_factory=deque)
    connection: int = field(default_factory=partial(next, CONNECTIONS))
    late: deque[tuple[int, FollowerFetch]] = field(default_factory=deque)

    def disconnect(self) -> None:
        self.late.extend((self.connection, request) for request in self.requests)
        self.connection = next(CONNECTIONS)
        self.requests.clear()
        self.answers = deque()  # A late answer goes to the old object, which is never read.
        self.session.disconnected()


class InFlight(History):
    def __init__(self, directory: Path, seed: int) -> None:
        self.links: dict[tuple[int, int], Link] = {}
        self.chance = random.Random(seed)
        durable = self.chance.random() < 0.3
        self.cluster = ReplicasByHand(
            directory,
            min_in_sync=self.chance.choice([1, 2]),
            durable=durable,
            segment_bytes=SEGMENT_BYTES,
        )
        self.sent = []
        self.napping = []
        self.trimmed_to = 0
        self.starts = {}
        self.cluster.elect(1, tell=())
        for node in self.cluster.nodes.values():
            self.hear(node)

    def link(self, node: Node, leader: int) -> Link:
        key = (node.broker_id, leader)
        if key not in self.links:
            session = LeaderSession(
                node.broker_id, FetchLimits(), lambda key, _: node.retries.append(key), node._failed
            )
            self.links[key] = Link(session)
        return self.links[key]

    def hear(self, node: Node) -> None:
        state = self.cluster.state
        if node.partition.partition_epoch >= state.partition_epoch:
            return
        node.brokers.update(self.cluster.brokers)
        mine = {leader: link for (follower, leader), link in self.links.items() if follower == node.broker_id}
        if state.leader == node.broker_id:
            for link in mine.values():
                link.session.forget(KEY)
            node.following = None
            node.partition.become_leader(state)
        elif node.partition.become_follower(state):
            for leader, link in mine.items():
                if leader != state.leader:
                    link.session.forget(KEY)
            node.following = self.link(node, state.leader).session
            node.following.follow(node.partition)
        node.partition.check()
        node.scheduler.turn()

    def fetch(self, node: Node) -> None:
        """Do one step on one of the node's links."""
        choices = [
            (leader, link) for (follower, leader), link in self.links.items() if follower == node.broker_id
        ]
        if not choices:
            return
        leader, link = self.chance.choice(choices)
        happens = [self.send, self.serve, self.serve_late, self.receive, self.lose, self.time]
        self.chance.choices(happens, [8, 8, 1, 8, 0.4, 3])[0](node, leader, link)
        if self.chance.random() < 0.5:
            self.flush()

    def send(self, node: Node, _leader: int, link: Link) -> None:
        for key in node.retries:
            link.session.again(key)
        node.retries.clear()
        link.session.open_anew()
        ask = link.session.next_fetch(self.cluster.brokers[node.broker_id].broker_epoch)
        if ask is not None:
            link.requests.append(ask)

    def serve(self, _node: Node, leader: int, link: Link) -> None:
        if link.requests:
            answers = link.answers
            wait_s = self.chance.choice([0.0, 0.5])
            node = self.cluster[leader]
            node.sessions.fetch(
                link.requests.popleft(),
                wait_s,
                lambda answer: answers.append(over_the_wire(answer)),
                link.connection,
            )
            node.scheduler.turn()

    def serve_late(self, _node: Node, leader: int, link: Link) -> None:
        if link.late:
            connection, request = link.late.popleft()
            self.cluster[leader].serve(request, connection=connection)

    def receive(self, _node: Node, _leader: int, link: Link) -> None:
        if link.answers:
            link.session.answered(link.answers.popleft())

    def lose(self, _node: Node, _leader: int, link: Link) -> None:
        link.disconnect()

    def time(self, _node: Node, leader: int, _link: Link) -> None:
        self.cluster[leader].scheduler.fire_timers()
        self.cluster[leader].scheduler.turn()

    def flush(self) -> None:
        if not self.cluster.settings.durable_before_acknowledged:
            return
        for node in self.cluster.nodes.values():
            node.partition.flushed(node.log.flush())
            if node.following is not None:
                node.following.again(KEY)
            node.scheduler.turn()

    def crash(self, node: Node) -> None:
        for pair, link in list(self.links.items()):
            if node.broker_id == pair[0]:
                del self.links[pair]
            elif node.broker_id == pair[1]:
                link.disconnect()
                link.late.clear()
        node.retries.clear()
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

    def heal(self) -> None:
        for link in self.links.values():
            link.disconnect()
        self.cluster.elect(self.chance.choice(sorted(self.cluster.state.isr)), tell=())
        for node in self.cluster.nodes.values():
            self.hear(node)
        self.flush()
        for _ in range(60):
            self.flush()
            self.heal_a_little()
        self.check_all_is_there()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_history_with_fetches_in_flight(tmp_path: Path, seed: int) -> None:
    history = InFlight(tmp_path, seed)
    for _ in range(STEPS):
        history.step()
    history.heal()
