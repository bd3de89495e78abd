"""Operators with the cluster secret at a quorum node: their permitted commands, and the log lines."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from ottla.metadata_quorum.node import QuorumNode
from ottla.metadata_quorum.node_connection import dial
from ottla.metadata_quorum.operator_sessions import SESSIONS_MAX
from ottla.protocol.cluster.acls import AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.messages.acl_commands import AclEntry, AclFilterEntry, CreateAcls, DeleteAcls
from ottla.protocol.messages.broker_commands import AllocateProducerIds, RegisterBroker
from ottla.protocol.messages.cluster_commands import DeclareRestored
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.quorum_commands import Session, encode_command
from ottla.protocol.messages.quorum_session import CommandStatus, SubmitCommand, Subscribe
from ottla.protocol.messages.user_commands import AlterScramCredentials, ScramCredentialChange
from ottla.protocol.session.handshake import Identity, LinkSecurity, Role
from ottla.protocol.session.node_secrets import Secrets

from .test_node import until
from .test_server_sessions import RawBroker, with_node

ACL = AclEntry(
    resource_type=AclResourceType.TOPIC,
    resource_name="t",
    pattern_type=PatternType.LITERAL,
    principal="User:ann",
    host="*",
    operation=AclOperation.READ,
    permission=AclPermission.ALLOW,
)
PASSWORD = AlterScramCredentials(
    changes=[
        ScramCredentialChange(name="ann", mechanism=2, salt=b"s", sealed_keys=b"sealed", iterations=4096)
    ]
)


class RawOperator(RawBroker):
    """An operator with the cluster secret."""

    async def connect(self, node: QuorumNode, secret: bytes = b"") -> RawOperator:
        security = LinkSecurity(Secrets((secret,))) if secret else node.config.security
        self.link = await dial(
            "127.0.0.1",
            node.server.port,
            security=security,
            identity=Identity(-1, os.urandom(16), "c"),
            role=Role.ADMIN,
            choose_handler=lambda _: self,
        )
        return self


async def command(operator: RawOperator, asked: Command[Any]) -> int:
    return (await operator.ask(0, encode_command(None, asked))).status


def test_passwords_and_acls_are_changed_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario(node: QuorumNode) -> None:
        operator = await RawOperator().connect(node)
        assert await command(operator, PASSWORD) == CommandStatus.APPLIED
        assert ("ann", 2) in node.image().scram_credentials
        assert await command(operator, CreateAcls(acls=[ACL])) == CommandStatus.APPLIED
        assert len(node.image().acls) == 1
        everything = AclFilterEntry(resource_type=1, pattern_type=1, operation=1, permission=1)
        assert await command(operator, DeleteAcls(filters=[everything])) == CommandStatus.APPLIED
        assert not node.image().acls

    with_node(tmp_path, scenario)
    said = [record.getMessage() for record in caplog.records]
    assert any(
        line.startswith("an operator with the cluster secret has connected from 127.0.0.1:") for line in said
    )
    prefix = "an operator with the cluster secret "
    assert f"{prefix}sets the password of 'ann' for SCRAM-SHA-512" in said
    assert any(line.startswith(f"{prefix}creates the ACL ALLOW User:ann") for line in said)
    assert f"{prefix}removes all ACLs with any principal and resource" in said
    assert "sealed" not in " ".join(said)


@pytest.mark.parametrize(
    "encoded",
    [
        encode_command(None, RegisterBroker(broker_id=1, incarnation=bytes(16))),
        encode_command(None, AllocateProducerIds(broker_id=1, broker_epoch=1)),
        encode_command(None, DeclareRestored()),
        encode_command(Session(1, 1, 1, 0), PASSWORD),
        b"",
        b"\xff",
    ],
    ids=(
        "a registration",
        "ids of producers",
        "a restoration",
        "one of a broker",
        "nothing",
        "an unknown one",
    ),
)
def test_nothing_else_is_taken(tmp_path: Path, encoded: bytes) -> None:
    async def scenario(node: QuorumNode) -> None:
        operator = await RawOperator().connect(node)
        assert (await operator.ask(1, encoded)).status == CommandStatus.INVALID
        assert not node.image().brokers
        assert not node.image().scram_credentials

    with_node(tmp_path, scenario)


def test_an_operator_follows_nothing_and_waits_for_its_answer(tmp_path: Path) -> None:
    async def scenario(node: QuorumNode) -> None:
        follower = await RawOperator().connect(node)
        follower.send(Subscribe(metadata_offset=0))
        await until(lambda: follower.closed)
        hasty = await RawOperator().connect(node)
        for _ in range(2):
            hasty.send(SubmitCommand(sequence=0, command=encode_command(None, PASSWORD)))
        await until(lambda: hasty.closed)

    with_node(tmp_path, scenario)


def test_so_many_at_a_time(tmp_path: Path) -> None:
    async def scenario(node: QuorumNode) -> None:
        operators = [await RawOperator().connect(node) for _ in range(SESSIONS_MAX)]
        one_more = await RawOperator().connect(node)
        await until(lambda: one_more.closed)
        link = operators[0].link
        assert link is not None
        link.close("done")
        await link.closed

        async def taken() -> bool:
            again = await RawOperator().connect(node)
            again.send(SubmitCommand(sequence=0, command=b""))
            await until(lambda: again.received or again.closed)
            return bool(again.received)

        while not await taken():
            pass

    with_node(tmp_path, scenario)


def test_whoever_has_another_secret_is_a_stranger(tmp_path: Path) -> None:
    async def scenario(node: QuorumNode) -> None:
        with pytest.raises(OSError, match="closed the connection during the handshake"):
            await RawOperator().connect(node, b"another secret of 32 characters!")

    with_node(tmp_path, scenario)
