"""`ottla dlq`: the dead letters of a topic: a list, one letter as a whole, and the way back to the topics of origin."""

from __future__ import annotations

import argparse

from ...arguments.options import (
    Actions,
    CommandParser,
    add_common,
    add_connection,
    add_yes,
    carry_out,
    command_parser,
)
from ...arguments.record_filters import add_filters


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla dlq`."""
    options = command_parser(
        f"ottla {name}",
        "List dead letters, show one as a whole, and send letters back to their topics of origin.",
        "  ottla dlq ls orders.dlq\n"
        "  ottla dlq ls orders.dlq --summary\n"
        "  ottla dlq show orders.dlq 0 17\n"
        "  ottla dlq replay orders.dlq --header ottla.error.type=Timeout --dry-run\n"
        "  ottla dlq replay orders.dlq",
    )
    add_connection(options)
    actions = Actions(options, __name__)
    _list(actions)
    _show(actions)
    _replay(actions)
    return options


run = carry_out


def _list(actions: Actions) -> None:
    listing = actions.add(
        "ls",
        "show:list_letters",
        "List the letters of a topic: the place of origin, the group, the attempts and the error.",
        "  ottla dlq ls orders.dlq\n"
        "  ottla dlq ls orders.dlq --since 2h --header ottla.error.type=Timeout\n"
        "  ottla dlq ls orders.dlq --where '$.customer = c-7' -c 20 -o json\n"
        "  ottla dlq ls orders.dlq --summary",
    )
    listing.add_argument("topic", metavar="TOPIC")
    _add_choice(listing)
    listing.add_argument(
        "--since",
        metavar="TIME",
        help="only letters of this time or later: an age such as 2h, ISO 8601, or ms since 1970",
    )
    listing.add_argument("-c", "--count", type=int, metavar="N", help="stop after N letters")
    listing.add_argument(
        "-s",
        "--summary",
        action="store_true",
        help="a line for each type of error, with the number of letters",
    )
    add_common(listing)


def _show(actions: Actions) -> None:
    show = actions.add(
        "show",
        "show:show_letter",
        "Show one letter as a whole: the reason, the key, the value and the headers.",
        "  ottla dlq show orders.dlq 0 17\n  ottla dlq show orders.dlq 0 17 -o json",
    )
    show.add_argument("topic", metavar="TOPIC")
    show.add_argument("partition", metavar="PARTITION", type=int)
    show.add_argument("offset", metavar="OFFSET", type=int)
    add_common(show)


def _replay(actions: Actions) -> None:
    replay = actions.add(
        "replay",
        "replay:replay",
        "Send letters back to their topics of origin. The topic of letters keeps them all.",
        "  ottla dlq replay orders.dlq --dry-run\n"
        "  ottla dlq replay orders.dlq\n"
        "  ottla dlq replay orders.dlq --header ottla.error.type=Timeout --yes\n"
        "  ottla dlq replay orders.dlq --at 0:17,20-25 --at 2:3\n"
        "  ottla dlq replay orders.dlq --to orders-tests --from-start",
    )
    replay.add_argument("topic", metavar="TOPIC")
    _add_choice(replay)
    replay.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="PARTITION:OFFSET,...",
        help="only the letters at these places, such as 0:17,20-25; may be repeated",
    )
    replay.add_argument(
        "--to",
        metavar="TOPIC",
        help="the topic that all letters go to (default: the topic of origin of each)",
    )
    replay.add_argument(
        "-g",
        "--group",
        metavar="NAME",
        help="the group that keeps the progress (default: ottla-dlq-replay-TOPIC, with --to ...-to-TOPIC)",
    )
    replay.add_argument(
        "--from-start", action="store_true", help="also send letters that were sent back before"
    )
    replay.add_argument(
        "--skip-others",
        action="store_true",
        help="letters that are not chosen count as done: a later replay with this group does not look at them",
    )
    replay.add_argument("--dry-run", action="store_true", help="count the letters, and send none")
    add_yes(replay)
    add_common(replay)


def _add_choice(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "-p",
        "--partition",
        action="append",
        default=[],
        metavar="N,...",
        help="only these partitions, such as 0,2-4; may be repeated",
    )
    add_filters(options)
