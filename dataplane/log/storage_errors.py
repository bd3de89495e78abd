"""Disk failures as the Kafka error that takes a partition offline."""

from __future__ import annotations

import errno
from pathlib import Path

from ...protocol.errors import ErrorCode, KafkaError

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that pass when there is room again; after any other the content of a file is not certain."""


def is_disk_full(error: KafkaError) -> bool:
    """Whether the system call behind an error of `disk_error` only lacked room."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in DISK_FULL


def disk_error(action: str, path: Path, error: OSError) -> KafkaError:
    """KAFKA_STORAGE_ERROR for a failed system call: what was tried, where, and the system's words."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {action} {path}: {error.strerror or error}")


def damage(path: Path, position: int, reason: str) -> KafkaError:
    """KAFKA_STORAGE_ERROR for bytes that cannot be what was written."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged at byte {position}: {reason}")
