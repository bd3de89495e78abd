"""`ottla cluster`: brokers, quorum and health of the cluster, and the placement of replicas and leaders."""

from __future__ import annotations

import argparse
from pathlib import Path

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
    """Return the parser of `ottla cluster`."""
    options = command_parser(
        f"ottla {name}",
        "Show brokers, quorum and the topics in need of replicas or leaders, or carry out an action.",
        "  ottla cluster -b localhost:9092\n"
        "  ottla cluster --all                               every topic with partitions that are not healthy\n"
        "  ottla cluster --data ottla-data                   a local cluster: asks each quorum node as well\n"
        "  ottla cluster --data ottla-data --quorum-leader   only the id of the quorum's leader\n"
        "  ottla cluster health --exit-when-healthy --timeout 60\n"
        "  ottla cluster rebalance --throttle 50MB\n"
        "  ottla cluster decommission 3\n"
        "  ottla cluster restore --from s3://bucket/cluster-1 --dry-run",
    )
    options.add_argument(
        "--data", type=Path, metavar="DIR", help="the folder of a cluster started by 'ottla up'"
    )
    options.add_argument(
        "--quorum-leader", action="store_true", help="print the leader's id alone (needs --data)"
    )
    options.add_argument(
        "--all", action="store_true", help="list every topic whose partitions are not healthy"
    )
    add_connection(options)
    add_output(options, "-o")
    options.set_defaults(carried_out_by=(__name__, "show", "show"))
    actions = Actions(options, __name__, required=False)
    _health(actions)
    _moves(actions)
    _elect(actions)
    disks = actions.add(
        "disks",
        "disks:disks",
        "Show the data folders of brokers.",
        "  ottla cluster disks\n  ottla cluster disks --broker 1 -o json",
    )
    disks.add_argument(
        "--broker", type=int, action="append", metavar="ID", help="only this broker; may be repeated"
    )
    add_common(disks, repeats_output=True)
    _restore(actions)
    return options


run = carry_out


def _health(actions: Actions) -> None:
    health = actions.add(
        "health",
        "health:health",
        "Print whether the cluster is healthy. Exit code 0 if it is, 1 if not.",
        "  ottla cluster health\n"
        "  ottla cluster health --watch\n"
        "  ottla cluster health --exit-when-healthy --timeout 60\n"
        "  ottla cluster health -o json",
    )
    again = health.add_mutually_exclusive_group()
    again.add_argument("-w", "--watch", action="store_true", help="repeat until Control-C")
    again.add_argument(
        "-e", "--exit-when-healthy", action="store_true", help="repeat until the cluster is healthy"
    )
    health.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="with --exit-when-healthy: give up after this time"
    )
    health.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="time between checks (1)"
    )
    add_common(health, repeats_output=True)


def _moves(actions: Actions) -> None:
    reassign = actions.add(
        "reassign",
        "reassign:reassign",
        "Move replicas to the named brokers, or list or cancel moves.",
        "  ottla cluster reassign --topic orders:0 --replicas 1,2,3\n"
        "  ottla cluster reassign plan.json --throttle 50MB --no-wait     Kafka's reassignment JSON\n"
        "  ottla cluster reassign --list\n"
        "  ottla cluster reassign --cancel                                all moves\n"
        "  ottla cluster reassign --unthrottle",
    )
    reassign.add_argument("file", nargs="?", type=Path, metavar="FILE", help="Kafka's reassignment JSON")
    reassign.add_argument(
        "-t", "--topic", action="append", default=[], metavar="TOPIC[:PARTITION,...]", help="may be repeated"
    )
    reassign.add_argument("--replicas", metavar="ID,...", help="ids of the brokers, preferred leader first")
    what = reassign.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show the moves under way")
    what.add_argument("--cancel", action="store_true", help="cancel moves: of FILE, of --topic, or all")
    what.add_argument("--unthrottle", action="store_true", help="lift the throttles that moves left behind")
    _moving(reassign)

    rebalance = actions.add(
        "rebalance",
        "rebalance:rebalance",
        "Spread replicas and leaders evenly over the brokers, racks and hosts, moving as little as possible.",
        "  ottla cluster rebalance --dry-run\n"
        "  ottla cluster rebalance --throttle 50MB\n"
        "  ottla cluster rebalance --dry-run -o json > plan.json     for 'ottla cluster reassign'",
    )
    _moving(rebalance)

    leaving = actions.add(
        "decommission",
        "rebalance:decommission",
        "Move all replicas off a broker. Forget the broker once it is down.",
        "  ottla cluster decommission 3                then stop broker 3, and the same again to forget it\n"
        "  ottla cluster decommission 3 --throttle 50MB --yes",
    )
    leaving.add_argument("broker", type=int, metavar="ID")
    _moving(leaving)


def _moving(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--throttle", metavar="BYTES", help="the most bytes a second that are copied to and from a broker"
    )
    options.add_argument("--no-wait", action="store_true", help="start without waiting for the end")
    options.add_argument("--dry-run", action="store_true", help="only show the plan")
    add_yes(options)
    add_common(options, repeats_output=True)


def _elect(actions: Actions) -> None:
    elect = actions.add(
        "elect",
        "elect:elect",
        "Make the preferred replicas leaders.",
        "  ottla cluster elect\n"
        "  ottla cluster elect --topic orders --topic payments:0,1\n"
        "  ottla cluster elect --unclean --topic orders:0       any live replica; records may be lost",
    )
    elect.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:PARTITION,...]",
        help="only these topics or partitions (default: all)",
    )
    elect.add_argument(
        "--unclean", action="store_true", help="let out-of-sync replicas lead partitions without a leader"
    )
    add_yes(elect)
    add_common(elect, repeats_output=True)


def _restore(actions: Actions) -> None:
    restore = actions.add(
        "restore",
        "restore:restore",
        "Bring topics, records and committed offsets back from a backup, as of a consistent cut.",
        "  ottla cluster restore --from s3://bucket/cluster-1 --dry-run\n"
        "  ottla cluster restore --from s3://bucket/cluster-1\n"
        "  ottla cluster restore --from s3://bucket/cluster-1 --as-of 2026-01-31T12:00:00Z\n"
        "  ottla cluster restore --from file:///srv/backups --as-of 3-17 --topics 'orders.*'\n"
        "  ottla cluster restore --from file:///srv/backups --topics orders --rename orders=orders-of-friday",
    )
    restore.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="URL",
        help="the store of the backup: file:///FOLDER, s3://BUCKET/PREFIX, gs:// or az://",
    )
    restore.add_argument(
        "--as-of",
        metavar="TIME|CUT",
        help="the newest cut up to a time (ms, ISO 8601 in UTC without a zone, or an age such as 2h), or a cut such as "
        "3-17 (default: the newest)",
    )
    restore.add_argument(
        "--topics", metavar="REGEX", help="topics to restore: a pattern for whole names (default: all)"
    )
    restore.add_argument(
        "--groups",
        metavar="REGEX",
        help="groups that get their committed offsets back (default: those of the backup; '' for none)",
    )
    restore.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="FROM=TO",
        help="restore a topic under another name, without committed offsets; may be repeated",
    )
    restore.add_argument("--acls", action="store_true", help="also create the ACLs of the backup")
    restore.add_argument("--quotas", action="store_true", help="also set the client quotas of the backup")
    restore.add_argument(
        "--listen",
        metavar="HOST[:PORT]",
        help="the address of this machine at which all brokers reach it (default: the address on the way to a broker)",
    )
    restore.add_argument("--dry-run", action="store_true", help="only show what would be restored")
    add_common(restore, repeats_output=True)
