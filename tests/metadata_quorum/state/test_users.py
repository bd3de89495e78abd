"""SCRAM users in the controller: refused and stored changes, also across a snapshot."""

from __future__ import annotations

import pytest

from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.cluster_image import SealedCredential
from ottla.protocol.cluster.partition_change import record_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import SECURITY
from ottla.protocol.messages.cluster_commands import FormCluster, InitialFeature
from ottla.protocol.messages.quorum_commands import decode_result, encode_command
from ottla.protocol.messages.token_commands import CreateDelegationToken
from ottla.protocol.messages.user_commands import (
    AlterScramCredentials,
    AlterScramCredentialsResult,
    ScramCredentialChange,
)

SHA_256, SHA_512 = 1, 2
DELETED = b""


def change(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, salt: bytes = b"salt", keys: bytes = b"keys"
) -> ScramCredentialChange:
    return ScramCredentialChange(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, sealed_keys=keys
    )


def formed(level: int = 1) -> Controller:
    controller = Controller()
    features = [InitialFeature(feature=SECURITY, level=level)] if level else []
    controller.apply(1, 1, encode_command(None, FormCluster(cluster_id="c", features=features)))
    return controller


def alter(controller: Controller, *changes: ScramCredentialChange) -> list[int]:
    """Return the error code of each change."""
    command = AlterScramCredentials(changes=list(changes), removes_tokens=True)
    result = decode_result(command, controller.apply(1, 1, encode_command(None, command)).result)
    assert isinstance(result, AlterScramCredentialsResult)
    assert result.error_code == ErrorCode.NONE
    return [change.error_code for change in result.changes]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (change(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (change("ann", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (change("ann", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (change("ann", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (change("ann", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (change("ann", keys=DELETED), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_what_is_refused_changes_nothing_and_spoils_no_other(wrong: ScramCredentialChange, code: int) -> None:
    controller = formed()
    assert alter(controller, change("bob"), wrong, change("eve", SHA_512)) == [0, code, 0]
    assert sorted(controller.image.scram_credentials) == [("bob", SHA_256), ("eve", SHA_512)]


def test_mechanisms_of_one_user_are_apart() -> None:
    controller = formed()
    assert alter(controller, change("ann"), change("ann", SHA_512, 8192)) == [0, 0]
    assert alter(controller, change("ann", keys=DELETED)) == [0]
    assert controller.image.scram_credentials == {("ann", SHA_512): SealedCredential(b"salt", b"keys", 8192)}


def give_token(controller: Controller, token_id: str, owner: str, requester: str = "User:bob") -> None:
    command = CreateDelegationToken(
        token_id=token_id, owner=owner, requester=requester, renewers=["User:ann"], expires_at_ms=1,
        ends_at_ms=1, key_id=b"key",
    )  # fmt: skip
    applied = controller.apply(1, 1, encode_command(None, command))
    assert decode_result(command, applied.result).error_code == ErrorCode.NONE


def with_tokens(*owners: str) -> Controller:
    controller = formed(level=2)
    alter(controller, change("ann"), change("ann", SHA_512), change("bob"))
    for owner in owners:
        give_token(controller, f"of {owner}", owner)
    give_token(controller, "asked for by ann", "User:bob", "User:ann")
    return controller


def test_the_delegation_tokens_of_a_user_go_with_its_last_credential() -> None:
    controller = with_tokens("User:ann", "User:bob", "Group:ann")
    alter(controller, change("ann", keys=DELETED))
    assert len(controller.image.delegation_tokens) == 4, "one credential is left"
    command = AlterScramCredentials(
        changes=[change("ann", SHA_512, keys=DELETED), change("bob", SHA_512, keys=DELETED)],
        removes_tokens=True,
    )
    applied = controller.apply(1, 1, encode_command(None, command))
    assert sorted(controller.image.delegation_tokens) == ["of Group:ann", "of User:bob"]
    records = [type(record_of(applied_change)).__name__ for _, applied_change in applied.changes]
    assert records == ["ScramCredentialRecord", *2 * ["DelegationTokenRemovedRecord"]], "in one entry"


def test_a_password_that_is_changed_leaves_the_tokens() -> None:
    controller = with_tokens("User:ann")
    alter(controller, change("ann", keys=DELETED), change("ann", SHA_512, keys=DELETED), change("ann"))
    assert len(controller.image.delegation_tokens) == 2


def test_tokens_are_removed_in_the_same_order_by_a_node_that_began_with_a_snapshot() -> None:
    controller, restored = formed(level=2), Controller()
    alter(controller, change("ann"))
    for token_id in ("c", "a", "b"):
        give_token(controller, token_id, "User:ann")
    restored.restore(controller.snapshot())
    command = AlterScramCredentials(changes=[change("ann", keys=DELETED)], removes_tokens=True)
    applied = [machine.apply(1, 1, encode_command(None, command)) for machine in (controller, restored)]
    assert applied[0].changes == applied[1].changes
    assert len(applied[0].changes) == 4


def test_a_command_of_a_broker_of_before_leaves_the_tokens() -> None:
    """Journals have such commands: what they did is what they do."""
    controller = with_tokens("User:ann")
    command = AlterScramCredentials(
        changes=[change("ann", keys=DELETED), change("ann", SHA_512, keys=DELETED)]
    )
    controller.apply(1, 1, encode_command(None, command))
    assert len(controller.image.delegation_tokens) == 2


def test_users_survive_a_snapshot_and_are_nowhere_in_a_text() -> None:
    controller, restored = formed(), Controller()
    alter(controller, change("ann", keys=b"sealed"), change("bob"), change("ann", SHA_512))
    alter(controller, change("bob", keys=DELETED))
    restored.restore(controller.snapshot())
    assert restored.image.scram_credentials == controller.image.scram_credentials
    assert len(restored.image.scram_credentials) == 2
    assert "sealed" not in repr(restored.image.scram_credentials)


def test_nobody_is_made_before_every_broker_knows_of_users() -> None:
    controller = formed(level=0)
    command = AlterScramCredentials(changes=[change("ann")])
    result = decode_result(command, controller.apply(1, 1, encode_command(None, command)).result)
    assert result.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert controller.image.scram_credentials == {}


def test_a_cluster_begins_with_the_users_that_it_is_given() -> None:
    controller = Controller()
    features = [InitialFeature(feature=SECURITY, level=1)]
    for name in ("ann", "bea"):
        command = FormCluster(cluster_id="c", features=features, credentials=[change(name)])
        controller.apply(1, 1, encode_command(None, command))
    assert set(controller.image.scram_credentials) == {("ann", SHA_256)}, "it is formed once"
