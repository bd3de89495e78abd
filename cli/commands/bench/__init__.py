"""`ottla bench`: measures produce rate, consume rate and end-to-end latency between a cluster and this client."""

from __future__ import annotations

import argparse

from ...arguments.options import CommandParser, add_connection, add_output, command_parser
from ...arguments.selection import bytes_of, count_of
from ...connection.precedence import connection_of
from ...failures import UsageError

PHASES = ("produce", "consume", "latency")
RECORD_BYTES_MAX = 1_000_000


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla bench`."""
    options = command_parser(
        f"ottla {name}",
        "Measure produce and consume rates and the time from send to receipt, of Ottla or any Kafka cluster.",
        "  ottla bench\n"
        "  ottla bench produce consume -n 1M -s 1kB --acks all -z lz4\n"
        "  ottla bench latency --latency-records 5000\n"
        "  ottla bench -b kafka.example:9092 --topic load-test -o json\n"
        "\n"
        "The client is Ottla's own, in one process: rates are what it reaches, not the most a cluster can do.",
    )
    options.add_argument("phases", nargs="*", metavar="PHASE", help=f"{', '.join(PHASES)} (default: all)")
    options.add_argument(
        "-n",
        "--records",
        default="100k",
        metavar="N",
        help="number of records to produce and consume, such as 2000, 2k or 1M (100k)",
    )
    options.add_argument("-s", "--size", default="1kB", metavar="BYTES", help="size of each value (1kB)")
    options.add_argument(
        "--latency-records",
        default="1k",
        metavar="N",
        help="number of records that are sent one after the other (1k)",
    )
    options.add_argument(
        "-t",
        "--topic",
        metavar="TOPIC",
        help="an existing topic (default: a new topic, deleted at the end)",
    )
    options.add_argument(
        "-p", "--partitions", type=int, default=6, metavar="N", help="partitions of the new topic (6)"
    )
    options.add_argument(
        "-r",
        "--replication-factor",
        type=int,
        default=-1,
        metavar="N",
        help="replicas of the new topic (default: the cluster's)",
    )
    options.add_argument("--acks", choices=("all", "1", "0"), default="all", help="default: all")
    options.add_argument(
        "-z",
        "--compression",
        default="none",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        help="how batches are compressed (none)",
    )
    options.add_argument(
        "--linger-ms", type=float, default=5, metavar="MS", help="how long a batch waits for more records (5)"
    )
    options.add_argument(
        "--batch-size", default="64KiB", metavar="BYTES", help="size of a batch before compression (64KiB)"
    )
    add_connection(options)
    add_output(options, "-o")
    return options


def run(arguments: argparse.Namespace) -> int:
    """Measure the cluster's produce rate, consume rate and latency, and print a line for each phase."""
    if unknown := [phase for phase in arguments.phases if phase not in PHASES]:
        raise UsageError(f"bench: there is no {unknown[0]!r} to measure; there are {', '.join(PHASES)}")
    records = count_of(arguments.records, "-n")
    latency_records = count_of(arguments.latency_records, "--latency-records")
    size = bytes_of(arguments.size, "-s")
    if not 8 <= size <= RECORD_BYTES_MAX:
        raise UsageError(f"-s takes 8 to {RECORD_BYTES_MAX} bytes, not {size}")
    from ...terminal.output import print_json, print_table
    from .measurements import BenchOptions, measure

    results = measure(
        BenchOptions(
            connection=connection_of(arguments),
            phases=tuple(arguments.phases) or PHASES,
            records=records,
            latency_records=latency_records,
            value_bytes=size,
            topic=arguments.topic,
            partitions=arguments.partitions,
            replication_factor=arguments.replication_factor,
            acks=arguments.acks,
            compression=None if arguments.compression == "none" else arguments.compression,
            linger_ms=arguments.linger_ms,
            batch_bytes=bytes_of(arguments.batch_size, "--batch-size"),
        )
    )
    if arguments.output == "json":
        print_json([result.as_json() for result in results])
    else:
        print_table(
            ("PHASE", "RECORDS", "SECONDS", "RECORDS/S", "MB/S", "P50-MS", "P99-MS", "P99.9-MS", "MAX-MS"),
            [result.row() for result in results],
        )
    return 0
