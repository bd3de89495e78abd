"""`ottla backup prune`: deletes old cuts, and the segments that no remaining cut needs."""

from __future__ import annotations

import argparse
import time

from ....client.backup.prune import Pruning, plan_pruning, prune
from ....client.objects.store import ObjectStore
from ...arguments.selection import timestamp_ms
from ...failures import UsageError
from ...run_client import run_client
from ...terminal.confirmation import confirm
from ...terminal.output import bytes_text, print_json, print_table
from ...terminal.progress import progress_bar
from ...terminal.text import counted
from .stores import opened


def prune_backup(arguments: argparse.Namespace) -> None:
    """Delete what a pruning plans, after a confirmation, and print the numbers."""
    if arguments.keep is None and arguments.older_than is None:
        raise UsageError("--keep N or --older-than AGE says which cuts are deleted")
    if arguments.keep is not None and arguments.keep < 1:
        raise UsageError(f"--keep is at least 1, not {arguments.keep}: the newest cut stays")
    older_than_ms = None
    if arguments.older_than is not None:
        older_than_ms = timestamp_ms(arguments.older_than, int(time.time() * 1000))
    store = opened(arguments.url, "URL")
    pruning = run_client(
        plan_pruning(store, keep=arguments.keep, older_than_ms=older_than_ms), waits_for="the store"
    )
    size = sum(pruning.segments.values())
    if not arguments.dry_run and (pruning.cuts or pruning.segments):
        confirm(
            f"Delete {counted(len(pruning.cuts), 'cut')} and {counted(len(pruning.segments), 'segment')} of "
            f"{bytes_text(size)} from {store.url}?",
            yes=arguments.yes,
        )
        run_client(_delete(store, pruning), waits_for=None)
    action = "to_delete" if arguments.dry_run else "deleted"
    if arguments.output == "json":
        print_json(
            {
                "kept_cuts": len(pruning.kept),
                f"{action}_cuts": len(pruning.cuts),
                f"{action}_segments": len(pruning.segments),
                f"{action}_bytes": size,
            }
        )
        return
    name = action.upper().replace("_", "-")
    print_table(
        ("KEPT-CUTS", f"{name}-CUTS", f"{name}-SEGMENTS", f"{name}-BYTES"),
        [(len(pruning.kept), len(pruning.cuts), len(pruning.segments), bytes_text(size))],
    )


async def _delete(store: ObjectStore, pruning: Pruning) -> None:
    with progress_bar("deleting", len(pruning.cuts) + len(pruning.segments)) as progress:
        await prune(store, pruning, progress)
