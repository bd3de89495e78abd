"""Disk failures, as the Kafka error that takes a partition offline."""

from __future__ import annotations

import errno
from pathlib import Path

from ...protocol.errors import ErrorCode, KafkaError

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that pass when there is room again. After any other error the content of a file is not certain."""
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_UNREADABLE = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, errno.EUCLEAN, errno.ESTALE})


class BrokenBatch(Exception):
    """The error for bytes at `position` of a log file that are not a batch that continues the log; `reason` describes
    the fault."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason


def may_pass(error: KafkaError) -> bool:
    """Return whether the system call behind an error of `disk_error` only lacked room, descriptors or memory."""
    return _errno(error) in DISK_FULL or lacks_resources(error)


def lacks_resources(error: KafkaError) -> bool:
    """Return whether the system call behind an error of `disk_error` only lacked descriptors or memory."""
    return _errno(error) in _OUT_OF_RESOURCES


def is_unreadable(error: KafkaError) -> bool:
    """Return whether an error of `disk_error` means that the disk itself refused to read."""
    return _errno(error) in _UNREADABLE


def is_damage(error: KafkaError) -> bool:
    """Return whether bytes on the disk differ from the written ones, as opposed to a system call that failed."""
    return isinstance(error.__cause__, BrokenBatch)


def _errno(error: KafkaError) -> int | None:
    cause = error.__cause__
    return cause.errno if isinstance(cause, OSError) else None


def disk_error(action: str, path: Path, error: OSError) -> KafkaError:
    """Return KAFKA_STORAGE_ERROR for a failed system call, with the attempted action, the path and the system's
    message."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {action} {path}: {error.strerror or error}")


def damage(path: Path, position: int, reason: str) -> KafkaError:
    """Return KAFKA_STORAGE_ERROR for bytes that cannot be the written ones."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged at byte {position}: {reason}")
