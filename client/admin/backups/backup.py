"""A run of backups, as programs have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

from ...backup.values import BackupCut, BackupProgress
from ...lifecycle import UsedWithAwait


class CutMaker(Protocol):
    """The copying of a cluster. `run.py` has it, which is loaded when a program makes a backup."""

    async def cut(self, progress: Callable[[BackupProgress], None] | None) -> BackupCut:
        """Copy what is new, and return the new cut. Raises KafkaError."""

    async def close(self) -> None:
        """Give the store free."""


class Backup(UsedWithAwait):
    """A run that makes backups of one cluster into one store, and keeps other runs away until it is closed.

        async with await admin.open_backup("file:///var/spool", topics="orders") as backup:
            first = await backup.cut()
            second = await backup.cut()
        print(first.copied, second.copied)

    The run renews a sign of life in the store meanwhile.
    """

    def __init__(self, run: CutMaker) -> None:
        """Keep the run. `Admin.open_backup` makes it."""
        self._run = run

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def cut(self, *, progress: Callable[[BackupProgress], None] | None = None) -> BackupCut:
        """Copy what is new in the cluster up to a consistent cut, and return the cut once it is durable.

        `progress` is called with the progress meanwhile. After a failure the next call continues with what was copied.
        Raises KafkaError: also ObjectStoreFailed, and BackupRefused if another run has taken over.
        """
        return await self._run.cut(progress)

    async def close(self) -> None:
        """Give the store free for the next run. If the store does not answer, the next run watches whether this one is
        alive."""
        await self._run.close()
