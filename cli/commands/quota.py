"""`ottla quota`: quotas of clients by user, client id and address."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..arguments.options import (
    Actions,
    CommandParser,
    add_common,
    add_connection,
    carry_out,
    command_parser,
    key_values,
)
from ..arguments.selection import bytes_of, missing
from ..connection.precedence import connection_of
from ..failures import CommandFailed, UsageError
from ..terminal.output import none_of, print_json, print_table

if TYPE_CHECKING:
    from ...client.admin.quotas import Entity

PARTS = ("user", "client-id", "ip")


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla quota`."""
    options = command_parser(
        f"ottla {name}",
        "Show and change the limits of clients.",
        "  ottla quota list\n"
        "  ottla quota set --client-id import producer_byte_rate=10MB\n"
        "  ottla quota set --default-client-id consumer_byte_rate=50MB\n"
        "  ottla quota unset --client-id import producer_byte_rate",
    )
    add_connection(options)
    actions = Actions(options, __package__ or "")
    listing = actions.add(
        "list",
        "quota:list_quotas",
        "List limits.",
        "  ottla quota list\n  ottla quota list --client-id import",
    )
    change = actions.add(
        "set",
        "quota:set_quotas",
        "Set limits of one client, or default limits of all other clients.",
        "  ottla quota set --client-id import producer_byte_rate=10MB request_percentage=50\n"
        "  ottla quota set --default-client-id consumer_byte_rate=50MB\n"
        "  ottla quota set --ip 10.0.0.7 connection_creation_rate=20",
    )
    change.add_argument("values", nargs="+", metavar="KEY=NUMBER")
    unset = actions.add(
        "unset",
        "quota:unset_quotas",
        "Remove limits.",
        "  ottla quota unset --client-id import producer_byte_rate",
    )
    unset.add_argument("keys", nargs="+", metavar="KEY")
    for action in (change, unset):
        action.add_argument(
            "--dry-run", action="store_true", help="only check whether the change would be accepted"
        )
    for action in (listing, change, unset):
        for part in PARTS:
            either = action.add_mutually_exclusive_group()
            either.add_argument(f"--{part}", metavar="NAME", help=f"limits of this {part}")
            either.add_argument(
                f"--default-{part}", action="store_true", help=f"limits of any {part} without its own"
            )
        add_common(action)
    return options


run = carry_out


def entity_of(arguments: argparse.Namespace) -> Entity:
    """Return the quota's entity that the options name: user, client id or address.

    A value of None stands for the default, all without a separate quota.
    """
    entity: dict[str, str | None] = {}
    for part in PARTS:
        field = part.replace("-", "_")
        if (name := getattr(arguments, field)) is not None:
            entity[part] = name
        elif getattr(arguments, f"default_{field}"):
            entity[part] = None
    return entity


def numbers_of(pairs: list[str]) -> dict[str, float]:
    """Parse quotas, `key=number` pairs. Raises UsageError."""
    numbers: dict[str, float] = {}
    for key, text in key_values(pairs, "quota set").items():
        try:
            numbers[key] = float(text)
        except ValueError:
            if not key.endswith("_byte_rate"):
                numbers[key] = math.nan
            else:
                numbers[key] = float(bytes_of(text, key))
        if not (math.isfinite(numbers[key]) and numbers[key] > 0):
            raise UsageError(f"quota set takes numbers above 0, not {key}={text}")
    return numbers


def list_quotas(arguments: argparse.Namespace) -> None:
    """Print each quota of each user, client id or address."""
    from ...client.admin.quotas import quota_text
    from ..run_client import run_client

    found = run_client(_describe(arguments))
    if arguments.output == "json":
        print_json([{"entity": dict(entity), "quotas": _numbers(quotas)} for entity, quotas in found])
        return
    rows = [
        (*(_part(entity, part) for part in PARTS), key, quota_text(value))
        for entity, quotas in found
        for key, value in quotas.items()
    ]
    print_table(
        ("USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"),
        rows,
        empty=none_of("quotas", asked=bool(entity_of(arguments))),
        wide=arguments.output == "wide",
    )


def set_quotas(arguments: argparse.Namespace) -> None:
    """Set limits."""
    _change(arguments, {**numbers_of(arguments.values)})


def unset_quotas(arguments: argparse.Namespace) -> None:
    """Remove limits. Raises CommandFailed for an unknown quota, which clusters would ignore."""
    from ...protocol.cluster.client_quotas import QUOTA_KEYS

    for key in arguments.keys:
        if key not in QUOTA_KEYS:
            raise CommandFailed(missing(key, QUOTA_KEYS, "quota"))
    _change(arguments, dict.fromkeys(arguments.keys))


def _change(arguments: argparse.Namespace, changes: dict[str, float | None]) -> None:
    from ...client.admin.quotas import quota_text
    from ..run_client import run_client

    if not entity_of(arguments):
        raise UsageError(
            "whose limit? Name a --user, --client-id or --ip, or --default-client-id for all others"
        )
    run_client(_alter(arguments, changes))
    word = "checked" if arguments.dry_run else "changed"
    if arguments.output == "json":
        print_json(
            [{"quota": key, "value": value, "result": word} for key, value in _numbers(changes).items()]
        )
    else:
        rows = [(key, "" if value is None else quota_text(value), word) for key, value in changes.items()]
        print_table(("QUOTA", "VALUE", "RESULT"), rows)


async def _describe(arguments: argparse.Namespace) -> list[tuple[Entity, dict[str, float]]]:
    from ...client.admin import Admin

    async with Admin(**connection_of(arguments)) as admin:
        return await admin.describe_quotas(entity_of(arguments))


async def _alter(arguments: argparse.Namespace, changes: dict[str, float | None]) -> None:
    from ...client.admin import Admin
    from ...protocol.cluster.client_quotas import QUOTA_KEYS
    from ...protocol.errors import KafkaError

    entity, unknown = entity_of(arguments), [key for key in changes if key not in QUOTA_KEYS]
    async with Admin(**connection_of(arguments)) as admin:
        try:
            await admin.alter_quotas(entity, changes, validate_only=arguments.dry_run)
        except KafkaError as error:
            if not unknown:
                raise
            raise CommandFailed(f"{missing(unknown[0], QUOTA_KEYS, 'quota')} ({error.code.name})") from None


def _numbers(quotas: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the quotas for JSON; whole numbers have no point and no exponent."""
    return {
        key: int(value) if value is not None and math.isfinite(value) and value == int(value) else value
        for key, value in quotas.items()
    }


def _part(entity: Entity, part: str) -> str:
    if part not in entity:
        return "-"
    name = entity[part]
    return "<default>" if name is None else name
