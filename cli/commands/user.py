"""`ottla user`: users who log in by SCRAM, and their passwords."""

from __future__ import annotations

import argparse
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ...client.foreign_names import Secret
from ...protocol.credentials.scram import DEFAULT_ITERATIONS, DEFAULT_MECHANISM
from ..arguments.installed_in import add_installed_in
from ..arguments.options import (
    Actions,
    CommandParser,
    add_common,
    add_connection,
    add_yes,
    carry_out,
    command_parser,
)
from ..arguments.selection import missing
from ..connection.passwords import new_password, password_of
from ..connection.precedence import connection_of
from ..failures import CommandFailed, UsageError
from ..terminal.confirmation import confirm
from ..terminal.output import print_json, print_table
from .user_files import OPTION, ClientFolder

if TYPE_CHECKING:
    from ...client.admin import UserLogin, UserPassword

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
NEW_PASSWORD_VARIABLE = "OTTLA_NEW_PASSWORD"


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla user`."""
    options = command_parser(
        f"ottla {name}",
        "Create, list and delete users who log in by SCRAM.",
        "  ottla user create ann\n"
        "  ottla user create ann --password-file ann.password --mechanism SCRAM-SHA-256\n"
        "  ottla user list\n"
        "  ottla user delete ann",
    )
    add_connection(options)
    actions = Actions(options, __package__ or "")
    create = actions.add(
        "create",
        "user:create_user",
        "Create a user, or replace the user's password.",
        "  ottla user create ann\n  ottla user create ann --password-file ann.password\n"
        "  ottla user create ann --client-files ann",
    )
    create.add_argument("name", metavar="NAME")
    create.add_argument(
        "--mechanism",
        action="append",
        choices=MECHANISMS,
        help=f"SCRAM mechanism of the password; may be repeated ({DEFAULT_MECHANISM})",
    )
    create.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        default=DEFAULT_ITERATIONS,
        help=f"number of hash iterations, 4096 to 16384 ({DEFAULT_ITERATIONS})",
    )
    create.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help=f"file whose first line is the password (default: {NEW_PASSWORD_VARIABLE}, else a prompt)",
    )
    create.add_argument(
        OPTION,
        type=Path,
        metavar="DIR",
        help="new or empty folder for the files of the user's clients: password, ottla profile, Java, librdkafka. "
        "Without another password, makes a random one",
    )
    add_installed_in(create, OPTION)
    listing = actions.add(
        "list", "user:list_users", "List users.", "  ottla user list\n  ottla user list ann"
    )
    listing.add_argument("names", nargs="*", metavar="NAME")
    delete = actions.add(
        "delete",
        "user:delete_user",
        "Delete a user's passwords.",
        "  ottla user delete ann\n  ottla user delete ann --mechanism SCRAM-SHA-256",
    )
    delete.add_argument("name", metavar="NAME")
    delete.add_argument(
        "--mechanism",
        action="append",
        choices=MECHANISMS,
        help="only the password of this mechanism; may be repeated",
    )
    add_yes(delete)
    for action in (create, listing, delete):
        add_common(action)
    return options


run = carry_out


def create_user(arguments: argparse.Namespace) -> None:
    """Set a user's SCRAM password; a missing user is created."""
    from ...client.admin import UserPassword
    from ..run_client import run_client

    connection = connection_of(arguments)
    if not 4096 <= arguments.iterations <= 16384:
        raise UsageError(f"--iterations takes 4096 to 16384, not {arguments.iterations}")
    folder = ClientFolder.requested(arguments, connection)
    password = _password(arguments)
    mechanisms = list(dict.fromkeys(arguments.mechanism or [DEFAULT_MECHANISM]))
    wanted = [
        UserPassword(arguments.name, password, mechanism, arguments.iterations) for mechanism in mechanisms
    ]
    kept = nullcontext() if folder is None else folder.written(connection, mechanisms[0], password)
    run_client(_alter(connection, wanted, [], kept))
    _print_results(arguments, mechanisms, "set")
    if folder is not None:
        folder.tell()


def _password(arguments: argparse.Namespace) -> Secret:
    """Return the new password of a user; a random one for files of clients, if no other is given."""
    is_given = arguments.password_file is not None or os.environ.get(NEW_PASSWORD_VARIABLE)
    if arguments.client_files is not None and not is_given:
        return new_password()
    password = password_of(
        arguments.password_file, NEW_PASSWORD_VARIABLE, f"new password of {arguments.name}", twice=True
    )
    if arguments.client_files is not None and (not password.isprintable() or password != password.strip()):
        raise UsageError(
            "the password has a control character, or a blank at an end, which is lost in the files of clients"
        )
    return password


def list_users(arguments: argparse.Namespace) -> None:
    """Print users and their SCRAM mechanisms."""
    from ..run_client import run_client

    found = run_client(_describe(connection_of(arguments)))
    known = {credential.user for credential in found}
    for name in arguments.names:
        if name not in known:
            raise CommandFailed(missing(name, known, "user"))
    shown = [credential for credential in found if not arguments.names or credential.user in arguments.names]
    if arguments.output == "json":
        print_json(
            [
                {
                    "user": credential.user,
                    "mechanism": credential.mechanism,
                    "iterations": credential.iterations,
                }
                for credential in shown
            ]
        )
    else:
        print_table(
            ("USER", "MECHANISM", "ITERATIONS"),
            [(credential.user, credential.mechanism, credential.iterations) for credential in shown],
        )


def delete_user(arguments: argparse.Namespace) -> None:
    """Remove a user's SCRAM passwords."""
    from ..run_client import run_client

    connection = connection_of(arguments)
    found = run_client(_describe(connection))
    of_user = [credential.mechanism for credential in found if credential.user == arguments.name]
    if not of_user:
        raise CommandFailed(missing(arguments.name, {credential.user for credential in found}, "user"))
    mechanisms = list(dict.fromkeys(arguments.mechanism or of_user))
    confirm(f"Delete the passwords of {arguments.name} for {', '.join(mechanisms)}?", yes=arguments.yes)
    run_client(
        _alter(connection, [], [(arguments.name, mechanism) for mechanism in mechanisms], nullcontext())
    )
    _print_results(arguments, mechanisms, "deleted")


def _print_results(arguments: argparse.Namespace, mechanisms: list[str], word: str) -> None:
    if arguments.output == "json":
        print_json(
            [{"user": arguments.name, "mechanism": mechanism, "result": word} for mechanism in mechanisms]
        )
    else:
        print_table(
            ("USER", "MECHANISM", "RESULT"), [(arguments.name, mechanism, word) for mechanism in mechanisms]
        )


async def _describe(connection: dict[str, object]) -> list[UserLogin]:
    from ...client.admin import Admin

    async with Admin(**connection) as admin:  # type: ignore[arg-type]
        return await admin.describe_scram_credentials()


async def _alter(
    connection: dict[str, object],
    upserts: list[UserPassword],
    deletions: list[tuple[str, str]],
    during: AbstractContextManager[None],
) -> None:
    """Change passwords, `during` the context that a connected client enters."""
    from ...client.admin import Admin

    async with Admin(**connection) as admin:  # type: ignore[arg-type]
        with during:
            await admin.alter_scram_credentials(upserts, deletions)
