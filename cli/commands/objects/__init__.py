"""`ottla objects`: large values that are objects of a store, beside the records that refer to them."""

from __future__ import annotations

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
    """Return the parser of `ottla objects`."""
    options = command_parser(
        f"ottla {name}",
        "Delete values in an object store that no record refers to.",
        "  ottla objects sweep orders --store s3://bucket/values --dry-run",
    )
    add_connection(options)
    sweeping = Actions(options, __name__).add(
        "sweep",
        "sweep:sweep",
        "Delete the objects of topics that no record refers to any more.",
        "  ottla objects sweep orders --store file:///srv/values --dry-run\n"
        "  ottla objects sweep orders billing --store s3://bucket/values --yes\n"
        "  ottla objects sweep orders --store s3://bucket/values --older-than 3d\n"
        "  ottla objects sweep retired --store s3://bucket/values --earlier-topics",
    )
    sweeping.add_argument("names", nargs="+", metavar="TOPIC")
    sweeping.add_argument(
        "--store",
        required=True,
        metavar="URL",
        help="the large_message_store of the producers: file:///FOLDER, s3://BUCKET/PREFIX, gs:// or az://",
    )
    sweeping.add_argument(
        "--older-than",
        default="1d",
        metavar="AGE",
        help="keep objects that are younger than the topic's retention and this age, as their records may still be "
        "under way: at least 1h (1d)",
    )
    sweeping.add_argument(
        "--earlier-topics",
        action="store_true",
        help="also delete the objects of deleted topics with these names; the store must not belong to another cluster",
    )
    sweeping.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    add_yes(sweeping)
    add_common(sweeping)
    return options


run = carry_out
