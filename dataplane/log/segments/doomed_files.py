"""Files of a log that are renamed, so that they count as deleted at once, and are unlinked later off the event loop.

Unlinking frees blocks. A file system that is mounted with `discard` waits for the disk to discard each of them, which
took up to 120 ms of a broker's event loop beside other writes, even for a file of one block. Renaming frees none.
"""

from __future__ import annotations

from pathlib import Path

from ..storage_errors import disk_error

DOOMED_SUFFIX = ".deleted"


def doom(path: Path) -> list[Path]:
    """Rename a file for deletion. Returns its new path in a list, which is empty if there is no such file.

    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    target = path.with_name(path.name + DOOMED_SUFFIX)
    try:
        path.rename(target)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise disk_error("rename", path, error) from error
    return [target]
