"""A note in a data folder: the identity of the page cache with all writes to the folder's logs.

The note tells the next start whether only the broker's process died, or the machine, too. It is removed before any log
is opened. It is written again once all logs of the folder are open and undamaged, before any append. So the note never
covers a recovery that was cut short. A write that the disk refuses removes the note, too.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from ...protocol.checksum import crc32c
from ...protocol.errors import KafkaError
from ..log import page_cache
from ..log.durable_files import read_file, sync_directory, write_atomically
from ..log.page_cache import PageCache, UnknownPageCache
from ..log.storage_errors import disk_error

FILE_NAME = "page-cache"
_VERSION = 1
_CRC_DIGITS = 8

logger = logging.getLogger(__name__)


class PageCacheNote:
    """The note in the data folder `path`, whose id is `directory_id`."""

    def __init__(self, path: Path, directory_id: bytes) -> None:
        self._path = path
        self._directory_id = directory_id
        self._is_void = False

    def take(self) -> str | None:
        """Read the note and remove it durably. Returns None if the page cache is still the noted one; otherwise the
        reason why it is not known to be.

        Raises KafkaError: KAFKA_STORAGE_ERROR if the note cannot be removed, since it would cover later writes.
        """
        file = self._path / FILE_NAME
        unread: OSError | None = None
        data = b""
        try:
            data = read_file(file)
        except FileNotFoundError:
            return f"it has no file {FILE_NAME}"
        except OSError as error:
            unread = error
        try:
            file.unlink()
        except OSError as error:
            raise disk_error("remove", file, error) from error
        sync_directory(self._path)
        try:
            if unread is not None:
                raise ValueError(unread.strerror)
            noted, now = self._decoded(data), page_cache.page_cache_of(self._path)
        except UnknownPageCache as unknown:
            return str(unknown)
        except (ValueError, TypeError, KeyError) as error:
            return f"{file} cannot be read ({error})"
        if noted.boot != now.boot:
            return "the machine has restarted since"
        if noted != now:
            return "its file system was mounted again since or met an error, or the folder was copied"
        return None

    def write(self) -> None:
        """Write the note durably, unless it became void. An error is logged: then the next start reads all records."""
        if self._is_void:
            return
        try:
            present = page_cache.page_cache_of(self._path)
        except UnknownPageCache:
            return
        content = {"version": _VERSION, "directory": self._directory_id.hex(), "cache": list(present)}
        data = json.dumps(content, separators=(",", ":")).encode()
        try:
            write_atomically(self._path / FILE_NAME, b"%08x" % crc32c(data) + data, sync=True)
        except KafkaError as error:
            logger.warning("%s", error.message)
        if self._is_void:
            self._remove()  # A thread noticed the reason meanwhile.

    def void(self) -> None:
        """Remove the note for good, since pages of the folder's files may be lost, or a log is damaged. It may be
        called in any thread.

        The removal need not be durable: only a start before the machine restarts would believe the note.
        """
        if not self._is_void:
            self._is_void = True
            self._remove()

    def _remove(self) -> None:
        try:
            (self._path / FILE_NAME).unlink(missing_ok=True)
        except OSError as error:
            logger.warning("cannot remove %s: %s", self._path / FILE_NAME, error.strerror)

    def _decoded(self, data: bytes) -> PageCache:
        """Return the noted page cache. Raises ValueError, among others, if the note is damaged or of another folder."""
        with memoryview(data) as view:
            if int(data[:_CRC_DIGITS], 16) != crc32c(view[_CRC_DIGITS:]):
                raise ValueError("its CRC-32C is another")
        content = json.loads(data[_CRC_DIGITS:])
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']} is not {_VERSION}")
        if content["directory"] != self._directory_id.hex():
            raise ValueError(f"it is of data folder {content['directory']}")
        boot, *numbers = content["cache"]
        if not isinstance(boot, str) or not all(isinstance(number, int) for number in numbers):
            raise ValueError("it does not name a page cache")
        return PageCache._make((boot, *numbers))
