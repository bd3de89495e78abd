"""`ottla backup verify`: reads every object of a backup."""

from __future__ import annotations

import argparse

from ....client.backup.values import BackupVerification
from ....client.backup.verify import verify
from ....client.objects.store import ObjectStore
from ...run_client import run_client
from ...terminal.output import bytes_text, print_json, print_table
from ...terminal.progress import ProgressLine
from ...terminal.text import note
from .stores import opened


def verify_backup(arguments: argparse.Namespace) -> int:
    """Verify a backup, and print the damages. Returns 1 if a cut cannot be restored."""
    found = run_client(_verify(opened(arguments.url, "URL")), waits_for=None)
    if arguments.output == "json":
        print_json(
            {
                "cuts": found.cuts,
                "segments": found.segments,
                "bytes": found.size,
                "damages": list(found.damages),
                "broken_cuts": list(found.broken_cuts),
            }
        )
    else:
        for damage in found.damages:
            note(damage)
        print_table(
            ("CUTS", "BROKEN-CUTS", "SEGMENTS", "BYTES", "DAMAGES"),
            [
                (
                    found.cuts,
                    len(found.broken_cuts),
                    found.segments,
                    bytes_text(found.size),
                    len(found.damages),
                )
            ],
        )
    return 1 if found.damages else 0


async def _verify(store: ObjectStore) -> BackupVerification:
    with ProgressLine() as line:
        return await verify(
            store,
            lambda done, total: line.show(f"verified {bytes_text(done)} of {bytes_text(total)}"),
        )
