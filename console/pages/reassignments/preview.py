"""Previews of moves of replicas: lines by partition, totals by broker, and the command. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from ...area import Difference
from ...commands import command, option
from ...formats import count, counted, duration, numbers, size
from .checks import arriving
from .placement import PresentPlacement
from .plans import ReplicaMove

LINES_MAX: Final = 300
"""The most partitions of which a preview shows each; with more partitions it shows each topic."""


def move_lines(
    placement: PresentPlacement, moves: Sequence[ReplicaMove], bytes_per_s: int | None
) -> list[Difference]:
    """Return the lines of a preview: moves by partition or by topic, replicas by broker, bytes and the limit."""
    lines = [_line(move) for move in moves] if len(moves) <= LINES_MAX else _topic_lines(moves)
    return [*lines, *_broker_lines(placement, moves), *_total_lines(moves, bytes_per_s)]


def _line(move: ReplicaMove) -> Difference:
    copied = f" (copies {_bytes(move.copied)})" if move.added else " (copies nothing)"
    return Difference(move.name, numbers(move.before), numbers(move.after) + copied)


def _topic_lines(moves: Sequence[ReplicaMove]) -> list[Difference]:
    lines = []
    for topic, some in groupby(moves, key=lambda move: move.partition.topic):
        of_topic = list(some)
        before = numbers(sorted({broker for move in of_topic for broker in move.before}))
        after = numbers(sorted({broker for move in of_topic for broker in move.after}))
        copied = _bytes(_copied(of_topic))
        what = f"{topic}, {counted(len(of_topic), 'partition')}"
        lines.append(Difference(what, f"on brokers {before}", f"on brokers {after} (copies {copied})"))
    return lines


def _broker_lines(placement: PresentPlacement, moves: Sequence[ReplicaMove]) -> list[Difference]:
    before = Counter(broker for move in moves for broker in move.before)
    after = Counter(broker for move in moves for broker in move.after)
    lines, copied = [], arriving(moves)
    for broker in sorted({*before, *after}):
        if before[broker] == after[broker] and not copied[broker]:
            continue
        arrives = f", copies {size(copied[broker])}" if copied[broker] else ""
        free = f" of {size(placement.free[broker])} free" if arrives and broker in placement.free else ""
        lines.append(
            Difference(
                f"broker {broker}: replicas of these partitions",
                f"{before[broker]:,}",
                f"{after[broker]:,}{arrives}{free}",
            )
        )
    return lines


def _total_lines(moves: Sequence[ReplicaMove], bytes_per_s: int | None) -> list[Difference]:
    lines = [Difference("bytes to copy", None, _bytes(_copied(moves)))]
    if bytes_per_s is not None:
        seconds = max(arriving(moves).values(), default=0) / bytes_per_s
        lasts = f", so the copies take {duration(seconds)} or more" if seconds >= 1 else ""
        limit = f"{count(bytes_per_s)} bytes/s{lasts}. It stays until you lift it"
        lines.append(Difference("limit for each broker", None, limit))
    return lines


def _copied(moves: Sequence[ReplicaMove]) -> int | None:
    """Return the bytes that moves copy; None if the size of a copied partition is unknown."""
    copied = [move.copied for move in moves]
    return None if None in copied else sum(some or 0 for some in copied)


def _bytes(copied: int | None) -> str:
    return "an unknown number of bytes" if copied is None else size(copied)


def move_command(moves: Sequence[ReplicaMove], bytes_per_s: int | None) -> str:
    """Return the `ottla cluster reassign` command for these moves; empty if it would be too long for a terminal."""
    words = ["--no-wait", "--yes"]
    if bytes_per_s is not None:
        words = [*option("--throttle", str(bytes_per_s)), *words]
    if len(moves) == 1:
        (move,) = moves
        where = f"{move.partition.topic}:{move.partition.partition}"
        replicas = ",".join(map(str, move.after))
        return command(
            "cluster", "reassign", options=[*option("--topic", where), "--replicas", replicas, *words]
        )
    tree = {
        "version": 1,
        "partitions": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "replicas": list(move.after),
            }
            for move in moves
        ],
    }
    text = json.dumps(tree, separators=(",", ":"))
    return command("cluster", "reassign", names=["/dev/stdin"], options=words, given=text)
