"""`ottla log verify`: checks log segments and partition folders for damage."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ....dataplane.log.inspection import (
    Problem,
    SegmentContents,
    partition_folders,
    segments_in,
    verify_partition,
    verify_segment,
)
from ....protocol.errors import KafkaError
from ...failures import CommandFailed
from ...terminal.output import print_json, print_table
from ...terminal.progress import ProgressLine
from ...terminal.shades import faults
from ...terminal.text import say


def verify(arguments: argparse.Namespace) -> int:
    """Check log segments for damage.

    Print a line for each partition or segment, and every problem; return 1 if there is a problem.
    """
    rows: list[dict[str, Any]] = []
    problems: list[Problem] = []
    targets = [target for path in arguments.paths for target in _targets(path)]
    with ProgressLine() as line:
        for number, path in enumerate(targets, 1):
            line.show(f"{number}/{len(targets)} {path.name}")
            segments, found = _verified(path)
            problems += found
            rows.append(
                {
                    "path": str(path),
                    "segments": len(segments),
                    "start_offset": segments[0].base_offset if segments else 0,
                    "end_offset": segments[-1].next_offset if segments else 0,
                    "batches": sum(len(segment.positions) for segment in segments),
                    "records": sum(segment.records for segment in segments),
                    "problems": len(found),
                }
            )
    if arguments.output == "json":
        listed = [
            {"path": str(problem.path), "position": problem.position, "problem": problem.what}
            for problem in problems
        ]
        print_json({"ok": not problems, "logs": rows, "problems": listed})
        return 1 if problems else 0
    print_table(
        [name.upper().replace("_", "-") for name in rows[0]],
        [[faults(value) if name == "problems" else value for name, value in row.items()] for row in rows],
        spare=("SEGMENTS", "START-OFFSET", "BATCHES"),
        wide=arguments.output == "wide",
    )
    for problem in problems:
        where = "" if problem.position is None else f" at byte {problem.position}"
        say(f"{problem.path}{where}: {problem.what}")
    return 1 if problems else 0


def _targets(path: Path) -> list[Path]:
    """Return the paths to check: the given segment or partition folder itself, or the partition folders of a data
    folder."""
    if path.suffix == ".log" and not path.is_dir():
        return [path]
    if not path.is_dir():
        why = "is no segment (.log) and no folder" if path.exists() else "does not exist"
        raise CommandFailed(f"{path} {why}")
    if segments_in(path):
        return [path]
    if found := partition_folders(path):
        return found
    raise CommandFailed(f"{path} holds no partitions")


def _verified(path: Path) -> tuple[list[SegmentContents], list[Problem]]:
    try:
        if path.is_dir():
            return verify_partition(path)
        contents, problems = verify_segment(path)
    except KafkaError as error:
        raise CommandFailed(error.message) from None
    return [contents], problems
