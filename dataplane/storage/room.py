"""Free space in a data folder: a trial write, and the time for which trials have to succeed after a shortage."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from ...protocol.errors import KafkaError
from ..log.storage_errors import disk_error

TRIAL_BYTES = 4 << 20
"""Bytes that a trial writes, since a quota can refuse a write even if the file system has free space."""
_FREE_BYTES_MAX = 256 << 20
_SHARE = 100
_TRIAL_NAME = "room-trial.tmp"
_PIECE_BYTES = 1 << 20

HOLDS_S = 2.0
"""Seconds for which trials have to succeed before a folder counts as having room."""
HOLDS_S_MAX = 120.0
_RELAPSE_S = 120.0
"""Seconds after the end of a shortage within which another shortage counts as a relapse."""


def try_room(folder: Path) -> None:
    """Write a file in `folder` and delete it. Blocking.

    The file system must have 1 % of its size free, at most 256 MiB. With less, the next records would fill it again.
    Raises KafkaError: KAFKA_STORAGE_ERROR, caused by the OSError that names the reason.
    """
    path = folder / _TRIAL_NAME
    try:
        volume = os.statvfs(folder)
        least = max(TRIAL_BYTES, min(_FREE_BYTES_MAX, volume.f_blocks * volume.f_frsize // _SHARE))
        free = volume.f_bavail * volume.f_frsize
        if free < least:
            raise OSError(errno.ENOSPC, f"{free} bytes are free, at least {least} are needed")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.unlink(path)
            piece = bytes(_PIECE_BYTES)
            left = TRIAL_BYTES
            while left:
                left -= os.write(descriptor, piece[:left])
        finally:
            os.close(descriptor)
    except OSError as error:
        raise disk_error("write to", folder, error) from error


@dataclass(slots=True)
class Room:
    """The state of one data folder with regard to disk space: whether it can be written, and how the latest trial
    writes went. Times are seconds of one monotonic clock.
    """

    lack: KafkaError | None = None
    """The reason why the folder cannot be written; None while it can."""
    _holds_s: float = HOLDS_S
    _good_since: float | None = None
    _ended_at: float | None = None

    def ran_out(self, error: KafkaError, now_s: float) -> None:
        """Note that a write has failed with `error`, so that the folder counts as full. After a recent shortage, trial
        writes have to succeed for twice as long.
        """
        if self.lack is None:
            is_relapse = self._ended_at is not None and now_s - self._ended_at < _RELAPSE_S
            self._holds_s = min(self._holds_s * 2, HOLDS_S_MAX) if is_relapse else HOLDS_S
        self.lack = error
        self._good_since = None

    def tried(self, error: KafkaError | None, now_s: float) -> bool:
        """Note the outcome of a trial write: `error`, or None if it succeeded. Returns True if the shortage ends with
        it.
        """
        if error is not None:
            self.ran_out(error, now_s)
            return False
        if self._good_since is None:
            self._good_since = now_s
        if now_s - self._good_since < self._holds_s:
            return False
        self.lack, self._ended_at = None, now_s
        return True
