"""Users who log in by SCRAM (KIP-554)."""

from __future__ import annotations

from ...protocol.cluster.cluster_image import ScramKey, SealedCredential, scram_credential_record
from ...protocol.credentials.scram import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS_BY_CODE
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.user_commands import (
    AlteredCredential,
    AlterScramCredentials,
    AlterScramCredentialsResult,
    ScramCredentialChange,
)
from . import delegation_tokens
from .features import check_security
from .refusal import check_allowed, message_of
from .workspace import Workspace


def alter_scram_credentials(work: Workspace, command: AlterScramCredentials) -> AlterScramCredentialsResult:
    """Change each SCRAM credential of the command independently. Raises KafkaError unless all brokers' versions support
    users."""
    check_allowed(command)
    check_security(work, "users of SCRAM need")
    results: list[AlteredCredential] = []
    for change in command.changes:
        result = AlteredCredential()
        try:
            _alter(work, change)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
        results.append(result)
    if command.removes_tokens:
        delegation_tokens.remove_of_deleted(
            work,
            {
                change.name
                for change, result in zip(command.changes, results, strict=True)
                if not change.sealed_keys and result.error_code == ErrorCode.NONE
            },
        )
    return AlterScramCredentialsResult(changes=results)


def set_credential(work: Workspace, change: ScramCredentialChange) -> None:
    """Store a user's SCRAM credential for one mechanism: salt, iterations and encrypted keys. Raises KafkaError."""
    key = _key(change)
    if change.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if change.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    work.emit(
        scram_credential_record(key, SealedCredential(change.salt, change.sealed_keys, change.iterations))
    )


def _alter(work: Workspace, change: ScramCredentialChange) -> None:
    present = work.image.scram_credentials.get(_key(change))
    if change.replaces and (present is None or present.sealed_keys != change.replaces):
        return
    if change.sealed_keys:
        set_credential(work, change)
        return
    if present is None:
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    work.emit(scram_credential_record(_key(change), None))


def _key(change: ScramCredentialChange) -> ScramKey:
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in SCRAM_MECHANISMS_BY_CODE:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return (change.name, change.mechanism)
