"""`ottla mirror`: copies topics of another cluster, offset by offset, until they are promoted."""

from __future__ import annotations

from pathlib import Path

from ...arguments.options import (
    Actions,
    CommandParser,
    add_common,
    add_connection,
    add_yes,
    carry_out,
    command_parser,
)


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla mirror`."""
    options = command_parser(
        f"ottla {name}",
        "Copy topics of another cluster, watch the copies, and promote them.",
        "  ottla mirror create west --from kafka.west.example:9092 --topics 'orders.*' --groups '.*'\n"
        "  ottla mirror status west\n"
        "  ottla mirror resume west --accept-gap --topic orders\n"
        "  ottla mirror promote west\n"
        "  ottla mirror delete west",
    )
    add_connection(options)
    actions = Actions(options, __name__)
    _create(actions)
    _fail_back(actions)
    _show(actions)
    _change(actions)
    return options


run = carry_out


def _create(actions: Actions) -> None:
    create = actions.add(
        "create",
        "create:create",
        "Start copying topics.",
        "  ottla mirror create west --from kafka.west.example:9092\n"
        "  ottla mirror create west --from kafka.west.example:9092 --topics 'orders.*' --groups 'billing.*' --wait\n"
        "  ottla mirror create west --from kafka.west.example:9093 --source-option security.protocol=SSL\n"
        "  ottla mirror create west --from kafka.west.example:9092 --start latest --dry-run",
    )
    create.add_argument("name", metavar="NAME", help="name of the mirror")
    _add_what_is_copied(create, "the source")
    create.add_argument(
        "--start",
        default="earliest",
        metavar="WHERE",
        help="where copies begin: earliest, latest, or a time (ms, ISO 8601 in UTC without a zone, or an age "
        "such as 2h)",
    )
    create.add_argument(
        "--wait", action="store_true", help="wait until each copy has caught up with its source once"
    )
    create.add_argument(
        "--dry-run",
        action="store_true",
        help="only connect to the source, and check whether the mirror would be accepted",
    )
    add_common(create)


def _add_what_is_copied(options: CommandParser, source: str) -> None:
    """Add the options for the mirror's source cluster, the copied topics and groups, and the bandwidth."""
    options.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="HOST:PORT,...",
        help=f"brokers of {source}, as the brokers here reach them",
    )
    options.add_argument(
        "--topics",
        default=".*",
        metavar="REGEX",
        help="topics to copy: a pattern for whole names (default: all)",
    )
    options.add_argument(
        "--groups",
        default="",
        metavar="REGEX",
        help="groups whose committed offsets are copied (default: none)",
    )
    options.add_argument("--acls", action="store_true", help="also copy the ACLs of these topics and groups")
    _add_source_options(options)
    _add_bandwidth(options)


def _add_bandwidth(options: CommandParser, *, required: bool = False) -> None:
    options.add_argument(
        "--bandwidth",
        required=required,
        metavar="BYTES/S",
        default="none",
        help="the most that each broker fetches, such as 10MB/s (default: none, no limit)",
    )


def _add_source_options(options: CommandParser) -> None:
    options.add_argument(
        "--source-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a connection option for the source, such as security.protocol=SSL; may be repeated; files are on brokers",
    )
    options.add_argument(
        "--source-options-file",
        type=Path,
        metavar="FILE",
        help="connection options for the source as a properties file, which may contain secrets",
    )


def _fail_back(actions: Actions) -> None:
    failback = actions.add(
        "failback",
        "failback:failback",
        "Turn topics into copies of their former copies, in a cluster that was promoted meanwhile.",
        "  ottla mirror failback east --from kafka.east.example:9092 --topics 'orders.*' --dry-run\n"
        "  ottla mirror failback east --from kafka.east.example:9092 --topics 'orders.*' --groups '.*'\n"
        "  ottla mirror failback east --from kafka.east.example:9092 --discard        without records only here",
    )
    failback.add_argument("name", metavar="NAME", help="name of the new mirror")
    _add_what_is_copied(failback, "the cluster that was promoted")
    failback.add_argument(
        "--discard", action="store_true", help="delete the records that only this cluster has"
    )
    failback.add_argument(
        "--dry-run",
        action="store_true",
        help="only report records that would be lost; exit code 1 if the failback would be refused",
    )
    add_common(failback)
    add_yes(failback)


def _show(actions: Actions) -> None:
    listing = actions.add(
        "list",
        "show:list_mirrors",
        "List mirrors.",
        "  ottla mirror list\n  ottla mirror list -o json",
    )
    add_common(listing)
    status = actions.add(
        "status",
        "show:status",
        "Show the progress and the faults of copies. Exit code 1 if a copy is stopped or in trouble.",
        "  ottla mirror status\n  ottla mirror status west\n  ottla mirror status west -o json",
    )
    status.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    add_common(status)


def _change(actions: Actions) -> None:
    pause = actions.add(
        "pause",
        "change:pause",
        "Pause copying until the mirror is resumed.",
        "  ottla mirror pause west",
    )
    resume = actions.add(
        "resume",
        "change:resume",
        "Resume copying.",
        "  ottla mirror resume west\n"
        "  ottla mirror resume west --accept-gap                  after all lost records\n"
        "  ottla mirror resume west --accept-gap --topic orders",
    )
    resume.add_argument(
        "--accept-gap",
        action="store_true",
        help="also resume copies that a fault has stopped, without the records that 'status' lists as lost",
    )
    resume.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="with --accept-gap: only the faults of this topic; may be repeated",
    )
    reconnect = actions.add(
        "reconnect",
        "create:reconnect",
        "Change the address of the source or its connection options. New options replace all previous ones.",
        "  ottla mirror reconnect west --source-options-file west.properties      with a new password\n"
        "  ottla mirror reconnect west --from kafka2.west.example:9092",
    )
    reconnect.add_argument(
        "--from",
        dest="source",
        default="",
        metavar="HOST:PORT,...",
        help="brokers of the source (default: unchanged)",
    )
    _add_source_options(reconnect)
    limit = actions.add(
        "limit",
        "change:limit",
        "Limit how fast each broker fetches from the source.",
        "  ottla mirror limit west --bandwidth 10MB/s\n  ottla mirror limit west --bandwidth none",
    )
    _add_bandwidth(limit, required=True)
    promote = actions.add(
        "promote",
        "change:promote",
        "Stop copying, and let the topics accept records. This cannot be undone.",
        "  ottla mirror promote west\n"
        "  ottla mirror promote west --at-cut                     no transaction is torn across partitions\n"
        "  ottla mirror promote west --yes -o json",
    )
    promote.add_argument(
        "--at-cut",
        action="store_true",
        help="end every copy at the newest cut that all copies have reached; needs a source that runs Ottla",
    )
    delete = actions.add(
        "delete",
        "change:delete",
        "Delete a mirror that is promoted, or has no topics. Its topics stay.",
        "  ottla mirror delete west",
    )
    for action in (pause, resume, reconnect, limit, promote, delete):
        action.add_argument("name", metavar="NAME")
        add_common(action)
    for action in (resume, promote, delete):
        add_yes(action)
