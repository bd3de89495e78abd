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
    told = pruning.result
    if not arguments.dry_run and pruning.objects:
        confirm(
            f"Delete {counted(len(told.cuts), 'cut')} and {counted(told.segments, 'segment')} of "
            f"{bytes_text(told.size)} from {store.url}?",
            yes=arguments.yes,
        )
        run_client(_delete(store, pruning), waits_for=None)
    action = "to_delete" if arguments.dry_run else "deleted"
    if arguments.output == "json":
        print_json(
            {
                "kept_cuts": len(told.kept),
                f"{action}_cuts": len(told.cuts),
                f"{action}_segments": told.segments,
                f"{action}_bytes": told.size,
            }
        )
        return
    name = action.upper().replace("_", "-")
    print_table(
        ("KEPT-CUTS", f"{name}-CUTS", f"{name}-SEGMENTS", f"{name}-BYTES"),
        [(len(told.kept), len(told.cuts), told.segments, bytes_text(told.size))],
    )


async def _delete(store: ObjectStore, pruning: Pruning) -> None:
    with progress_bar("deleting", pruning.objects) as progress:
        await prune(store, pruning, progress)
