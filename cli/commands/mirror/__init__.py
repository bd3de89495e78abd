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
        "Begin to copy topics.",
        "  ottla mirror create west --from kafka.west.example:9092\n"
        "  ottla mirror create west --from kafka.west.example:9092 --topics 'orders.*' --groups 'billing.*' --wait\n"
        "  ottla mirror create west --from kafka.west.example:9093 --source-option security.protocol=SSL\n"
        "  ottla mirror create west --from kafka.west.example:9092 --start latest --dry-run",
    )
    create.add_argument("name", metavar="NAME", help="of the mirror")
    _add_what_is_copied(create, "the source")
    create.add_argument(
        "--start",
        default="earliest",
        metavar="WHERE",
        help="where copies begin: earliest, latest, or a time (ms, ISO 8601 in UTC without a zone, or an age as 2h)",
    )
    create.add_argument(
        "--wait", action="store_true", help="until each copy has once had all that its source had"
    )
    create.add_argument(
        "--dry-run", action="store_true", help="only reach the source, and ask whether it would work"
    )
    add_common(create)


def _add_what_is_copied(options: CommandParser, source: str) -> None:
    """Add the options for the source, the copied topics and groups, and the bandwidth."""
    options.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="HOST:PORT,...",
        help=f"brokers of {source}, as the brokers here reach them",
    )
    options.add_argument(
        "--topics", default=".*", metavar="REGEX", help="which topics: matches whole names (all of them)"
    )
    options.add_argument(
        "--groups", default="", metavar="REGEX", help="whose committed offsets follow (no group's)"
    )
    options.add_argument("--acls", action="store_true", help="ACLs of these topics and groups follow, too")
    _add_source_options(options)
    _add_bandwidth(options)


def _add_bandwidth(options: CommandParser, *, required: bool = False) -> None:
    options.add_argument(
        "--bandwidth",
        required=required,
        metavar="BYTES/S",
        default="none",
        help="how much each broker fetches at most, as 10MB/s, or none (none)",
    )


def _add_source_options(options: CommandParser) -> None:
    options.add_argument(
        "--source-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="how the source is reached, as security.protocol=SSL, repeatable; files are those of the brokers",
    )
    options.add_argument(
        "--source-options-file",
        type=Path,
        metavar="FILE",
        help="the same as properties of a client, also with secrets",
    )


def _fail_back(actions: Actions) -> None:
    failback = actions.add(
        "failback",
        "failback:failback",
        "Make topics copies of what were their copies, in a cluster that was promoted in the meantime.",
        "  ottla mirror failback east --from kafka.east.example:9092 --topics 'orders.*' --dry-run\n"
        "  ottla mirror failback east --from kafka.east.example:9092 --topics 'orders.*' --groups '.*'\n"
        "  ottla mirror failback east --from kafka.east.example:9092 --discard        whatever is only here",
    )
    failback.add_argument("name", metavar="NAME", help="of the mirror that copies them from now on")
    _add_what_is_copied(failback, "the cluster that was promoted")
    failback.add_argument(
        "--discard", action="store_true", help="delete the records that only this cluster has"
    )
    failback.add_argument(
        "--dry-run",
        action="store_true",
        help="only tell what would be lost. Exit code 1 if it would be refused",
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
        "Show how far copies are, and what stops them. Exit code 1 if something does.",
        "  ottla mirror status\n  ottla mirror status west\n  ottla mirror status west -o json",
    )
    status.add_argument("names", nargs="*", metavar="NAME", help="all, if none is named")
    add_common(status)


def _change(actions: Actions) -> None:
    pause = actions.add(
        "pause",
        "change:pause",
        "Copy nothing until the mirror is resumed.",
        "  ottla mirror pause west",
    )
    resume = actions.add(
        "resume",
        "change:resume",
        "Go on to copy.",
        "  ottla mirror resume west\n"
        "  ottla mirror resume west --accept-gap                  behind all records that are lost\n"
        "  ottla mirror resume west --accept-gap --topic orders",
    )
    resume.add_argument(
        "--accept-gap",
        action="store_true",
        help="also where a fault stops a copy: what 'status' names is lost",
    )
    resume.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="with --accept-gap: only the faults of this topic, repeatable",
    )
    reconnect = actions.add(
        "reconnect",
        "create:reconnect",
        "Reach the source elsewhere or with other options, which replace all that there were.",
        "  ottla mirror reconnect west --source-options-file west.properties      with a new password\n"
        "  ottla mirror reconnect west --from kafka2.west.example:9092",
    )
    reconnect.add_argument(
        "--from", dest="source", default="", metavar="HOST:PORT,...", help="brokers of the source (as before)"
    )
    _add_source_options(reconnect)
    limit = actions.add(
        "limit",
        "change:limit",
        "Have each broker fetch from the source only so fast.",
        "  ottla mirror limit west --bandwidth 10MB/s\n  ottla mirror limit west --bandwidth none",
    )
    _add_bandwidth(limit, required=True)
    promote = actions.add(
        "promote",
        "change:promote",
        "Copy no more, and let the topics take records. It cannot be undone.",
        "  ottla mirror promote west\n"
        "  ottla mirror promote west --at-cut                     no transaction is torn across partitions\n"
        "  ottla mirror promote west --yes -o json",
    )
    promote.add_argument(
        "--at-cut",
        action="store_true",
        help="end every copy where the newest cut of a source of Ottla lies that all have reached",
    )
    delete = actions.add(
        "delete",
        "change:delete",
        "Forget a mirror that is promoted, or has no topics. Its topics stay.",
        "  ottla mirror delete west",
    )
    for action in (pause, resume, reconnect, limit, promote, delete):
        action.add_argument("name", metavar="NAME")
        add_common(action)
    for action in (resume, promote, delete):
        add_yes(action)
