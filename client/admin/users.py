"""Users who log in by SCRAM, and their passwords (KIP-554). A password never leaves the client: it is hashed here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...network.threads import in_thread
from ...protocol.credentials.scram import (
    DEFAULT_ITERATIONS,
    DEFAULT_MECHANISM,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    SCRAM_MECHANISMS_BY_CODE,
    ScramMechanism,
    salted_password,
)
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.scram_credentials import (
    AlteredUser,
    AlterUserScramCredentialsRequest,
    CredentialDeletion,
    CredentialUpsertion,
    DescribeUserScramCredentialsRequest,
    NamedUser,
)
from ...protocol.nearest import nearest
from ..failures import cluster_error
from .admin_base import AdminBase
from .session import check

_Change = CredentialUpsertion | CredentialDeletion


@dataclass(frozen=True, slots=True)
class UserPassword:
    """A new password of a user, which replaces the password for the same mechanism if there is one.

        new = UserPassword("ann", "a long secret", mechanism="SCRAM-SHA-256", iterations=16_384)

    `iterations` is the number of rounds of hashing, 4096 to 16384.
    """

    user: str
    password: str = field(repr=False)
    mechanism: str = DEFAULT_MECHANISM
    iterations: int = DEFAULT_ITERATIONS


@dataclass(frozen=True, slots=True)
class UserLogin:
    """A user and a mechanism by which the user can log in. The cluster never reveals the stored keys."""

    user: str
    mechanism: str
    iterations: int


class UserAdmin(AdminBase):
    """The methods that list and change the users who can log in by SCRAM."""

    async def describe_scram_credentials(self, users: Iterable[str] | None = None) -> list[UserLogin]:
        """Return the SCRAM logins of these users, or of all. Raises KafkaError, RESOURCE_NOT_FOUND, for a user without
        one."""
        named = None if users is None else [NamedUser(name=user) for user in dict.fromkeys(users)]
        if named == []:
            return []
        response = await self.session.cluster.ask_any(DescribeUserScramCredentialsRequest(users=named))
        check(response.error_code, "users", response.error_message, operation="DESCRIBE")
        found: list[UserLogin] = []
        for result in response.results:
            check(result.error_code, f"user {result.user!r}", result.error_message)
            for info in result.credential_infos:
                known = SCRAM_MECHANISMS_BY_CODE.get(info.mechanism)
                name = f"mechanism {info.mechanism}" if known is None else known.name
                found.append(UserLogin(result.user, name, info.iterations))
        return sorted(found, key=lambda login: (login.user, login.mechanism))

    async def alter_scram_credentials(
        self,
        upserts: Sequence[UserPassword] = (),
        deletions: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Set passwords of users, and delete those of (user, mechanism).

            await admin.alter_scram_credentials([UserPassword("ann", "a long secret")])

        Each user is changed independently of the others. Raises KafkaError with all refusals. Raises ValueError for an
        unknown mechanism or an invalid number of iterations.
        """
        left: list[_Change] = [await _hashed(password) for password in upserts]
        left += [CredentialDeletion(name=user, mechanism=_mechanism(name).code) for user, name in deletions]
        refused: list[AlteredUser] = []
        while left:
            now, left = _once_each(left)
            refused += await self._alter(now)
        if not refused:
            return
        code = ErrorCode.of(refused[0].error_code)
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise cluster_error(code, "users", operation="ALTER", user=self.session.cluster.user)
        texts = [
            f"user {refusal.user!r}: {refusal.error_message or ErrorCode.of(refusal.error_code).message}"
            for refusal in refused
        ]
        raise KafkaError(code, "; ".join(dict.fromkeys(texts)))

    async def _alter(self, changes: Sequence[_Change]) -> list[AlteredUser]:
        """Send changes of SCRAM passwords in one request. Returns the results of the users whose change was refused."""
        request = AlterUserScramCredentialsRequest(
            upsertions=[change for change in changes if isinstance(change, CredentialUpsertion)],
            deletions=[change for change in changes if isinstance(change, CredentialDeletion)],
        )
        connection = await self.session.cluster.any_connection()
        response = await connection.request(request)
        return [result for result in response.results if result.error_code]


def _once_each(changes: Sequence[_Change]) -> tuple[list[_Change], list[_Change]]:
    """Return the password changes for one request, which may name a user only once, and the remaining changes."""
    first: dict[str, _Change] = {}
    rest: list[_Change] = []
    for change in changes:
        if change.name in first:
            rest.append(change)
        else:
            first[change.name] = change
    return list(first.values()), rest


async def _hashed(given: UserPassword) -> CredentialUpsertion:
    mechanism = _mechanism(given.mechanism)
    if not given.user:
        raise ValueError("the name of a user is not empty")
    if not given.password:
        raise ValueError(f"the password of {given.user!r} is not empty")
    if not ITERATIONS_MIN <= given.iterations <= ITERATIONS_MAX:
        raise ValueError(
            f"iterations are {ITERATIONS_MIN} to {ITERATIONS_MAX} for {given.user!r}, not {given.iterations}"
        )
    salt = os.urandom(SALT_BYTES)
    return CredentialUpsertion(
        name=given.user,
        mechanism=mechanism.code,
        iterations=given.iterations,
        salt=salt,
        salted_password=await in_thread(salted_password, mechanism, given.password, salt, given.iterations),
    )


def _mechanism(name: str) -> ScramMechanism:
    if name not in SCRAM_MECHANISMS:
        meant = nearest(name.upper(), SCRAM_MECHANISMS)
        hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(SCRAM_MECHANISMS)}"
        raise ValueError(f"no mechanism {name!r}; {hint}")
    return SCRAM_MECHANISMS[name]
