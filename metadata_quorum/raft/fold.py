"""Snapshots made by folding: from the newest snapshot and the journal, without the running state machine.

`apply` is pure, so another process can compute the state after any committed index from the files alone. The event loop
of the quorum node never serialises its state. Run as `python -m ottla.metadata_quorum.raft.fold`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import snapshots
from .disk import Directory, Disk
from .entries import unpack_group
from .journal_recovery import read_entries
from .machine import Machine, load_factory
from .snapshots import FOLDED_NAME, Snapshot

_NICENESS = 5


def fold(disk: Disk, salt: int, factory: Callable[[], Machine], base: Snapshot | None, index: int) -> None:
    """Write the snapshot up to `index`, which is durable in the journal, as `FOLDED_NAME`. Blocks.

    `base` is the snapshot to start from, if any. Raises ValueError when the files do not reach `index`.
    """
    machine = factory()
    applied = 1
    if base is not None:
        machine.restore(snapshots.read_chunks(disk, base.name))
        applied = base.index
    entries = read_entries(disk, salt)
    if not entries or not entries[0][1] <= applied <= index <= entries[-1][1]:
        span = f"{entries[0][1]}..{entries[-1][1]}" if entries else "nothing"
        raise ValueError(f"cannot fold {applied}..{index}: the journal holds {span}")
    first = entries[0][1]
    for payload, position, term in entries[applied + 1 - first : index + 1 - first]:
        for command in unpack_group(payload):
            machine.apply(position, term, command)
    snapshots.write(disk, FOLDED_NAME, index, entries[index - first][2], machine.snapshot())


def fold_folder(arguments: Sequence[str]) -> None:
    """Run `fold` with command line arguments: `directory salt factory index base-name-or-empty base-index`."""
    directory, salt, factory, index, base_name, base_index = arguments
    base = Snapshot(base_name, int(base_index), 0, 0) if base_name else None
    fold(Directory(Path(directory)), int(salt), load_factory(factory), base, int(index))


def main(arguments: Sequence[str]) -> None:
    """Run as a separate process, with a lower priority than the node."""
    os.nice(_NICENESS)
    fold_folder(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
