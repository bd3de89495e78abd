"""`ottla config`: settings of topics, brokers, groups and client metrics, each with the source of its value.

`ottla config check` reports how a node's file secures the node.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments.config_values import check_keys, config_values
from ..arguments.options import (
    Actions,
    CommandParser,
    add_common,
    add_connection,
    add_output,
    carry_out,
    command_parser,
)
from ..connection.precedence import connection_of
from ..failures import CommandFailed, UsageError
from ..terminal.output import none_of, print_json, print_table
from ..terminal.text import say

if TYPE_CHECKING:
    from ...client.admin import Admin, ConfigEntry

TYPES = {"topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32}
_LISTS_ALL_KEYS = ("topic", "broker", "group")
"""Types of resources whose description has every key that they can have."""
ALL_BROKERS = ("all", "default")
"""Names that stand for the settings of all brokers."""


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla config`."""
    options = command_parser(
        f"ottla {name}",
        "Show and change settings.",
        "  ottla config get topic orders\n"
        "  ottla config get broker 1 log.retention.ms --synonyms\n"
        "  ottla config set broker all log.retention.ms=7d\n"
        "  ottla config set group billing consumer.session.timeout.ms=30000\n"
        "  ottla config unset topic orders retention.ms\n"
        "  ottla config check -c broker.yaml",
    )
    add_connection(options)
    actions = Actions(options, __package__ or "")
    listing = actions.add(
        "list",
        "config:list_resources",
        "List resources that have settings of their own.",
        "  ottla config list\n  ottla config list client-metrics",
    )
    listing.add_argument("type", nargs="?", choices=tuple(TYPES), help="only of this type")
    get = actions.add(
        "get",
        "config:get",
        "Show settings and where their values come from.",
        "  ottla config get topic orders\n"
        "  ottla config get topic orders retention.ms min.insync.replicas\n"
        "  ottla config get broker 1 --all -o json",
    )
    _resource(get)
    get.add_argument("keys", nargs="*", metavar="KEY", help="only these settings")
    get.add_argument("-a", "--all", action="store_true", help="include settings with default values")
    get.add_argument(
        "--synonyms", action="store_true", help="include values that the effective value overrides"
    )
    change = actions.add(
        "set",
        "config:set_values",
        "Set values.",
        "  ottla config set topic orders retention.ms=7d segment.bytes=64MiB\n"
        "  ottla config set broker all log.retention.ms=7d   for every broker\n"
        "  ottla config set client-metrics all-clients interval.ms=60000 metrics=org.apache.kafka.",
    )
    _resource(change)
    change.add_argument("values", nargs="+", metavar="KEY=VALUE")
    unset = actions.add(
        "unset",
        "config:unset_values",
        "Remove values, so that inherited or default values apply.",
        "  ottla config unset topic orders retention.ms\n  ottla config unset broker all log.retention.ms",
    )
    _resource(unset)
    unset.add_argument("keys", nargs="+", metavar="KEY")
    check = actions.add(
        "check",
        "config_check:check",
        "Report how a node's file secures the node, and what is missing. Exit code 1 if the node would not start.",
        "  ottla config check -c broker.yaml\n"
        "  ottla config check -c server.properties --set super.users=User:ann -o json",
    )
    check.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="the node's settings")
    check.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting")
    check.add_argument(
        "--role",
        choices=("broker", "quorum"),
        help="the kind of node that reads the file (default: process.roles, else broker)",
    )
    add_output(check, "-o")
    for action in (change, unset):
        action.add_argument(
            "--dry-run", action="store_true", help="only check whether the change would be accepted"
        )
    for action in (listing, get, change, unset):
        add_common(action)
    return options


run = carry_out


def list_resources(arguments: argparse.Namespace) -> None:
    """Print the types and names of the resources (topics, brokers, groups, client metrics) that have settings."""
    from ..run_client import run_client

    names = {number: name for name, number in TYPES.items()}
    wanted = [TYPES[arguments.type]] if arguments.type else []

    async def ask(admin: Admin) -> list[tuple[int, str]]:
        return await admin.list_config_resources(wanted)

    found = run_client(_with_admin(arguments, ask))
    rows = [(names.get(number, str(number)), name or "all") for number, name in found]
    if arguments.output == "json":
        print_json([{"type": kind, "name": name} for kind, name in rows])
    else:
        print_table(
            ("TYPE", "NAME"),
            rows,
            empty=none_of("resources with settings of their own", asked=bool(wanted)),
            wide=arguments.output == "wide",
        )


def get(arguments: argparse.Namespace) -> None:
    """Print the settings of a resource with their sources: the named keys, otherwise all keys that differ from their
    default."""
    from ..run_client import run_client

    kind, name = resource_of(arguments)

    async def ask(admin: Admin) -> list[ConfigEntry]:
        return await admin.describe_configs(kind, name)

    entries = run_client(_about(arguments, ask))
    known = {entry.name: entry for entry in entries}
    check_keys(arguments.keys, known)
    shown = [known[key] for key in arguments.keys] or [
        entry for entry in entries if arguments.all or not entry.is_default
    ]
    if arguments.output == "json":
        print_json([_as_json(entry) for entry in shown])
    elif not shown:
        say("nothing differs from the defaults; --all shows them")
    elif arguments.synonyms:
        rows = [(entry.name, *synonym) for entry in shown for synonym in entry.synonyms]
        print_table(
            ("KEY", "SYNONYM", "VALUE", "SOURCE"),
            [(key, other, _value(value), source) for key, other, value, source in rows],
            empty="These settings have no other values.",
            wide=arguments.output == "wide",
        )
    else:
        print_table(
            ("KEY", "VALUE", "SOURCE"),
            [
                (entry.name, _value(entry.value), entry.source + _without_effect(kind, entry.name))
                for entry in shown
            ],
            wide=arguments.output == "wide",
        )


def set_values(arguments: argparse.Namespace) -> None:
    """Set settings of a resource: all given values, or none if one is refused."""
    _change(arguments, {**config_values(arguments.values, "config set")})


def unset_values(arguments: argparse.Namespace) -> None:
    """Remove the named settings of a resource, so that inherited or default values apply."""
    _change(arguments, dict.fromkeys(arguments.keys))


def resource_of(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the protocol's type code and the name of the resource whose settings the arguments name.

    Raises UsageError.
    """
    kind, name = TYPES[arguments.type], arguments.name
    if arguments.type == "broker" and name in ALL_BROKERS:
        return kind, ""
    if arguments.type in ("broker", "broker-logger") and not name.isdecimal():
        raise UsageError(f"a {arguments.type} goes by its id, or by 'all'; not {name!r}")
    return kind, name


def _change(arguments: argparse.Namespace, changes: dict[str, str | None]) -> None:
    from ..run_client import run_client

    kind, name = resource_of(arguments)

    async def ask(admin: Admin) -> None:
        removed = [key for key, value in changes.items() if value is None]
        if (
            removed and name and arguments.type in _LISTS_ALL_KEYS
        ):  # Clusters remove an unknown key without a word.
            check_keys(removed, [entry.name for entry in await admin.describe_configs(kind, name)])
        await admin.alter_configs(kind, name, changes, validate_only=arguments.dry_run)

    run_client(_about(arguments, ask))
    word = "checked" if arguments.dry_run else "changed"
    rows = [
        (
            key,
            "" if value is None else value,
            word if value is None else f"{word}{_without_effect(kind, key)}",
        )
        for key, value in changes.items()
    ]
    if arguments.output == "json":
        print_json([{"key": key, "value": changes[key], "result": result} for key, _, result in rows])
    else:
        print_table(("KEY", "VALUE", "RESULT"), rows, wide=arguments.output == "wide")


def _without_effect(kind: int, key: str) -> str:
    """Return a warning if `key` is an unknown broker setting, else an empty text.

    Kafka keeps unknown settings for plugins; Ottla has no plugins.
    """
    from ...protocol.nearest import nearest
    from ...protocol.settings.config_keys import NODE_KEYS, node_key, why_ignored

    if kind != TYPES["broker"] or node_key(key) is not None:
        return ""
    if (why := why_ignored(key)) is not None:
        return f", without effect: {why}"
    meant = nearest(key, NODE_KEYS)
    hint = f"; did you mean {meant}?" if meant else ""
    return f", without effect: there is no such setting{hint}"


async def _about(arguments: argparse.Namespace, ask: Any) -> Any:
    """Ask about the named resource. Raises CommandFailed; the error for a missing topic has the nearest name."""
    from ...protocol.errors import KafkaError
    from ..missing_names import refusal_of_names

    async def asked(admin: Admin) -> Any:
        try:
            return await ask(admin)
        except KafkaError as error:
            raise CommandFailed(await refusal_of_names(admin, [arguments.name], error)) from None

    return await _with_admin(arguments, asked)


async def _with_admin(arguments: argparse.Namespace, ask: Any) -> Any:
    from ...client.admin import Admin

    async with Admin(**connection_of(arguments)) as admin:
        return await ask(admin)


def _resource(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "type", choices=tuple(TYPES), help="topic, broker, group, client-metrics or broker-logger"
    )
    options.add_argument("name", metavar="NAME", help="name of the resource; for brokers the id, or all")


def _value(value: str | None) -> str:
    return "" if value is None else value


def _as_json(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "key": entry.name,
        "value": entry.value,
        "source": entry.source,
        "sensitive": entry.is_sensitive,
        "read_only": entry.read_only,
        "synonyms": [{"key": key, "value": value, "source": source} for key, value, source in entry.synonyms],
    }
