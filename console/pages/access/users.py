"""Users who log in by SCRAM: their table, and forms that create and delete users and set passwords.

A password is random. The console makes it when the change is carried out, and shows it once.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final

from ....client.admin import Admin, UserLogin, UserPassword
from ....client.foreign_names import Secret
from ....protocol.cluster.acls import AclFilter
from ....protocol.credentials.scram import (
    DEFAULT_ITERATIONS,
    DEFAULT_MECHANISM,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
)
from ....protocol.errors import ErrorCode, KafkaError
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, NotThere, Visit, check_as_shown
from ...commands import command, option
from ...formats import count
from ...sorting import Column

BOTH: Final = "both"
"""The choice of a password for all SCRAM mechanisms."""
PASSWORD_BYTES: Final = 24
"""The random bytes of a password, 192 bits."""


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user as a table row. `logins` are the user's mechanisms with their numbers of iterations."""

    name: str
    logins: Sequence[UserLogin]

    @property
    def mechanisms(self) -> str:
        """The mechanisms and iterations as text: `SCRAM-SHA-512 (8,192)`."""
        return ", ".join(f"{login.mechanism} ({count(login.iterations)})" for login in self.logins)


COLUMNS: Final = (
    Column[UserRow]("user", "user", lambda user: user.name),
    Column[UserRow]("mechanisms", "mechanisms (iterations)", lambda user: user.mechanisms),
)


def user_rows(logins: Iterable[UserLogin]) -> list[UserRow]:
    """Return the table rows of users by name."""
    ordered = sorted(logins, key=lambda login: (login.user, login.mechanism))
    return [UserRow(name, tuple(of_user)) for name, of_user in groupby(ordered, key=lambda login: login.user)]


async def _logins(admin: Admin, user: str) -> dict[str, UserLogin]:
    """Return the logins of a user by mechanism; none if there is no such user. Raises KafkaError."""
    try:
        return {login.mechanism: login for login in await admin.describe_scram_credentials([user])}
    except KafkaError as error:
        if error.code != ErrorCode.RESOURCE_NOT_FOUND:
            raise
        return {}


async def _existing(visit: Visit) -> tuple[str, dict[str, UserLogin]]:
    """Return the user that the page's query names, and the user's logins. Raises BadQuestion, NotThere, KafkaError."""
    user = visit.exact("user")
    logins = await _logins(visit.admin, user)
    if not logins:
        raise NotThere(f"there is no user {user!r} with a password")
    return user, logins


def _iterations_field(value: int) -> FormField:
    return FormField(
        name="iterations",
        label="iterations",
        kind="number",
        value=str(value),
        hint=f"rounds of hashing, {ITERATIONS_MIN:,} to {ITERATIONS_MAX:,}",
        is_required=True,
    )


def _iterations(visit: Visit) -> int:
    return visit.number("iterations", DEFAULT_ITERATIONS, least=ITERATIONS_MIN, most=ITERATIONS_MAX)


def _differences(
    before: Mapping[str, UserLogin], mechanisms: Sequence[str], iterations: int
) -> list[Difference]:
    return [
        Difference(
            f"password for {mechanism}",
            f"the present password, {count(before[mechanism].iterations)} iterations"
            if mechanism in before
            else None,
            f"a new random password, {count(iterations)} iterations",
        )
        for mechanism in mechanisms
    ]


def _password_command(user: str, mechanisms: Sequence[str], iterations: int) -> str:
    """Return the `ottla user create` command, with a remark that the command asks for the password."""
    words = [word for mechanism in mechanisms for word in option("--mechanism", mechanism)]
    shown = command(
        "user", "create", names=[user], options=[*words, *option("--iterations", str(iterations))]
    )
    return f"{shown}  # asks for the password"


async def _set_password(
    user: str, mechanisms: Sequence[str], iterations: int, shown: Sequence[Difference], visit: Visit
) -> Done:
    """Set a new random password of a user. Raises Outdated if the preview no longer holds, and KafkaError."""
    check_as_shown(shown, _differences(await _logins(visit.admin, user), mechanisms, iterations))
    password = Secret(secrets.token_urlsafe(PASSWORD_BYTES))
    await visit.admin.alter_scram_credentials(
        [UserPassword(user, password, mechanism, iterations) for mechanism in mechanisms]
    )
    notice = f"user {user} has a new password for {' and '.join(mechanisms)}"
    return Done(notice, "/access", password)


# ------------------------------------------------------------ create


async def creation_form(visit: Visit) -> Form:
    """Return the form for a new user."""
    others = [mechanism for mechanism in SCRAM_MECHANISMS if mechanism != DEFAULT_MECHANISM]
    return Form(
        "Create a user",
        (
            FormField(name="user", label="name", is_required=True),
            FormField(
                name="mechanism",
                label="mechanism",
                kind="choice",
                choices=(DEFAULT_MECHANISM, *others, BOTH),
                value=DEFAULT_MECHANISM,
            ),
            _iterations_field(DEFAULT_ITERATIONS),
        ),
        "The console makes a random password, and shows it once, after the change. With an authorizer, a new user has "
        "no rights until ACLs grant some.",
    )


async def plan_creation(visit: Visit) -> Change:
    """Plan a new user. Raises BadQuestion if the user exists, and KafkaError."""
    user, mechanisms, iterations = visit.required("user"), _chosen(visit), _iterations(visit)
    if there := await _logins(visit.admin, user):
        raise BadQuestion(f"user {user!r} exists, with a password for {', '.join(there)}: set a new password")
    differences = _differences({}, mechanisms, iterations)
    return Change(
        title=f"Create user {user}",
        differences=[Difference("user", None, user), *differences],
        carry_out=partial(_set_password, user, mechanisms, iterations, differences),
        command=_password_command(user, mechanisms, iterations),
    )


def _chosen(visit: Visit) -> list[str]:
    """Return the mechanisms that the form of a new user chooses. Raises BadQuestion."""
    chosen = visit.text("mechanism", DEFAULT_MECHANISM)
    if chosen == BOTH:
        return [*SCRAM_MECHANISMS]
    if chosen not in SCRAM_MECHANISMS:
        allowed = ", ".join((*SCRAM_MECHANISMS, BOTH))
        raise BadQuestion(f"'mechanism' is one of {allowed}, not {chosen[:40]!r}")
    return [chosen]


# ------------------------------------------------------------ password


async def password_form(visit: Visit) -> Form:
    """Return the form for a new password of a user."""
    user, logins = await _existing(visit)
    return Form(
        f"New password of {user}",
        [_iterations_field(max(login.iterations for login in logins.values()))],
        f"The console makes a random password for {' and '.join(logins)}, and shows it once, after the change.",
    )


async def plan_password(visit: Visit) -> Change:
    """Plan a new password of a user, for all mechanisms that the user has."""
    (user, logins), iterations = await _existing(visit), _iterations(visit)
    mechanisms = [mechanism for mechanism in logins if mechanism in SCRAM_MECHANISMS]
    differences = _differences(logins, mechanisms, iterations)
    return Change(
        title=f"New password of {user}",
        differences=differences,
        carry_out=partial(_set_password, user, mechanisms, iterations, differences),
        command=_password_command(user, mechanisms, iterations),
        warning=f"{_own_login(visit, user)}Clients with the present password cannot log in any more.",
    )


def _own_login(visit: Visit, user: str) -> str:
    """Return a sentence about the user of the console's connection; empty for another user."""
    return f"This console logs in as {user}. " if visit.connection.get("sasl_plain_username") == user else ""


# ------------------------------------------------------------ delete


async def deletion_form(visit: Visit) -> Form:
    """Return the form that asks to repeat the name of the user to delete."""
    user, _ = await _existing(visit)
    return Form(
        f"Delete user {user}",
        (FormField(name="again", label="repeat the user's name", is_required=True),),
        "Deletes the user's passwords. ACLs and quotas of the user stay.",
    )


async def plan_deletion(visit: Visit) -> Change:
    """Plan the deletion of a user's passwords."""
    user, logins = await _existing(visit)
    visit.confirm(user)
    differences = _deletion(logins)
    warning = f"{_own_login(visit, user)}Clients of {user} cannot log in any more."
    return Change(
        title=f"Delete user {user}",
        differences=[Difference("user", user, None), *differences],
        carry_out=partial(_delete, user, tuple(logins), differences),
        command=command("user", "delete", names=[user]),
        warning=f"{warning} {await _remaining(visit.admin, user)}",
    )


def _deletion(logins: Mapping[str, UserLogin]) -> list[Difference]:
    return [
        Difference(f"password for {login.mechanism}", f"{count(login.iterations)} iterations", None)
        for login in logins.values()
    ]


async def _remaining(admin: Admin, user: str) -> str:
    """Return a sentence about the rights of a user that stay; empty if they are unknown."""
    try:
        acls = await admin.describe_acls(AclFilter(principal=f"User:{user}"))
    except KafkaError:  # Without an authorizer, or the right to see ACLs, the user can still be deleted.
        return ""
    return f"ACLs of User:{user} stay: {count(len(acls))}." if acls else ""


async def _delete(user: str, mechanisms: Sequence[str], shown: Sequence[Difference], visit: Visit) -> Done:
    check_as_shown(shown, _deletion(await _logins(visit.admin, user)))
    await visit.admin.alter_scram_credentials(deletions=[(user, mechanism) for mechanism in mechanisms])
    return Done(f"user {user} was deleted", "/access")
