"""`ottla token`: delegation tokens, which let programs log in as a user for a limited time."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..arguments.options import Actions, CommandParser, add_common, add_connection, carry_out, command_parser
from ..arguments.selection import iso_time, milliseconds_of, missing
from ..connection.precedence import connection_of
from ..failures import CommandFailed, UsageError
from ..terminal.output import none_of, print_json, print_table
from ..terminal.text import note

if TYPE_CHECKING:
    from ...client.admin import DelegationToken


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla token`."""
    options = command_parser(
        f"ottla {name}",
        "Create, list, renew and expire delegation tokens.",
        "  ottla token create --max-lifetime 12h\n"
        "  ottla token list\n"
        "  ottla token renew 4QyLlX2vTk6cT2zW0hJ0Xg\n"
        "  ottla token expire 4QyLlX2vTk6cT2zW0hJ0Xg",
    )
    add_connection(options)
    actions = Actions(options, __package__ or "")
    create = actions.add(
        "create",
        "token:create_token",
        "Create a token. Its secret, the HMAC, is shown only once.",
        "  ottla token create --max-lifetime 12h --renewer User:scheduler\n"
        "  ottla token create --owner User:ann -o json",
    )
    create.add_argument(
        "--owner",
        metavar="PRINCIPAL",
        help="user as whom the token logs in, such as User:ann (default: yourself)",
    )
    create.add_argument(
        "--renewer",
        action="append",
        default=[],
        metavar="PRINCIPAL",
        help="user who may renew and expire it besides its owner; may be repeated",
    )
    create.add_argument(
        "--max-lifetime",
        metavar="TIME",
        help="time after which it ends, such as 12h (default: the cluster's limit)",
    )
    listing = actions.add(
        "list",
        "token:list_tokens",
        "List the user's own tokens, and other tokens that the user may see.",
        "  ottla token list\n  ottla token list --owner User:ann",
    )
    listing.add_argument("ids", nargs="*", metavar="ID")
    listing.add_argument(
        "--owner", action="append", metavar="PRINCIPAL", help="only tokens of this owner; may be repeated"
    )
    renew = actions.add(
        "renew",
        "token:renew_token",
        "Extend the expiry of a token.",
        "  ottla token renew 4QyLlX2vTk6cT2zW0hJ0Xg --for 6h",
    )
    renew.add_argument("id", metavar="ID")
    renew.add_argument(
        "--for", dest="period", metavar="TIME", help="time from now on (default: the cluster's limit)"
    )
    expire = actions.add(
        "expire",
        "token:expire_token",
        "Remove a token, and close the connections that have logged in with it.",
        "  ottla token expire 4QyLlX2vTk6cT2zW0hJ0Xg\n  ottla token expire 4QyLlX2vTk6cT2zW0hJ0Xg --in 10m",
    )
    expire.add_argument("id", metavar="ID")
    expire.add_argument(
        "--in", dest="period", metavar="TIME", help="expire after this time instead of at once"
    )
    for action in (create, listing, renew, expire):
        add_common(action)
    return options


run = carry_out


def create_token(arguments: argparse.Namespace) -> None:
    """Create a delegation token and print its secret."""
    from ..run_client import run_client

    longest_ms = _milliseconds(arguments.max_lifetime, "--max-lifetime")
    made = run_client(_create(connection_of(arguments), arguments.renewer, longest_ms, arguments.owner))
    if arguments.output == "json":
        print_json(_told(made) | {"hmac": made.password})
    else:
        columns = (*_COLUMNS, "HMAC")
        print_table(columns, [(*_row(made), made.password)], spare=_SPARE, wide=arguments.output == "wide")
        note("the HMAC is the password of a login with the ID, by SCRAM; it is not shown again")


def list_tokens(arguments: argparse.Namespace) -> None:
    """Print delegation tokens without their secrets."""
    from ..run_client import run_client

    found = run_client(_describe(connection_of(arguments), arguments.owner))
    known = {token.token_id for token in found}
    for token_id in arguments.ids:
        if token_id not in known:
            raise CommandFailed(missing(token_id, known, "token"))
    shown = [token for token in found if not arguments.ids or token.token_id in arguments.ids]
    if arguments.output == "json":
        print_json([_told(token) for token in shown])
    else:
        print_table(
            _COLUMNS,
            [_row(token) for token in shown],
            spare=_SPARE,
            empty=none_of("tokens", asked=bool(arguments.owner)),
            wide=arguments.output == "wide",
        )


def renew_token(arguments: argparse.Namespace) -> None:
    """Extend the expiry of a delegation token."""
    from ..run_client import run_client

    period_ms = _milliseconds(arguments.period, "--for")
    expires_ms = run_client(_renew(connection_of(arguments), arguments.id, period_ms))
    _print_result(arguments, "renewed", expires_ms)


def expire_token(arguments: argparse.Namespace) -> None:
    """Remove a delegation token, or set when it expires."""
    from ..run_client import run_client

    period_ms = _milliseconds(arguments.period, "--in")
    expires_ms = run_client(_expire(connection_of(arguments), arguments.id, period_ms))
    _print_result(arguments, "removed" if period_ms is None else "expires", expires_ms)


_COLUMNS = ("ID", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "ENDS")
_SPARE = ("ISSUED", "REQUESTER", "RENEWERS", "ENDS")


def _row(token: DelegationToken) -> tuple[str, ...]:
    times = map(iso_time, (token.issued_at_ms, token.expires_at_ms, token.ends_at_ms))
    return (token.token_id, token.owner, token.requester, " ".join(token.renewers), *times)


def _told(token: DelegationToken) -> dict[str, object]:
    return {
        "id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issued_at_ms,
        "expires_ms": token.expires_at_ms,
        "ends_ms": token.ends_at_ms,
    }


def _print_result(arguments: argparse.Namespace, word: str, expires_ms: int) -> None:
    if arguments.output == "json":
        print_json({"id": arguments.id, "result": word, "expires_ms": expires_ms})
    else:
        print_table(("ID", "RESULT", "EXPIRES"), [(arguments.id, word, iso_time(expires_ms))])


def _milliseconds(text: str | None, flag: str) -> int | None:
    if text is None:
        return None
    found = milliseconds_of(text, flag)
    if found <= 0:
        raise UsageError(f"{flag} takes a time above 0, not {text!r}")
    return found


async def _create(
    connection: dict[str, object], renewers: list[str], longest_ms: int | None, owner: str | None
) -> DelegationToken:
    from ...client.admin import Admin

    async with Admin(**connection) as admin:  # type: ignore[arg-type]
        try:
            return await admin.create_delegation_token(
                renewers=renewers, max_lifetime_ms=longest_ms, owner=owner
            )
        except ValueError as error:
            raise UsageError(str(error)) from None


async def _describe(connection: dict[str, object], owners: list[str] | None) -> list[DelegationToken]:
    from ...client.admin import Admin

    async with Admin(**connection) as admin:  # type: ignore[arg-type]
        try:
            return await admin.describe_delegation_tokens(owners)
        except ValueError as error:
            raise UsageError(str(error)) from None


async def _renew(connection: dict[str, object], token_id: str, period_ms: int | None) -> int:
    from ...client.admin import Admin

    async with Admin(**connection) as admin:  # type: ignore[arg-type]
        found = _named(await admin.describe_delegation_tokens(), token_id)
        return await admin.renew_delegation_token(found.hmac, period_ms)


async def _expire(connection: dict[str, object], token_id: str, period_ms: int | None) -> int:
    from ...client.admin import Admin

    async with Admin(**connection) as admin:  # type: ignore[arg-type]
        found = _named(await admin.describe_delegation_tokens(), token_id)
        return await admin.expire_delegation_token(found.hmac, period_ms)


def _named(tokens: list[DelegationToken], token_id: str) -> DelegationToken:
    """Return the delegation token with this id, so that no secret has to be given on a command line."""
    for token in tokens:
        if token.token_id == token_id:
            return token
    raise CommandFailed(missing(token_id, {token.token_id for token in tokens}, "token"))
