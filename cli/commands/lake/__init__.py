"""`ottla lake`: writes topics as Iceberg tables, exactly once."""

from __future__ import annotations

from ...arguments.options import (
    Actions,
    CommandParser,
    add_common,
    add_connection,
    add_output,
    add_yes,
    carry_out,
    command_parser,
)


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla lake`."""
    options = command_parser(
        f"ottla {name}",
        "Write topics as Iceberg tables, each record exactly once. Settings of a topic say how.",
        "  ottla config set topic orders ottla.lake.enable=true ottla.lake.mode=json\n"
        "  ottla lake run --lake /srv/lake\n"
        "  ottla lake status --lake /srv/lake\n"
        "  ottla lake pause orders",
    )
    add_connection(options)
    actions = Actions(options, __name__)
    _run(actions)
    _status(actions)
    _settings(actions)
    _expire(actions)
    _compact(actions)
    _sweep(actions)
    _catalog(actions)
    _rebuild(actions)
    _take_over(actions)
    return options


run = carry_out


def _run(actions: Actions) -> None:
    running = actions.add(
        "run",
        "running:run_worker",
        "Write the topics with ottla.lake.enable=true until Control-C.",
        "  ottla lake run --lake /srv/lake\n"
        "  ottla lake run --lake /srv/lake --once orders payments\n"
        "  ottla lake run --catalog production",
    )
    running.add_argument(
        "topics", nargs="*", metavar="TOPIC", help="only these topics (default: all that are enabled)"
    )
    _add_place(running)
    running.add_argument(
        "--once", action="store_true", help="end when all records that are there now are written"
    )
    running.add_argument(
        "--accept-new",
        action="store_true",
        help="go on with topics that were deleted and made anew; their tables keep the former records",
    )
    running.add_argument(
        "--accept-loss",
        action="store_true",
        help="go on although records were lost: deleted before they were written, or lost by the log",
    )
    running.add_argument(
        "--metrics-listener",
        metavar="HOST:PORT",
        help="address of an HTTP endpoint with /metrics for Prometheus, /healthz and /readyz; or unix:/PATH",
    )
    running.add_argument(
        "--metrics-token-file",
        metavar="FILE",
        help="file with tokens, of which a reader of /metrics must send one",
    )
    add_connection(running, repeats=True)


def _status(actions: Actions) -> None:
    status = actions.add(
        "status",
        "status:show_status",
        "Print each table: its cut, its rows, and how far it is behind its topic.",
        "  ottla lake status --lake /srv/lake\n  ottla lake status --lake /srv/lake -o json",
    )
    status.add_argument("topics", nargs="*", metavar="TOPIC", help="only these topics")
    _add_place(status)
    add_common(status)


def _settings(actions: Actions) -> None:
    for name, description in (
        ("pause", "Stop writing topics: set ottla.lake.enable=false. Tables stay as they are."),
        ("resume", "Write topics again, from where their tables stand: set ottla.lake.enable=true."),
    ):
        changing = actions.add(name, f"switching:{name}", description, f"  ottla lake {name} orders payments")
        changing.add_argument("topics", nargs="+", metavar="TOPIC", help="topics")
        add_connection(changing, repeats=True)


def _expire(actions: Actions) -> None:
    expiring = actions.add(
        "expire",
        "expiring:expire_snapshots",
        "Remove old snapshots from the metadata of tables. Rows, and snapshots with a tag, stay.",
        "  ottla lake expire --lake /srv/lake\n"
        "  ottla lake expire --lake /srv/lake --older-than 7d --keep 1000 --dry-run lake.orders",
    )
    _add_tables(expiring)
    _add_place(expiring)
    expiring.add_argument(
        "--older-than", default="24h", metavar="TIME", help="keep all snapshots that are younger (24h)"
    )
    expiring.add_argument(
        "--keep", type=int, default=100, metavar="N", help="keep the newest N snapshots of each table (100)"
    )
    expiring.add_argument("--dry-run", action="store_true", help="only print how many would be removed")
    add_output(expiring, "-o")


def _compact(actions: Actions) -> None:
    compacting = actions.add(
        "compact",
        "compacting:compact_tables",
        "Rewrite small files of tables as larger ones, in the order of offsets. Rows and earlier snapshots stay.",
        "  ottla lake compact --lake /srv/lake\n  ottla lake compact --lake /srv/lake --dry-run lake.orders",
    )
    _add_tables(compacting)
    _add_place(compacting)
    compacting.add_argument("--dry-run", action="store_true", help="only print what would be rewritten")
    add_output(compacting, "-o")


def _sweep(actions: Actions) -> None:
    sweeping = actions.add(
        "sweep",
        "sweeping:sweep_tables",
        "Delete files of tables that no snapshot names: of expired snapshots, and of workers that were killed.",
        "  ottla lake sweep --lake /srv/lake --dry-run\n  ottla lake sweep --lake /srv/lake --older-than 7d --yes",
    )
    _add_tables(sweeping)
    _add_place(sweeping)
    sweeping.add_argument(
        "--older-than", default="3d", metavar="AGE", help="keep files that are younger: at least 1d (3d)"
    )
    sweeping.add_argument("--dry-run", action="store_true", help="only print how many would be deleted")
    add_yes(sweeping)
    add_output(sweeping, "-o")


def _catalog(actions: Actions) -> None:
    serving = actions.add(
        "catalog",
        "catalog:serve_catalog",
        "Serve the tables' catalog to engines that read: the read side of Iceberg's REST API.",
        "  ottla lake catalog --lake /srv/lake\n  ottla lake catalog --lake /srv/lake --listen 10.0.0.7:8181",
    )
    _add_place(serving)
    serving.add_argument(
        "--listen",
        default="127.0.0.1:8181",
        metavar="HOST:PORT",
        help="address to listen at; port 0 takes a free one (127.0.0.1:8181)",
    )


def _rebuild(actions: Actions) -> None:
    rebuilding = actions.add(
        "rebuild",
        "rebuilding:rebuild_table",
        "Remove a table, so that the worker makes it anew from the first record of its topic.",
        "  ottla lake rebuild --lake /srv/lake lake.orders",
    )
    rebuilding.add_argument("table", metavar="TABLE", help="the table, with its namespace")
    _add_place(rebuilding)
    rebuilding.add_argument(
        "--accept-loss",
        action="store_true",
        help="rebuild a table whose first records the topic has no more; the new table lacks them",
    )
    add_yes(rebuilding)
    add_connection(rebuilding, repeats=True)


def _take_over(actions: Actions) -> None:
    taking = actions.add(
        "take-over",
        "taking_over:take_over_table",
        "Continue a table with a topic that was restored from a backup, or promoted with its mirror. Its rows stay.",
        "  ottla lake take-over --lake /srv/lake lake.orders -b new-1:9092 --dry-run\n"
        "  ottla lake take-over --lake /srv/lake lake.orders -b new-1:9092 --roll-back",
    )
    taking.add_argument("table", metavar="TABLE", help="the table, with its namespace")
    _add_place(taking)
    taking.add_argument(
        "--roll-back",
        action="store_true",
        help="set a table with records that the topic does not have back to its newest snapshot without them",
    )
    taking.add_argument("--dry-run", action="store_true", help="only report what would be done")
    add_common(taking)


def _add_tables(options: CommandParser) -> None:
    options.add_argument(
        "tables", nargs="*", metavar="TABLE", help="only these tables (default: all of the lake)"
    )


def _add_place(options: CommandParser) -> None:
    options.add_argument(
        "--lake",
        metavar="FOLDER",
        help="folder of the tables and their catalog: /srv/lake or file:///srv/lake",
    )
    options.add_argument(
        "--catalog",
        metavar="NAME",
        help="instead of --lake: a catalog of .pyiceberg.yaml, of any kind that pyiceberg knows",
    )
