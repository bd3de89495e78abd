"""`ottla group`: members, offsets and lag of groups, classic, consumer (KIP-848) and share (KIP-932)."""

from __future__ import annotations

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
    """Return the parser of `ottla group`."""
    options = command_parser(
        f"ottla {name}",
        "List, describe, seek and delete consumer groups and share groups.",
        "  ottla group list\n"
        "  ottla group describe billing\n"
        "  ottla group describe -r 'bill.*' --summary\n"
        "  ottla group seek billing --to start --topic orders\n"
        "  ottla group delete billing",
    )
    add_connection(options)
    actions = Actions(options, __name__)
    _show(actions)
    _seek(actions)
    _delete(actions)
    return options


run = carry_out


def _show(actions: Actions) -> None:
    listing = actions.add(
        "list",
        "show:list_groups",
        "List groups.",
        "  ottla group list\n"
        "  ottla group list --state empty --type consumer\n"
        "  ottla group list -r 'bill.*' --lag --min-lag 1000",
    )
    listing.add_argument("names", nargs="*", metavar="GROUP", help="default: all")
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="only groups in this state: Stable, Empty, ...",
    )
    listing.add_argument(
        "--type",
        action="append",
        default=[],
        metavar="TYPE",
        help="only groups of this type: classic, consumer, share, ...",
    )
    listing.add_argument(
        "--protocol", metavar="TYPE", help="only groups of this protocol type, such as consumer or connect"
    )
    listing.add_argument(
        "--lag", action="store_true", help="also show members and total lag (one request per group)"
    )
    listing.add_argument(
        "--min-lag", type=int, metavar="N", help="only groups with at least this lag, or with unknown lag"
    )
    listing.add_argument(
        "--min-members", type=int, metavar="N", help="only groups with at least this many members"
    )
    add_regex(listing, "group names")
    add_common(listing)

    describe = actions.add(
        "describe",
        "show:describe",
        "Describe groups: members, offsets and lag of each partition.",
        "  ottla group describe billing\n"
        "  ottla group describe billing --lag-per-topic\n"
        "  ottla group describe -r '.*' --summary -o json",
    )
    describe.add_argument("names", nargs="*", metavar="GROUP", help="default: all")
    describe.add_argument("-s", "--summary", action="store_true", help="only state, members and total lag")
    describe.add_argument("-l", "--lag-per-topic", action="store_true", help="a line for each topic")
    add_regex(describe, "group names")
    add_common(describe)


def _seek(actions: Actions) -> None:
    seek = actions.add(
        "seek",
        "seek:seek",
        "Move the committed offsets of a group without members, or the start offsets of a share group.",
        "  ottla group seek billing --to start\n"
        "  ottla group seek billing --to -100 --topic orders         100 records back\n"
        "  ottla group seek billing --to @2026-01-31T12:00:00Z --dry-run\n"
        "  ottla group seek billing --to 42 --topic orders:0,1\n"
        "  ottla group seek billing --topic orders:0=42 --topic orders:1=17\n"
        "  ottla group seek billing --to-group audit\n"
        "  ottla group seek billing --to-file offsets.txt            lines: TOPIC PARTITION OFFSET",
    )
    seek.add_argument("group", metavar="GROUP")
    where = seek.add_mutually_exclusive_group()
    where.add_argument(
        "--to",
        metavar="WHERE",
        help="start, end, an offset, +N, -N, or @TIME (ms, ISO 8601 in UTC without a zone, or an age such as 2h)",
    )
    where.add_argument("--to-group", metavar="GROUP", help="the offsets of that group")
    where.add_argument("--to-file", metavar="FILE", help="the offsets in a file; - is standard input")
    seek.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:PARTITION,...][=OFFSET]",
        help="topics or partitions, even without an offset yet (default: all with offsets of the group)",
    )
    seek.add_argument("--dry-run", action="store_true", help="only show what would change")
    add_common(seek)


def _delete(actions: Actions) -> None:
    delete = actions.add(
        "delete",
        "delete:delete",
        "Delete groups without members, or their offsets of some topics.",
        "  ottla group delete billing\n"
        "  ottla group delete -r 'test-.*' --yes\n"
        "  ottla group delete billing --topic orders         only its offsets of orders",
    )
    delete.add_argument("names", nargs="+", metavar="GROUP")
    delete.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:PARTITION,...]",
        help="only the offsets of these topics or partitions; for share groups, of whole topics",
    )
    add_regex(delete, "group names")
    add_yes(delete)
    add_common(delete)
