"""Real nodes on loopback: formation, replacement, failover, large states and hostile connections."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pysyncobj.syncobj as library
import pytest

from ottla.metadata_quorum.node_connection import dial
from ottla.metadata_quorum.raft.disk import CorruptFile
from ottla.metadata_quorum.raft.effects import NotLeader
from ottla.metadata_quorum.raft.formation import WrongFolder
from ottla.metadata_quorum.raft.node import RaftNode
from ottla.metadata_quorum.raft.settings import Settings, Timing
from ottla.metadata_quorum.raft.transport import TransportTimes
from ottla.protocol.session.handshake import Identity, LinkSecurity, Role
from ottla.protocol.session.node_secrets import Secrets
from tests.metadata_quorum.raft.raft_support import SECRET, Journalist, Quorum, Turns, quorum, until


def same_everywhere(nodes: Quorum) -> bool:
    return len({machine.digest() for machine in nodes.machines.values()}) == 1


async def test_one_node_commits_alone_and_remembers(tmp_path: Path) -> None:
    async with quorum(tmp_path, 1) as nodes:
        await nodes.start()
        for number in range(20):
            assert await nodes.propose(b"%d" % number) == number + 1
        await nodes.nodes[1].barrier()
        times = nodes.nodes[1].commit_times
        assert sum(times.counts) == 21
        assert times.total > 0
        await nodes.stop(1)
        await nodes.start(1)
        await nodes.leader()
        assert nodes.machines[1].commands == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("ahead_s", [-5.0, 5.0])
async def test_a_leader_stays_whatever_the_librarys_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """The library counts CLOCK_MONOTONIC_RAW, which no other clock keeps up with for hours."""
    monkeypatch.setattr(library, "monotonicTime", lambda: time.monotonic() + ahead_s)
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        leader = nodes.nodes[await nodes.leader()]
        term = leader.term
        for number in range(10):
            await leader.propose(b"%d" % number)
            await asyncio.sleep(2 * Timing().heartbeat)
        assert leader.is_leader
        assert leader.term == term


async def test_two_nodes_do_not_share_a_folder(tmp_path: Path) -> None:
    async with quorum(tmp_path, 1) as nodes:
        await nodes.start()
        await nodes.leader()
        second = RaftNode(nodes.config(1), Journalist(), on_role=lambda change: None)
        with pytest.raises(WrongFolder, match="another process uses the folder"):
            await second.start()
        await second.stop()
        assert await nodes.propose(b"x") == 1


async def test_commands_of_one_turn_share_an_entry_and_keep_their_order(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        leader = nodes.nodes[await nodes.leader()]
        before = leader.applied_index
        results = await asyncio.gather(*(leader.propose(b"%d" % number) for number in range(100)))
        assert results == list(range(1, 101))
        assert leader.applied_index == before + 1
        await until(lambda: same_everywhere(nodes))


async def test_a_follower_refuses_and_names_the_leader(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        leader = await nodes.leader()
        follower = nodes.nodes[1 + leader % 3]
        await until(lambda: follower.leader_id == leader)
        with pytest.raises(NotLeader) as refusal:
            await follower.propose(b"x")
        assert refusal.value.leader_id == leader
        with pytest.raises(NotLeader):
            await follower.barrier()


async def test_failover_and_return(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        await nodes.propose(b"before")
        old = await nodes.leader()
        term = nodes.nodes[old].term
        await nodes.stop(old)
        await nodes.propose(b"after")
        await nodes.start(old)
        await until(lambda: same_everywhere(nodes))
        assert nodes.machines[old].commands[-1] == b"after"
        new = nodes.nodes[await nodes.leader()]
        assert new.term > term


async def test_nobody_votes_before_all_have_met(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start(1, 2)
        await asyncio.sleep(1.0)
        assert not any(node.formed or node.term for node in nodes.nodes.values())
        await nodes.start(3)
        await nodes.propose(b"formed")
        await until(lambda: all(node.formed for node in nodes.nodes.values()))


async def test_an_emptied_node_takes_part_only_when_replaced_explicitly(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        for number in range(10):
            await nodes.propose(b"%d" % number)
        lost = 1 + await nodes.leader() % 3
        await nodes.stop(lost)
        shutil.rmtree(nodes.folder(lost))
        await nodes.start(lost)
        await nodes.propose(b"without it")
        await asyncio.sleep(0.5)
        assert not nodes.nodes[lost].formed
        assert nodes.machines[lost].commands == []
        await nodes.stop(lost)
        await nodes.start(lost, replace_empty=True)
        await until(lambda: same_everywhere(nodes))
        core = nodes.nodes[lost]._core
        assert core is not None
        await until(lambda: not core.formation.catching_up)
        await nodes.stop(await nodes.leader())
        await nodes.propose(b"with its vote")


async def test_a_folder_belongs_to_one_node_of_one_cluster(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        config = nodes.config(1)
        RaftNode(config, Journalist(), on_role=lambda change: None)
        with pytest.raises(WrongFolder, match="node 1 of cluster 'test', not to node 2"):
            RaftNode(replace(config, node_id=2), Journalist(), on_role=lambda change: None)
        with pytest.raises(WrongFolder):
            RaftNode(replace(config, cluster_id="other"), Journalist(), on_role=lambda change: None)


async def test_a_quorum_does_not_become_another_one(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        await nodes.leader()
        await nodes.propose(b"x")
        await until(lambda: same_everywhere(nodes))
        for node_id in (1, 2, 3):
            await nodes.stop(node_id)
        config = nodes.config(1)
        alone = {1: config.peers[1]}
        more = {**config.peers, 4: config.peers[1], 5: config.peers[2]}
        for peers, named in ((alone, "1"), (more, "1, 2, 3, 4, 5")):
            with pytest.raises(
                WrongFolder, match=f"formed by the nodes 1, 2, 3, and .* has {named}: the set"
            ):
                RaftNode(replace(config, peers=peers), Journalist(), on_role=lambda change: None)
        await nodes.start()
        await nodes.propose(b"y")


async def test_a_folder_without_its_formation_is_refused(tmp_path: Path) -> None:
    async with quorum(tmp_path, 1) as nodes:
        await nodes.start()
        await nodes.leader()
        await nodes.stop(1)
        (nodes.folder(1) / "formation").unlink()
        with pytest.raises(CorruptFile, match="formation is missing"):
            await nodes.start(1)


async def test_a_command_over_the_limit_is_refused_at_once(tmp_path: Path) -> None:
    async with Quorum(tmp_path, 1, Settings(command_bytes_max=1000)) as nodes:
        await nodes.start()
        leader = nodes.nodes[await nodes.leader()]
        with pytest.raises(ValueError, match="1001 bytes, at most 1000"):
            leader.propose(b"x" * 1001)


async def test_commands_of_megabytes(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        for size in (1 << 20, (1 << 20) + 1, 3 << 20):
            await nodes.propose(bytes(size))
        await until(lambda: same_everywhere(nodes))


async def test_a_second_connection_replaces_a_half_open_one(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        await nodes.propose(b"one")
        leader = await nodes.leader()
        links = nodes.nodes[leader]._links._links
        peer = max(peer for peer in nodes.nodes if peer != leader)
        old = links[peer]

        class Quiet:
            def payload_received(self, link: object, payload: bytes) -> None: ...
            def link_writable(self, link: object) -> None: ...
            def link_closed(self, link: object, reason: str) -> None: ...

        identity = nodes.nodes[peer].identity
        link = await dial(
            "127.0.0.1",
            nodes.ports[leader],
            security=LinkSecurity(Secrets((SECRET,))),
            identity=identity,
            role=Role.RAFT,
            choose_handler=lambda _: Quiet(),
        )
        await asyncio.wait_for(asyncio.shield(old.closed), 60)
        link.close("it was only a test", abort=True)
        await nodes.propose(b"two")
        await until(lambda: same_everywhere(nodes))


async def test_hole_16_idle_links_stay_and_silent_ones_end(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        nodes.times = TransportTimes(ping_ms=30, silence_ms=300)
        await nodes.start()
        leader = await nodes.leader()
        node, other = (node for node in nodes.nodes if node != leader)
        idle = nodes.nodes[node]._links._links[other]
        silent = nodes.nodes[leader]._links._links[node]
        await asyncio.sleep(0.8)
        assert nodes.nodes[node]._links._links[other] is idle
        silent.transport.pause_reading()
        await asyncio.wait_for(asyncio.shield(silent.closed), 60)
        await nodes.propose(b"connected again")
        await until(lambda: same_everywhere(nodes))


async def test_hole_16_a_node_that_comes_late_is_dialled_again_soon(tmp_path: Path) -> None:
    async with quorum(tmp_path, 2) as nodes:
        await nodes.start(2)
        dialling = nodes.nodes[2]._links
        await asyncio.sleep(2 * TransportTimes().reconnect_ms / 1000)
        assert not dialling._links, "it was dialled in vain"
        await nodes.start(1)
        await until(lambda: 1 in dialling._links, 4)


async def test_a_node_that_is_not_configured_is_not_heard(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        leader = await nodes.leader()
        closed = asyncio.Event()

        class Watching:
            def payload_received(self, link: object, payload: bytes) -> None:
                raise AssertionError("it gets no answer")

            def link_writable(self, link: object) -> None: ...

            def link_closed(self, link: object, reason: str) -> None:
                closed.set()

        await dial(
            "127.0.0.1",
            nodes.ports[leader],
            security=LinkSecurity(Secrets((SECRET,))),
            identity=Identity(9, b"9" * 16, "test"),
            role=Role.RAFT,
            choose_handler=lambda _: Watching(),
        )
        await asyncio.wait_for(closed.wait(), 60)


async def test_fifty_megabytes_reach_a_lagging_node_without_holding_anyone_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots are made by a child, sent in bounded pieces and restored off the loop."""
    settings = Settings()
    turns = Turns(monkeypatch)
    async with Quorum(tmp_path, 3, settings) as nodes:
        await nodes.start()
        await nodes.propose(b"first")
        lagging = 1 + await nodes.leader() % 3
        await nodes.stop(lagging)
        payload = bytes(250 << 10)
        count = 201
        for number in range(1, count):
            await nodes.propose(b"%d" % number + payload)
        leader_id = await nodes.leader()
        core = nodes.nodes[leader_id]._core
        assert core is not None
        await until(lambda: core.journal.base_index > 100, 60)
        term = nodes.nodes[leader_id].term
        turns.most_bytes = 0
        await nodes.start(lagging)
        await until(lambda: len(nodes.machines[lagging].commands) == count, 60)
        await until(lambda: same_everywhere(nodes))  # the third may be a moment behind
        assert nodes.nodes[leader_id].term == term, "no node lost patience with the leader"
        per_peer = max(
            settings.window_bytes + settings.message_bytes, settings.chunks_per_turn * settings.chunk_bytes
        )
        assert 0 < turns.most_bytes <= 2 * per_peer < 50 << 20, "a piece at a time"
        assert turns.threads_copying, "the state was restored"
        assert threading.get_ident() not in turns.threads_copying, "the loop copies no state"


async def test_a_folder_stays_locked_until_a_cancelled_start_is_done_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    sync, loop_thread = os.fdatasync, threading.current_thread()

    def slow(fd: int) -> None:
        if threading.current_thread() is not loop_thread:
            begun.set()
            assert go_on.wait(30)
        sync(fd)

    async with quorum(tmp_path, 1) as nodes:
        first = RaftNode(nodes.config(1), Journalist(), on_role=lambda change: None)
        monkeypatch.setattr(os, "fdatasync", slow)
        starting = asyncio.create_task(first.start())
        assert await asyncio.to_thread(begun.wait, 30)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        stopping = asyncio.create_task(first.stop())
        second = RaftNode(nodes.config(1), Journalist(), on_role=lambda change: None)
        with pytest.raises(WrongFolder, match="another process uses the folder"):
            await second.start()
        assert not stopping.done()
        go_on.set()
        await stopping
        await second.start()
        await second.stop()
