"""`ottla log`: prints and checks the files of a data folder without a broker."""

from __future__ import annotations

from pathlib import Path

from ...arguments.options import Actions, CommandParser, add_output, carry_out, command_parser


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla log`."""
    options = command_parser(
        f"ottla {name}",
        "Dump and verify segments, indexes and checkpoints. Nothing is changed; no broker is needed.",
        "  ottla log dump data/orders-0/00000000000000000000.log -p\n"
        "  ottla log dump data/orders-0\n"
        "  ottla log verify data/orders-0\n"
        "  ottla log verify data -o json",
    )
    actions = Actions(options, __name__)
    dump = actions.add(
        "dump",
        "dump:dump",
        "Print what files hold: batches, records, index entries, checkpoints.",
        "  ottla log dump data/orders-0/00000000000000000000.log\n"
        "  ottla log dump data/orders-0/00000000000000000000.log -p --from 100 --to 200\n"
        "  ottla log dump data/orders-0/00000000000000000000.timeindex\n"
        "  ottla log dump data/replication-offset-checkpoint\n"
        "  ottla log dump data/orders-0 -p -o json                   a JSON object a line",
    )
    dump.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files, or folders of partitions")
    dump.add_argument(
        "-p", "--print-data", action="store_true", help="also print each record with key and value"
    )
    dump.add_argument("--from", dest="first", type=int, default=0, metavar="N", help="from this offset on")
    dump.add_argument("--to", dest="last", type=int, metavar="N", help="up to this offset")
    verify = actions.add(
        "verify",
        "verify:verify",
        "Check CRCs, offsets, records and indexes: exit code 0 if there is no problem, 1 if there is.",
        "  ottla log verify data/orders-0/00000000000000000000.log\n"
        "  ottla log verify data/orders-0\n"
        "  ottla log verify data -o json                             every partition of a data folder",
    )
    verify.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="segments, folders of partitions, data folders"
    )
    for action in (dump, verify):
        add_output(action, "-o")
    return options


run = carry_out
