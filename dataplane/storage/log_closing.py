"""The closing of a data folder's logs. After a clean stop the next start trusts all content of their files."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from ...protocol.errors import KafkaError
from ..log import filesystem_sync
from ..log.clean_shutdown import shut_down_together
from ..log.partition_log import PartitionLog
from ..log.storage_errors import disk_error
from ..runtime.threads import spread

TOGETHER_FROM = 256
"""The number of logs from which they share flushes of a whole file system. Fewer logs are flushed one by one, since
other programs may have written much to the file system."""

logger = logging.getLogger(__name__)


def close_logs(logs: Sequence[PartitionLog], path: Path, open_fd: int, *, clean: bool, threads: int) -> bool:
    """Close all logs of the data folder `path`; `clean` flushes them. Returns whether all logs are in the state of a
    clean stop. `open_fd` is a file in the folder that was opened before any write. Blocking."""
    if clean:
        _settle_many(logs, path, open_fd)
    failed: list[PartitionLog] = []

    def close(log: PartitionLog) -> None:
        try:
            log.close(clean=clean)
        except KafkaError as error:
            logger.error("%s was not closed cleanly: %s", log.directory.name, error.message)
            failed.append(log)

    spread("close-logs", close, logs, threads)
    return not failed


def _settle_many(logs: Sequence[PartitionLog], path: Path, open_fd: int) -> None:
    """Make the files of the logs durable together before they are closed one by one, if they are many. An error here
    occurs again when the log is closed.
    """
    unsettled = [log for log in logs if log.failure is None and log.needs_settling]
    if len(unsettled) < TOGETHER_FROM or not filesystem_sync.is_supported(open_fd):
        return

    def flush() -> None:
        try:
            filesystem_sync.syncfs(open_fd)
        except OSError as error:
            raise disk_error("flush", path, error) from error

    try:
        device = os.fstat(open_fd).st_dev
        shut_down_together([log for log in unsettled if os.stat(log.directory).st_dev == device], flush)
    except KafkaError as error:
        logger.warning("%s; each log in it is flushed by itself", error.message)
    except OSError as error:
        logger.warning("%s: %s; each log in it is flushed by itself", path, error.strerror)
