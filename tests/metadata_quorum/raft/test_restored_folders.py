"""Nodes whose folders were restored from older copies: the nodes that vote, and how no entry is lost."""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.metadata_quorum.raft.node import RaftNode

from .raft_support import Journalist, Quorum, quorum, until


async def progressed(nodes: Quorum, copies: Path) -> tuple[int, int]:
    """Copy all folders, then apply ten more commands on all nodes.

    Return the leader at that time, and its number of commands.
    """
    await nodes.start()
    await nodes.propose(b"copied")
    for node_id in list(nodes.nodes):
        await nodes.stop(node_id)
    for node_id in nodes.ports:
        shutil.copytree(nodes.folder(node_id), copies / str(node_id))
    await nodes.start()
    for number in range(10):
        await nodes.propose(b"%d" % number)
    await until(lambda: len({len(machine.commands) for machine in nodes.machines.values()}) == 1)
    leader = await nodes.leader()
    for node_id in sorted(nodes.nodes, key=lambda node_id: node_id == leader):
        await nodes.stop(node_id)
    return leader, len(nodes.machines[leader].commands)


def put_back(nodes: Quorum, copies: Path, *node_ids: int) -> None:
    for node_id in node_ids:
        shutil.rmtree(nodes.folder(node_id))
        shutil.copytree(copies / str(node_id), nodes.folder(node_id))


async def start_restored(nodes: Quorum, node_id: int) -> None:
    nodes.machines[node_id] = Journalist()
    config = replace(nodes.config(node_id), restored=True)
    nodes.nodes[node_id] = RaftNode(config, nodes.machines[node_id], on_role=lambda change: None)
    await nodes.nodes[node_id].start()


async def test_a_restored_node_is_told_and_catches_up_before_it_votes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with quorum(tmp_path, 3) as nodes:
        led, _ = await progressed(nodes, tmp_path / "copies")
        restored, other = [node_id for node_id in nodes.ports if node_id != led]
        put_back(nodes, tmp_path / "copies", restored)
        await nodes.start(restored, led)
        await until(lambda: nodes.nodes[restored].catching_up)
        await until(lambda: nodes.nodes[led].abstaining == {restored})
        assert f"is older than what this node has acknowledged to node {led}" in caplog.text
        await asyncio.sleep(1.5)  # Several election timeouts and the pause after the start: no node may win.
        assert not any(node.is_leader for node in nodes.nodes.values())
        # The state is remembered, from any later source.
        await nodes.stop(restored)
        await nodes.start(restored)
        assert nodes.nodes[restored].catching_up

        await nodes.start(other)
        await until(lambda: not nodes.nodes[restored].catching_up)
        await until(lambda: nodes.nodes[led].abstaining == frozenset())
        assert nodes.machines[restored].commands[-1] == b"9"
        await nodes.stop(await nodes.leader())
        await nodes.propose(b"with its vote, if it is left")


async def test_a_restored_majority_waits_and_the_newer_folder_leads_when_an_operator_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with quorum(tmp_path, 3) as nodes:
        newer, length = await progressed(nodes, tmp_path / "copies")
        node_id, other = [node_id for node_id in nodes.ports if node_id != newer]
        put_back(nodes, tmp_path / "copies", node_id, other)
        await nodes.start()
        await until(lambda: nodes.nodes[node_id].catching_up and nodes.nodes[other].catching_up)
        await asyncio.sleep(1.0)
        assert not any(node.is_leader for node in nodes.nodes.values())

        await nodes.stop(node_id)
        await nodes.stop(other)
        await start_restored(nodes, node_id)
        assert await nodes.leader() == newer
        assert "It votes all the same" in caplog.text
        await nodes.start(other)
        await until(lambda: all(len(m.commands) == length for m in nodes.machines.values()))
        await until(lambda: not nodes.nodes[other].catching_up)
        await nodes.propose(b"on it goes")


async def test_a_quorum_of_copies_goes_on_when_an_operator_says_so(tmp_path: Path) -> None:
    """The copies were made one after the other: each remembers higher acknowledgements of the
    others than these have.
    """
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        copies = tmp_path / "copies"
        for node_id in (1, 2, 3):
            await nodes.propose(b"before the copy of %d" % node_id)
            await nodes.stop(node_id)
            shutil.copytree(nodes.folder(node_id), copies / str(node_id))
            await nodes.start(node_id)
            await until(lambda: len({len(machine.commands) for machine in nodes.machines.values()}) == 1)
        for node_id in (1, 2, 3):
            await nodes.stop(node_id)
        put_back(nodes, copies, 1, 2, 3)
        for node_id in (1, 2, 3):
            await start_restored(nodes, node_id)
        await nodes.propose(b"after")
        await until(lambda: all(machine.commands[-1:] == [b"after"] for machine in nodes.machines.values()))
        for node_id in (1, 2, 3):
            await nodes.stop(node_id)
        await nodes.start()
        await nodes.propose(b"without a flag")
        assert not any(node.catching_up for node in nodes.nodes.values())


async def test_a_rolling_restart_accuses_nobody(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as nodes:
        await nodes.start()
        for round_ in range(2):
            for node_id in (1, 2, 3):
                await nodes.propose(b"%d of %d" % (node_id, round_))
                await nodes.stop(node_id)
                await nodes.propose(b"%d is away" % node_id)
                await nodes.start(node_id)
                await until(lambda: len({len(machine.commands) for machine in nodes.machines.values()}) == 1)
                assert not any(node.catching_up for node in nodes.nodes.values())
