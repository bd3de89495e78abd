"""A whole quorum node: the conditions under which it refuses to start, and the formation of a cluster."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.metadata_quorum.config import DutySettings, QuorumNodeConfig
from ottla.metadata_quorum.node import QuorumNode
from ottla.metadata_quorum.raft.formation import WrongFolder
from ottla.metadata_quorum.server import AddressInUse
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.features import OURS
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.quorum_commands import encode_command
from ottla.protocol.messages.transaction_commands import AddToTransaction, ClientOrigin, InitTransactionalId
from ottla.protocol.session.handshake import LinkSecurity
from ottla.protocol.session.node_secrets import Secrets

FORMED = 1 + len(OURS)
"""Records of a newly formed cluster: its id, and the levels of features."""


def config(
    folder: Path, node_id: int = 101, cluster_id: str = "c", port: int | None = None
) -> QuorumNodeConfig:
    if port is None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    return QuorumNodeConfig(
        node_id=node_id,
        cluster_id=cluster_id,
        security=LinkSecurity(Secrets((b"s" * 32,))),
        voters={node_id: ("127.0.0.1", port)},
        directory=folder,
        listen_host="127.0.0.1",
        listen_port=port,
    )


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)


def test_the_first_leader_forms_the_cluster_and_a_restart_remembers_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        for _ in range(2):
            node = QuorumNode(config(tmp_path))
            await node.start()
            await until(lambda: node.is_leader and node.controller.image.cluster_id == "c")  # noqa: B023
            assert node.controller.image.offset == node.feed.end_offset == FORMED
            await node.stop()

    uvloop.run(scenario())


@pytest.mark.parametrize(("node_id", "cluster_id"), [(102, "c"), (101, "another")])
def test_the_folder_of_another_node_or_cluster_is_refused(
    tmp_path: Path, node_id: int, cluster_id: str
) -> None:
    async def scenario() -> None:
        node = QuorumNode(config(tmp_path))
        await node.start()
        await node.stop()
        with pytest.raises(WrongFolder):
            QuorumNode(config(tmp_path, node_id, cluster_id))

    uvloop.run(scenario())


def test_a_port_in_use_ends_the_start_and_leaves_nothing_running(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            node = QuorumNode(config(tmp_path, port=port))
            with pytest.raises(AddressInUse, match=f"another process holds TCP port {port}"):
                await node.start()
        await node.stop()
        await node.stop()
        node = QuorumNode(config(tmp_path, port=port))
        await node.start()
        await until(lambda: node.is_leader)
        await node.stop()

    uvloop.run(scenario())


def test_the_leader_ends_a_transaction_that_is_open_for_too_long_and_forgets_an_unused_id(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        node = QuorumNode(
            replace(
                config(tmp_path),
                broker_session_timeout_ms=200,
                duties=DutySettings(transactional_id_expiration_ms=1000, unused_ids_check_interval_s=0.05),
            )
        )
        await node.start()
        await until(lambda: node.is_leader)

        async def do(command: Command[Any]) -> None:
            await node.raft.propose(encode_command(None, command))

        def begins(name: str, now_ms: int) -> InitTransactionalId:
            return InitTransactionalId(
                transactional_id=name,
                timeout_ms=100,
                origin=ClientOrigin(broker_id=1, connection=1, now_ms=now_ms),
            )

        table = node.controller.image.transactions
        await do(begins("busy", 10_000))
        owner = table.by_id["busy"]
        await do(
            AddToTransaction(
                transactional_id="busy",
                producer_id=owner.producer_id,
                producer_epoch=owner.producer_epoch,
            )
        )
        assert owner.phase is Phase.ONGOING
        await do(begins("unused", 8_000))
        await until(lambda: owner.phase is Phase.COMPLETE_ABORT and "unused" not in table.by_id)
        assert (owner.producer_epoch, table.by_id["busy"]) == (1, owner)
        await node.stop()

    uvloop.run(scenario())
