"""A run of backups, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from ..admin.backups import backup
from ..backup.values import BackupCut, BackupProgress
from .loop_thread import LoopThread


class Backup:
    """A run that makes backups of one cluster into one store, and keeps other runs away until it is closed. See
    `ottla.Backup`."""

    def __init__(self, loop: LoopThread, inner: backup.Backup) -> None:
        self._loop = loop
        self._inner = inner
        loop.opened(self, inner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self, *, progress: Callable[[BackupProgress], None] | None = None) -> BackupCut:
        """Copy what is new in the cluster up to a consistent cut, and return the cut once it is durable. See
        `ottla.Backup.cut`."""
        return self._loop.run(self._inner.cut(progress=progress))

    def close(self) -> None:
        """Give the store free for the next run. See `ottla.Backup.close`.

        It does nothing in a forked child, where the run belongs to the parent.
        """
        if self._loop.left_behind:
            return
        try:
            self._loop.run(self._inner.close())
        finally:
            self._loop.closed(self)
