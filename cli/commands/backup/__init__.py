"""`ottla backup`: copies a cluster into an object store, and lists, verifies and prunes what is there."""

from __future__ import annotations

from ...arguments.options import (
    Actions,
    CommandParser,
    add_connection,
    add_output,
    add_yes,
    carry_out,
    command_parser,
)

_URL = "file:///FOLDER, s3://BUCKET/PREFIX, gs:// or az://"


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla backup`."""
    options = command_parser(
        f"ottla {name}",
        "Copy the records, topics and committed offsets of a cluster into an object store, up to a consistent cut.",
        "  ottla backup --to s3://bucket/cluster-1                  what is new since the last backup\n"
        "  ottla backup --to file:///srv/backups --every 60s        a cut each minute, until Control-C\n"
        "  ottla backup --to s3://bucket/orders --topics 'orders.*' --groups 'billing.*'\n"
        "  ottla backup list s3://bucket/cluster-1\n"
        "  ottla backup verify s3://bucket/cluster-1\n"
        "  ottla backup prune s3://bucket/cluster-1 --older-than 30d\n"
        "\n"
        "'ottla cluster restore' brings a cut back.",
    )
    options.add_argument("--to", metavar="URL", help=f"the store: {_URL}")
    options.add_argument(
        "--topics",
        default=".*",
        metavar="REGEX",
        help="topics to copy: a pattern for whole names (default: all)",
    )
    options.add_argument(
        "--groups",
        default=".*",
        metavar="REGEX",
        help="groups whose committed offsets a restoration brings back (default: all; '' for none)",
    )
    options.add_argument(
        "--every", metavar="TIME", help="make a cut at this interval, such as 60s, until Control-C or SIGTERM"
    )
    add_connection(options)
    add_output(options, "-o")
    options.set_defaults(carried_out_by=(__name__, "making", "make"))
    actions = Actions(options, __name__, required=False)
    listing = actions.add(
        "list",
        "show:list_cuts",
        "List the cuts of a backup, from the oldest to the newest.",
        "  ottla backup list s3://bucket/cluster-1\n  ottla backup list file:///srv/backups --topics-of 3-17",
    )
    listing.add_argument(
        "--topics-of", metavar="CUT", help="list the topics of this cut, such as 3-17, or of the cut 'newest'"
    )
    verifying = actions.add(
        "verify",
        "verify:verify_backup",
        "Read every object of a backup and compare it with its digest. Exit code 1 if a cut cannot be restored.",
        "  ottla backup verify s3://bucket/cluster-1\n  ottla backup verify s3://bucket/cluster-1 -o json",
    )
    pruning = actions.add(
        "prune",
        "prune:prune_backup",
        "Delete old cuts, and the records that no remaining cut has. The newest cut stays.",
        "  ottla backup prune s3://bucket/cluster-1 --older-than 30d --dry-run\n"
        "  ottla backup prune s3://bucket/cluster-1 --keep 100 --yes",
    )
    pruning.add_argument("--keep", type=int, metavar="N", help="keep the newest N cuts")
    pruning.add_argument(
        "--older-than", metavar="AGE", help="delete cuts that are older than this, such as 30d"
    )
    pruning.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    add_yes(pruning)
    for action in (listing, verifying, pruning):
        action.add_argument("url", metavar="URL", help=f"the store: {_URL}")
        add_output(action, "-o", repeats=True)
    return options


run = carry_out
