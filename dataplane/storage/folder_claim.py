"""The claim of a data folder by a process: a lock against other processes, and a check that it belongs to this node."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ...protocol.errors import ErrorCode, KafkaError
from ..log.durable_files import make_directory
from ..log.storage_errors import disk_error
from .meta_properties import FILE_NAME, MetaProperties

LOCK_FILE = ".lock"


def claim_folder(
    path: Path, cluster_id: str, node_id: int, *, new_directory_id: bytes
) -> tuple[int, MetaProperties]:
    """Create or lock a data folder; a new folder gets `new_directory_id` (16 bytes). It stays locked until the returned
    descriptor is closed.

    Raises KafkaError: KAFKA_STORAGE_ERROR if the folder cannot be used or another process has it,
    INCONSISTENT_CLUSTER_ID if it belongs to another node or cluster, or if it is new and contains data folders of
    brokers.
    """
    try:
        make_directory(path)
        fd = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise disk_error("use data folder", path, error) from error
    try:
        _lock(path, fd)
        meta = MetaProperties.read(path)
        if meta is None:
            _check_new(path)
            meta = MetaProperties(cluster_id, node_id, new_directory_id)
            meta.write(path)
        meta.check(path, cluster_id, node_id)
    except BaseException:
        os.close(fd)
        raise
    return fd, meta


def _check_new(path: Path) -> None:
    """Refuse a new folder that contains data folders of brokers. Otherwise a folder named `broker-1` would be taken for
    a log of the topic `broker`, and renamed."""
    try:
        found = min(path.glob(f"broker-*/{FILE_NAME}"), default=None)
    except OSError as error:
        raise disk_error("read", path, error) from error
    if found is not None:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"{path} holds data of brokers that were started with --processes: start it with --processes, or give "
            f"one of their folders as log.dirs, such as {found.parent}",
        )


def _lock(path: Path, fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # A JVM's FileLock respects this lock only.
    except BlockingIOError:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"data folder {path} is in use by another process"
        ) from None
    except OSError as error:
        raise disk_error("lock", path / LOCK_FILE, error) from error
