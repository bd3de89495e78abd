"""`ottla topic`: topics, their partitions, settings and records."""

from __future__ import annotations

import argparse

from ...arguments.options import (
    Actions,
    CommandParser,
    add_common,
    add_connection,
    add_regex,
    add_yes,
    carry_out,
    command_parser,
)


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla topic`."""
    options = command_parser(
        f"ottla {name}",
        "Create, list, describe, change, trim and delete topics.",
        "  ottla topic create orders -p 6 -r 3 --config min.insync.replicas=2\n"
        "  ottla topic list -o json\n"
        "  ottla topic describe orders\n"
        "  ottla topic alter orders --set retention.ms=7d\n"
        "  ottla topic delete -r 'test-.*'",
    )
    add_connection(options)
    actions = Actions(options, __name__)
    _create(actions)
    _show(actions)
    _change(actions)
    _trim(actions)
    return options


run = carry_out


def _create(actions: Actions) -> None:
    create = actions.add(
        "create",
        "change:create",
        "Create topics.",
        "  ottla topic create orders\n"
        "  ottla topic create orders payments -p 6 -r 3 --config cleanup.policy=compact\n"
        "  ottla topic create orders --if-not-exists",
    )
    create.add_argument("names", nargs="+", metavar="TOPIC")
    create.add_argument(
        "-p", "--partitions", type=int, default=-1, metavar="N", help="default: the cluster's"
    )
    create.add_argument(
        "-r", "--replication-factor", type=int, default=-1, metavar="N", help="default: the cluster's"
    )
    create.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    create.add_argument("--if-not-exists", action="store_true", help="do not fail if a topic exists already")
    _dry_run(create)
    add_common(create)


def _show(actions: Actions) -> None:
    listing = actions.add(
        "list",
        "show:list_topics",
        "List topics.",
        "  ottla topic list\n  ottla topic list -r 'orders-.*'\n  ottla topic list --internal -o json",
    )
    listing.add_argument("names", nargs="*", metavar="TOPIC", help="default: all")
    listing.add_argument("--internal", action="store_true", help="include the cluster's internal topics")
    add_regex(listing, "topic names")
    add_common(listing)

    describe = actions.add(
        "describe",
        "show:describe",
        "Describe topics: leaders, replicas, ISR, offsets, sizes, settings.",
        "  ottla topic describe orders\n"
        "  ottla topic describe -r 'orders-.*' --no-configs\n"
        "  ottla topic describe orders --all-configs -o json",
    )
    describe.add_argument("names", nargs="*", metavar="TOPIC", help="default: all")
    configs = describe.add_mutually_exclusive_group()
    configs.add_argument("--all-configs", action="store_true", help="include settings with default values")
    configs.add_argument("--no-configs", action="store_true", help="show only the partitions")
    add_regex(describe, "topic names")
    add_common(describe)


def _change(actions: Actions) -> None:
    alter = actions.add(
        "alter",
        "change:alter",
        "Change settings of topics.",
        "  ottla topic alter orders --set retention.ms=7d --set min.insync.replicas=2\n"
        "  ottla topic alter orders --unset retention.ms\n"
        "  ottla topic alter -r 'orders-.*' --set cleanup.policy=compact --dry-run",
    )
    alter.add_argument("names", nargs="+", metavar="TOPIC")
    alter.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    alter.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="KEY",
        help="return this setting to its default; may be repeated",
    )
    add_regex(alter, "topic names")
    _dry_run(alter)
    add_common(alter)

    partitions = actions.add(
        "add-partitions",
        "change:add_partitions",
        "Add partitions to topics.",
        "  ottla topic add-partitions orders --to 12\n  ottla topic add-partitions orders payments --num 3",
    )
    partitions.add_argument("names", nargs="+", metavar="TOPIC")
    number = partitions.add_mutually_exclusive_group(required=True)
    number.add_argument("-n", "--num", type=int, metavar="N", help="number of partitions to add")
    number.add_argument("--to", type=int, metavar="N", help="total number of partitions")
    _dry_run(partitions)
    add_common(partitions)

    delete = actions.add(
        "delete",
        "change:delete",
        "Delete topics with all their records.",
        "  ottla topic delete orders\n"
        "  ottla topic delete orders --if-exists --yes\n"
        "  ottla topic delete -r 'test-.*'",
    )
    delete.add_argument("names", nargs="+", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="do not fail if a topic does not exist")
    add_regex(delete, "topic names")
    add_yes(delete)
    add_common(delete)


def _trim(actions: Actions) -> None:
    trim = actions.add(
        "trim",
        "trim:trim",
        "Delete the oldest records of a topic.",
        "  ottla topic trim orders --offset 1000               records below offset 1000\n"
        "  ottla topic trim orders:0,2-4 --offset end          all records of these partitions\n"
        "  ottla topic trim orders:0,2=1000 orders:1=70        each partition below its own offset\n"
        "  ottla topic trim orders --timestamp 24h             records older than a day\n"
        "  ottla topic trim orders --timestamp 2026-01-31T12:00:00Z --dry-run",
    )
    trim.add_argument("names", nargs="+", metavar="TOPIC[:PARTITION,...][=OFFSET]")
    where = trim.add_mutually_exclusive_group()
    where.add_argument("--offset", metavar="N|end", help="delete below this offset")
    where.add_argument(
        "--timestamp",
        metavar="TIME",
        help="delete older records: ms since 1970, ISO 8601 (UTC without a zone), or an age such as 24h",
    )
    _dry_run(trim)
    add_yes(trim)
    add_common(trim)


def _dry_run(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--dry-run", action="store_true", help="only check whether the change would be accepted"
    )
