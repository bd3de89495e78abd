"""`ottla audit`: compares the record counts of a pipeline's tiers and reports missing records."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....client.auditing.settings import AUDIT_TOPIC
from ...arguments.options import CommandParser, add_connection, add_output, command_parser
from ...arguments.selection import milliseconds_of, timestamp_ms
from ...connection.precedence import connection_of, connection_of_profile
from ...terminal.text import note, say

if TYPE_CHECKING:
    from .reading import LogCopy

NO_END_MS = 1 << 62


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla audit`."""
    options = command_parser(
        f"ottla {name}",
        "Compare what producers and consumers with an audit topic have counted, by topic and time bucket.",
        "  ottla audit                                    compares every tier with tier producer\n"
        "  ottla audit --topic orders --from 2h\n"
        "  ottla audit --topic orders --tier producer --tier consumer:billing\n"
        "  ottla audit --topic orders --from 1d --log     with what is in the log, too: reads the topic\n"
        "  ottla audit --topic orders --from 1d --copy west:9092    with what a mirror has copied there\n"
        "  ottla audit --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z -o json\n"
        "\n"
        "Exit code 0 if nothing is missing, 1 if there is a gap. Buckets are those of the records' timestamps.",
    )
    options.add_argument(
        "-t", "--topic", action="append", default=[], metavar="TOPIC", help="only this topic; may be repeated"
    )
    options.add_argument(
        "--from",
        dest="first",
        metavar="TIME",
        help="from this time on: ms since 1970, ISO 8601 (UTC without a zone), or an age such as 2h (default: all)",
    )
    options.add_argument("--to", dest="last", metavar="TIME", help="up to this time (default: all)")
    options.add_argument(
        "--tier",
        action="append",
        default=[],
        metavar="TIER",
        help="first the reference tier, then tiers to compare with it (default: producer, then all that report)",
    )
    options.add_argument(
        "--log",
        action="store_true",
        help="count the records in the log as a tier 'log': reads the topics from the first bucket on",
    )
    options.add_argument(
        "--copy",
        action="append",
        default=[],
        metavar="CLUSTER",
        help="also count another cluster's log of the topics, such as a mirror's: HOST:PORT,... reached with the "
        "options of this one, or a profile; takes no reports; may be repeated",
    )
    options.add_argument(
        "--audit-topic",
        default=AUDIT_TOPIC,
        metavar="TOPIC",
        help=f"the topic with the reports ({AUDIT_TOPIC})",
    )
    options.add_argument(
        "--grace",
        default="2m",
        metavar="AGE",
        help="time from a bucket's end to its verdict; more than consumers' lag and clients' report interval (2m)",
    )
    add_connection(options)
    add_output(options, "-o")
    return options


def _copy(place: str, connection: Mapping[str, Any]) -> LogCopy:
    from ....client.auditing.settings import tier_of_copy
    from .reading import LogCopy

    is_profile = ":" not in place
    other = connection_of_profile(place) if is_profile else {**connection, "bootstrap_servers": place}
    return LogCopy(tier_of_copy(place), other)


def run(arguments: argparse.Namespace) -> int:
    """Compare the record counts of tiers.

    Print a line for each time bucket, and a verdict in the last line; return 1 if records are missing.
    """
    from ....client.auditing.comparison import AuditWindow
    from ....client.auditing.verdicts import has_gaps, verdict
    from ...run_client import run_client
    from ...terminal.output import print_json, print_table
    from ...terminal.shades import state
    from .output import as_json, columns_and_rows, remarks
    from .reading import AuditQuestion, audit

    now_ms = int(time.time() * 1000)
    window = AuditWindow(
        from_ms=0 if arguments.first is None else timestamp_ms(arguments.first, now_ms),
        to_ms=NO_END_MS if arguments.last is None else timestamp_ms(arguments.last, now_ms),
        closed_ms=now_ms - milliseconds_of(arguments.grace, "--grace"),
    )
    connection = connection_of(arguments)
    question = AuditQuestion(
        connection,
        arguments.audit_topic,
        arguments.topic,
        arguments.tier,
        arguments.log,
        window,
        [_copy(place, connection) for place in dict.fromkeys(arguments.copy)],
    )
    found = run_client(audit(question), waits_for=None)
    if found.unreadable:
        note(
            f"records of {arguments.audit_topic!r} that are no reports: {found.unreadable} "
            f"(the first: {found.first_unreadable})"
        )
    for tier in found.silent_tiers:
        note(f"no report of tier {tier!r} was read: it counts as 0")
    if arguments.output == "json":
        print_json(as_json(found))
    else:
        columns, rows = columns_and_rows(found.rows)
        shaded = [[*cells, state(str(word))] for *cells, word in rows]
        print_table(columns, shaded, spare=("PERCENT",), wide=arguments.output == "wide")
        for line in (*remarks(found), verdict(found.rows)):
            say(line)
    return int(has_gaps(found.rows))
