"""`ottla cluster health`: missing and fenced brokers, leaderless and under-replicated partitions, and the state of the
quorum."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any

from ....client.admin import Admin
from ....client.failures import NoBrokerReachable
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...run_client import run_client
from ...terminal.output import print_json
from ...terminal.progress import ProgressLine
from ...terminal.shades import Shade, Shaded
from ...terminal.text import say
from .report import since_text
from .survey import Health, survey

LISTED_MAX = 10
"""The most partitions that a line for people names."""


def health(arguments: argparse.Namespace) -> int:
    """Print the cluster's health once, repeatedly until the cluster is healthy, or until Control-C; return the exit
    code."""
    if arguments.timeout is not None and not arguments.exit_when_healthy:
        raise UsageError("--timeout goes with --exit-when-healthy")
    if arguments.interval <= 0:
        raise UsageError(f"--interval takes seconds above 0, not {arguments.interval:g}")
    deadline = None if arguments.timeout is None else time.monotonic() + arguments.timeout
    if not arguments.watch and not arguments.exit_when_healthy:
        return _show(run_client(_look(arguments)), arguments)
    found = _followed(arguments, deadline)
    if found is None:
        raise CommandFailed(f"no broker answered within {arguments.timeout:g} s")
    return 0 if arguments.watch and found.healthy else _show(found, arguments)


def _followed(arguments: argparse.Namespace, deadline: float | None) -> Health | None:
    """Look at the cluster's health again and again, and return it when the command is to end: when it is healthy, if
    that ends the command, or at the deadline. None if no broker answers then. With `--watch` each change is printed."""
    before: Health | None = None
    with ProgressLine() as line:
        while True:
            now = run_client(_look_if_reachable(arguments))
            if arguments.watch and now is not None and now != before:
                _show(now, arguments)
            if now is not None and now.healthy and arguments.exit_when_healthy:
                return now
            if deadline is not None and time.monotonic() >= deadline:
                return now
            if not arguments.watch:
                line.show(f"not healthy yet: {'no broker answers' if now is None else _problems(now)[0][1]}")
            before = now
            time.sleep(arguments.interval)


async def _look_if_reachable(arguments: argparse.Namespace) -> Health | None:
    """Return the cluster's health, or None while no broker answers."""
    try:
        return await _look(arguments)
    except NoBrokerReachable:
        return None


async def _look(arguments: argparse.Namespace) -> Health:
    async with Admin(**connection_of(arguments)) as admin:
        return (await survey(admin)).health


def _show(found: Health, arguments: argparse.Namespace) -> int:
    if arguments.output == "json":
        print_json({"healthy": found.healthy, **asdict(found)})
        return 0 if found.healthy else 1
    say(Shaded("healthy", Shade.GOOD) if found.healthy else Shaded("NOT healthy", Shade.BAD))
    for shade, problem in _problems(found):
        say(Shaded(f"  {problem}", shade))
    return 0 if found.healthy else 1


def _problems(found: Health) -> list[tuple[Shade, str]]:
    """Return a line for each problem of a cluster, with its colour."""
    now_s, since_ms = time.time(), found.fenced_since_ms
    fenced = [f"{broker}{since_text(since_ms.get(broker), now_s)}" for broker in found.brokers_fenced]
    lines: list[tuple[Shade, str, list[Any]]] = [
        (Shade.IMPAIRED, "quorum nodes that do not vote before they have caught up", found.quorum_abstaining),
        (Shade.BAD, "quorum nodes that the quorum's leader does not hear", found.quorum_silent),
        (Shade.BAD, "brokers offline", found.brokers_down),
        (Shade.BAD, "brokers fenced", fenced),
        (Shade.BAD, "offline partitions", found.offline),
        (Shade.BAD, "partitions below min.insync.replicas", found.below_min_isr),
        (Shade.IMPAIRED, "under-replicated partitions", found.under_replicated),
    ]
    problems: list[tuple[Shade, str]] = []
    if found.quorum_problem:
        problems.append((Shade.BAD, found.quorum_problem))
    elif found.quorum_leader is None:
        problems.append((Shade.BAD, "the quorum has no leader"))
    for shade, label, named in lines:
        if named:
            more = f" and {len(named) - LISTED_MAX} more" if len(named) > LISTED_MAX else ""
            listed = f"{', '.join(map(str, named[:LISTED_MAX]))}{more}"
            problems.append((shade, f"{label}: {len(named)} ({listed})"))
    return problems
