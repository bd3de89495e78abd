"""DescribeUserScramCredentials (0) and AlterUserScramCredentials (0): users and their passwords (KIP-554).

A broker turns the salted password of a client into the two keys that logins need, seals them and passes on only the
sealed keys. So no secret that is worth as much as a password enters the quorum's log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from ...protocol.cluster.acls import AclOperation
from ...protocol.cluster.cluster_image import ScramKey
from ...protocol.credentials.scram import SCRAM_MECHANISMS_BY_CODE, ScramCredential
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.command import refusal
from ...protocol.messages.scram_credentials import (
    AlteredUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CredentialInfo,
    CredentialUpsertion,
    DescribedUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ...protocol.messages.user_commands import AlterScramCredentials, ScramCredentialChange
from ..quorum.access import Quorum
from ..runtime.time_slices import pieces
from ..security.authorization.needs import cluster
from ..security.peer_session import PeerSession
from ..security.sasl.scram import sealed_credential
from ..security.sealing import Sealer
from ..server.handler import ClientRequest, handles

# A limit, so that one entry of the quorum's log does not hold it up for long.
_CHANGES_PER_COMMAND = 250


def _alter_error(
    message: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    """Return the answer to a failed AlterUserScramCredentials, with the error for each user.

    `server.error_answers` cannot derive it from the schema, since a user with several changes has one result.
    """
    return AlterUserScramCredentialsResponse(
        results=[_altered(name, error) for name in sorted({*_names(message)})]
    )


def _altered(name: str, error: KafkaError | None) -> AlteredUser:
    if error is None:
        return AlteredUser(user=name, error_message=None)
    return AlteredUser(user=name, error_code=error.code, error_message=error.message)


def _names(message: AlterUserScramCredentialsRequest) -> list[str]:
    return [entry.name for entry in message.deletions] + [entry.name for entry in message.upsertions]


class ScramCredentialHandlers:
    """Lists users with SCRAM credentials, and passes changes to the quorum."""

    def __init__(self, quorum: Quorum, sealer: Sealer) -> None:
        self._quorum = quorum
        self._sealer = sealer

    @handles(DescribeUserScramCredentialsRequest, 0, 0, needs=cluster(AclOperation.DESCRIBE))
    def describe(
        self, request: ClientRequest, message: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """Return the mechanisms and iterations of the named users; of all users if none is named."""
        infos: defaultdict[str, list[CredentialInfo]] = defaultdict(list)
        for (name, mechanism), credential in sorted(
            self._quorum.image.scram_credentials.items(), key=lambda item: item[0]
        ):
            infos[name].append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
        asked = Counter(user.name for user in message.users or ())
        results = [_described(name, infos.get(name, []), times=asked[name]) for name in asked or infos]
        return DescribeUserScramCredentialsResponse(error_message="", results=results)

    @handles(AlterUserScramCredentialsRequest, 0, 0, on_error=_alter_error, needs=cluster(AclOperation.ALTER))
    async def alter(
        self, request: ClientRequest, message: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """Set and delete passwords: one change for each user, as in Kafka."""
        times = Counter(_names(message))
        failures = {
            name: KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
            for name, count in times.items()
            if count > 1
        }
        changes: list[ScramCredentialChange] = [
            ScramCredentialChange(name=entry.name, mechanism=entry.mechanism)
            for entry in message.deletions
            if entry.name not in failures
        ]
        for entry in message.upsertions:
            if entry.name in failures:
                continue
            try:
                changes.append(self._sealed(entry))
            except KafkaError as error:
                failures[entry.name] = error
        failures.update(await self._submit(request.session, changes))
        return AlterUserScramCredentialsResponse(
            results=[_altered(name, failures.get(name)) for name in sorted(times)]
        )

    async def _submit(
        self, author: PeerSession, changes: Iterable[ScramCredentialChange]
    ) -> list[tuple[str, KafkaError]]:
        """Submit the changes; return the errors of failed changes with the names of their users."""
        failed: list[tuple[str, KafkaError]] = []
        for some in pieces(list(changes), _CHANGES_PER_COMMAND):
            command = AlterScramCredentials(changes=list(some), removes_tokens=True)
            outcome = await self._quorum.submit(command, author=author)
            for change, result in zip(some, outcome.changes, strict=True):
                error = refusal(result)
                if error is not None:
                    failed.append((change.name, error))
        return failed

    def _sealed(self, entry: CredentialUpsertion) -> ScramCredentialChange:
        """Return the change that sets a credential; the quorum checks it. Raises KafkaError if no keys can be
        derived."""
        mechanism = SCRAM_MECHANISMS_BY_CODE.get(entry.mechanism)
        if mechanism is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if not entry.salted_password:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
        key: ScramKey = (entry.name, entry.mechanism)
        credential = ScramCredential.of_salted_password(
            mechanism, bytes(entry.salted_password), bytes(entry.salt), entry.iterations
        )
        sealed = sealed_credential(self._sealer, key, credential)
        return ScramCredentialChange(
            name=entry.name,
            mechanism=entry.mechanism,
            salt=sealed.salt,
            sealed_keys=sealed.sealed_keys,
            iterations=sealed.iterations,
        )


def _described(name: str, infos: list[CredentialInfo], times: int) -> DescribedUser:
    if times > 1:
        error = KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    elif not infos:
        error = KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {name}"
        )
    else:
        return DescribedUser(user=name, error_message="", credential_infos=infos)
    return DescribedUser(user=name, error_code=error.code, error_message=error.message)
