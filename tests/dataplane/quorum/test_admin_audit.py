"""Changes of rights, users and settings: the quorum checks their author's rights in its own state, and logs them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import USER, Principal
from ottla.metadata_quorum.admin_audit import AdminAudit
from ottla.protocol.cluster.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.protocol.cluster.authorizer_settings import AuthorizerSettings
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.acl_commands import AclEntry, AclFilterEntry, CreateAcls, DeleteAcls
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.config_commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
)
from ottla.protocol.messages.failback_commands import FailBackMirror, ReturningPartition, ReturningTopic
from ottla.protocol.messages.mirror_commands import (
    AcceptMirrorFaults,
    AlterMirror,
    CreateMirror,
    DeleteMirror,
    FollowTopics,
    MirroredTopic,
    MirrorPartitionReport,
    ReconnectMirror,
    ReportMirrorPartitions,
)
from ottla.protocol.messages.mirror_records import MirrorOffsetsToldRecord, MirrorOption
from ottla.protocol.messages.quorum_session import SubmitCommand
from ottla.protocol.messages.token_commands import CreateDelegationToken
from ottla.protocol.messages.user_commands import AlterScramCredentials, ScramCredentialChange
from ottla.protocol.wire.codec import decode, encode

from .cluster import QuorumAndSessions

HOST = "192.0.2.7"
SETTINGS = AuthorizerSettings(frozenset({"User:root"}))


CONFIGURED = AlterConfigs(
    resources=[
        ConfigResource(
            resource_type=ResourceType.BROKER,
            changes=[
                ConfigChange(name=name, operation=ConfigOperation.SET, value="424242")
                for name in ("max.connections", "max.connections.per.ip")
            ],
        )
    ]
)


def named(user: str, host: str = HOST) -> PeerSession:
    return PeerSession(Principal(USER, user), host, "CLIENTS")


def right(principal: str, operation: AclOperation = AclOperation.ALTER) -> Acl:
    return Acl(
        AclResourceType.CLUSTER,
        CLUSTER_NAME,
        PatternType.LITERAL,
        principal,
        "*",
        operation,
        AclPermission.ALLOW,
    )


def creating(*acls: Acl) -> CreateAcls:
    return CreateAcls(acls=[AclEntry(**acl._asdict()) for acl in acls])


def removing(principal: str) -> DeleteAcls:
    return DeleteAcls(
        filters=[
            AclFilterEntry(resource_type=1, pattern_type=1, principal=principal, operation=1, permission=1)
        ]
    )


def password_of(user: str) -> AlterScramCredentials:
    change = ScramCredentialChange(
        name=user, mechanism=1, salt=b"salt", sealed_keys=b"sealed keys", iterations=4096
    )
    return AlterScramCredentials(changes=[change])


def token_of(owner: str, requester: str) -> CreateDelegationToken:
    return CreateDelegationToken(
        token_id=f"token of {owner} for {requester}",
        owner=f"User:{owner}",
        requester=f"User:{requester}",
        issued_at_ms=1,
        expires_at_ms=2,
        ends_at_ms=3,
        key_id=b"key",
    )


def may_make_tokens_of(owner: str, principal: str) -> Acl:
    return Acl(
        AclResourceType.USER,
        f"User:{owner}",
        PatternType.LITERAL,
        principal,
        "*",
        AclOperation.CREATE_TOKENS,
        AclPermission.ALLOW,
    )


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario

    uvloop.run(bounded())


@pytest.mark.parametrize("command", [creating(right("User:ann")), removing("User:bob"), password_of("ann")])
def test_what_a_broker_lets_pass_and_the_quorum_denies_changes_nothing(
    command: Command[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, authorizer=SETTINGS) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            await session.submit(creating(right("User:bob")), author=named("root"))
            for author in (named("ann"), None):
                with pytest.raises(KafkaError) as raised:
                    await session.submit(command, author=author)
                assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert set(session.image.acls) == {right("User:bob")}
            assert not session.image.scram_credentials
            await session.submit(command, author=named("bob"))
            assert set(session.image.acls) != {right("User:bob")} or session.image.scram_credentials

    run(scenario())
    name = type(command).__name__
    assert (
        f"{name} is denied to Principal = User:ann from host = {HOST}, whom broker 1 lets do it"
        in caplog.text
    )


def test_a_token_of_another_owner_takes_a_right_that_the_quorum_knows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    denied = [
        (token_of("eve", "bob"), named("bob")),  # a right on tokens of another user
        (token_of("ann", "carl"), named("carl")),  # a right of neither user
        (token_of("ann", "bob"), named("carl")),  # in another's name
        (token_of("carl", "carl"), named("bob")),
        (token_of("ann", "bob"), None),  # of a broker that does not say who asked
    ]

    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, authorizer=SETTINGS) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            await session.submit(creating(may_make_tokens_of("ann", "User:bob")), author=named("root"))
            for command, author in denied:
                with pytest.raises(KafkaError) as raised:
                    await session.submit(command, author=author)
                assert raised.value.code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            assert not session.image.delegation_tokens
            for command, author in (
                (token_of("ann", "bob"), named("bob")),
                (token_of("carl", "carl"), named("carl")),
                (token_of("eve", "root"), named("root")),
            ):
                await session.submit(command, author=author)
                assert command.token_id in session.image.delegation_tokens

    run(scenario())
    assert "CreateDelegationToken is denied to Principal = User:carl" in caplog.text


def test_a_broker_of_before_that_does_not_tell_who_asked_is_denied_what_is_nobodys_right(
    tmp_path: Path,
) -> None:
    """docs/COMPATIBILITY.md describes this for brokers without the tagged author, during an upgrade."""

    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, authorizer=SETTINGS) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            for command, code in (
                (creating(right("User:bob")), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
                (removing("User:bob"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
                (password_of("ann"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
                (token_of("bob", "bob"), ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
            ):
                with pytest.raises(KafkaError) as raised:
                    await session.submit(command)
                assert raised.value.code == code
            # All its other commands are accepted.
            await session.submit(CONFIGURED)
            assert session.image.configs
            await session.submit(creating(right("User:*")), author=named("root"))
            await session.submit(password_of("ann"))
            assert session.image.scram_credentials

    run(scenario())


def test_a_submission_without_an_author_is_what_brokers_of_before_have_sent() -> None:
    before = encode(SubmitCommand(sequence=7, acknowledged_sequence=6, command=b"command"), 0)
    assert before.endswith(b"command\0")  # no tagged field
    assert decode(SubmitCommand, before, 0).principal == ""


def test_brokers_encrypt_anew_for_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, authorizer=SETTINGS) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            await session.submit(password_of("ann"), author=named("root"))
            anew = password_of("ann")
            (change,) = anew.changes
            change.replaces, change.sealed_keys = change.sealed_keys, b"sealed anew"
            await session.submit(anew)
            assert session.image.scram_credentials["ann", 1].sealed_keys == b"sealed anew"

    run(scenario())


def test_a_right_that_was_taken_is_gone_though_the_broker_has_not_heard_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, authorizer=SETTINGS) as cluster:
            first, second = await cluster.broker(1), await cluster.broker(2)
            await first.unfenced()
            await second.unfenced()
            await first.submit(creating(right("User:bob")), author=named("root"))
            await first.submit(removing("User:bob"), author=named("root"))
            with pytest.raises(KafkaError, match="The metadata quorum denies this change"):
                await second.submit(password_of("eve"), author=named("bob"))

    run(scenario())


def test_without_an_authorizer_everybody_may(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            await session.submit(creating(right("User:ann")))
            assert right("User:ann") in session.image.acls

    run(scenario())


def test_the_log_of_the_leader_says_who_changed_what(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, authorizer=SETTINGS) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            for command in (
                creating(right("User:bob")),
                password_of("eve"),
                CONFIGURED,
                removing("User:bob"),
            ):
                await session.submit(command, author=named("root"))

    with caplog.at_level(logging.INFO, "ottla.metadata_quorum.admin_audit"):
        run(scenario())
    lines = [record.getMessage() for record in caplog.records if "admin_audit" in record.name]
    who = f"Principal = User:root from host = {HOST}, by way of broker 1: "
    acl = "ALLOW User:bob from * ALTER on Cluster:LITERAL:kafka-cluster"
    assert lines == [
        f"{who}created the ACL {acl}",
        f"{who}set the SCRAM-SHA-256 credential of eve",
        f"{who}set max.connections, max.connections.per.ip of broker (default)",
        f"{who}removed the ACL {acl}",
    ]


def test_the_log_of_the_leader_says_who_gave_committed_offsets_up(caplog: pytest.LogCaptureFixture) -> None:
    audit = AdminAudit(None, ClusterImage)
    given_up = MirrorOffsetsToldRecord(mirror="m", partition=3, is_last=True, is_given_up=True)
    submitted = SubmitCommand(principal="User:root", host=HOST)
    with caplog.at_level(logging.INFO, "ottla.metadata_quorum.admin_audit"):
        audit.applied(1, submitted, AcceptMirrorFaults(mirror="m"), [(None, given_up)])
    assert caplog.messages == [
        f"Principal = User:root from host = {HOST}, by way of broker 1: accepted a fault of the mirror m: partition 3 "
        "of its copy of committed offsets is lost"
    ]


def test_the_log_of_the_leader_says_who_let_a_copy_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = b"t" * 16
    report = MirrorPartitionReport(topic_id=topic_id, fault=1, fault_first=5, fault_end=9)
    commands: list[Command[Any]] = [
        CreateMirror(
            name="m",
            source_cluster_id="there",
            bootstrap_servers="there:9092",
            topics="o.*",
            groups="g",
            options=[MirrorOption(name="sasl_plain_password", value="424242")],
        ),
        FollowTopics(
            mirror="m",
            topics=[MirroredTopic(name="o", source_topic_id=topic_id, partitions=1, replication_factor=1)],
        ),
        AlterMirror(name="m", phase=1),
        ReportMirrorPartitions(broker_id=1, partitions=[report]),
        AcceptMirrorFaults(mirror="m"),
        AcceptMirrorFaults(mirror="m"),
        ReconnectMirror(name="m", bootstrap_servers="elsewhere:9092"),
        ReconnectMirror(name="m", options=[MirrorOption(name="x", value="sealed anew")], replaces=[]),
        AlterMirror(name="m", phase=2),
        AlterMirror(name="m", phase=1),
        AlterMirror(name="m", phase=3),
        DeleteMirror(name="m"),
        FailBackMirror(
            name="back",
            source_cluster_id="there",
            bootstrap_servers="there:9092",
            topics=".*",
            copies=[
                ReturningTopic(
                    topic_id=topic_id, partitions=[ReturningPartition(leader_epoch=2, common_offset=5)]
                )
            ],
            discards=True,
        ),
    ]

    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, authorizer=SETTINGS) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            for command in commands:
                await session.submit(command, author=named("root"))

    with caplog.at_level(logging.INFO, "ottla.metadata_quorum.admin_audit"):
        run(scenario())
    who = f"Principal = User:root from host = {HOST}, by way of broker 1: "
    lines = [record.getMessage() for record in caplog.records if "admin_audit" in record.name]
    assert lines == [
        f"{who}{what}"
        for what in (
            "created the mirror m of there:9092 (cluster there), topics o.* and groups g",
            "accepted a fault of the mirror m: o-0 goes on at 9",
            "reconnected the mirror m: its source is reached at elsewhere:9092 with other options",
            "paused the mirror m",
            "resumed the mirror m",
            "promoted the mirror m",
            "deleted the mirror m",
            "failed back to there:9092 (cluster there) by the mirror back: o are copies from now on, and what the "
            "source does not have is discarded",
        )
    ]
