"""File descriptors and maps that outlive their owner: counted references, and least recently used caches."""

from __future__ import annotations

import mmap
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ....protocol.errors import KafkaError
from ..storage_errors import disk_error, lacks_resources

_READ_MAX, _APPENDERS_MAX, _SHARE = 256, 1_000, 4
"""The most files of a data folder that are kept open for reading, and for appending (`_APPENDERS_MAX`). Each is at most
a quarter (`_SHARE`) of the process's descriptor limit. Beyond that, files are opened for each use."""
_counting = threading.Lock()


class SharedDescriptor:
    """An open file that is closed when the last holder releases it, even if it was deleted meanwhile."""

    __slots__ = ("_holders", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._holders = 1

    @classmethod
    def open(cls, path: Path, flags: int) -> SharedDescriptor:
        """Open `path`; the caller is the first holder. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        try:
            return cls(os.open(path, flags | os.O_CLOEXEC, 0o644))
        except OSError as error:
            raise disk_error("open", path, error) from error

    def retain(self) -> SharedDescriptor:
        with _counting:
            if self._holders == 0:
                raise RuntimeError("a closed descriptor was retained")
            self._holders += 1
        return self

    def release(self) -> None:
        with _counting:
            self._holders -= 1
            last = self._holders == 0
            if self._holders < 0:
                raise RuntimeError("a descriptor was released more often than retained")
        if last:
            os.close(self.fd)


def _bounded(most: int, limit: int) -> int:
    """Return `most`, or less if the process's descriptor limit is low. `limit` is -1 if there is no limit."""
    return min(most, limit // _SHARE) if limit >= 0 else most


class GrowingLog(Protocol):
    """A log with a file descriptor for appending, which it can close until the next append."""

    def rest(self) -> None:
        """Close the descriptor."""


class FileCache:
    """The open files of the logs in one data folder: descriptors for reading, maps of index files, and the logs that
    have a descriptor for appending.

    Each kind has an upper bound. Beyond it the least recently used descriptors and maps are closed, and of the
    appenders the one that opened first. It is used from the event loop, or from the thread that opens a log before the
    loop sees the log. Only the loop uses the appenders.
    """

    def __init__(
        self, *, descriptors_max: int = _READ_MAX, maps_max: int = 256, appenders_max: int = _APPENDERS_MAX
    ) -> None:
        self._descriptors: OrderedDict[Path, SharedDescriptor] = OrderedDict()
        self._maps: OrderedDict[str, mmap.mmap] = OrderedDict()
        self._appenders: dict[GrowingLog, None] = {}
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._descriptors_max = _bounded(descriptors_max, limit)
        self._maps_max = maps_max
        self._appenders_max = _bounded(appenders_max, limit)
        self._lock = threading.Lock()

    def opening(self, opens: Callable[[], SharedDescriptor]) -> SharedDescriptor:
        """Return the descriptor that `opens` opens. If the process has no descriptor left, the log that opened one for
        appending first closes it.

        Raises KafkaError as `opens` does.
        """
        try:
            return opens()
        except KafkaError as error:
            if not (lacks_resources(error) and self._appenders):
                raise
        self._rest_first()
        return opens()

    def note_appender(self, appender: GrowingLog) -> None:
        """Note that a log has a file open for appending. If there are too many, the log that opened its file first
        closes it."""
        if appender not in self._appenders:
            self._appenders[appender] = None
            if len(self._appenders) > self._appenders_max:
                self._rest_first()

    def forget_appender(self, appender: GrowingLog) -> None:
        """Note that a log has no file open for appending any more."""
        self._appenders.pop(appender, None)

    def _rest_first(self) -> None:
        first = next(iter(self._appenders))
        del self._appenders[first]
        first.rest()

    def descriptor(self, path: Path) -> SharedDescriptor:
        """Return a descriptor for reading `path`, retained for the caller, who must release it."""
        with self._lock:
            found = self._descriptors.get(path)
            if found is not None:
                self._descriptors.move_to_end(path)
                return found.retain()
            opened = SharedDescriptor.open(path, os.O_RDONLY)
            self._descriptors[path] = opened
            evicted = None
            if len(self._descriptors) > self._descriptors_max:
                _, evicted = self._descriptors.popitem(last=False)
            held = opened.retain()
        if evicted is not None:
            evicted.release()
        return held

    def map(self, path: str) -> mmap.mmap | None:
        """Return a map of a whole file for reading, valid until the next call into the cache. Returns None if the file
        is empty or missing.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        with self._lock:
            found = self._maps.get(path)
            if found is not None:
                self._maps.move_to_end(path)
                return found
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    size = os.fstat(fd).st_size
                    mapped = mmap.mmap(fd, size, prot=mmap.PROT_READ) if size else None
                finally:
                    os.close(fd)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise disk_error("map", Path(path), error) from error
            if mapped is None:
                return None
            self._maps[path] = mapped
            if len(self._maps) > self._maps_max:
                self._maps.popitem(last=False)
            return mapped

    def forget(self, path: Path) -> None:
        """Drop the descriptor and map of `path`, which is about to be renamed, deleted or resized."""
        with self._lock:
            descriptor = self._descriptors.pop(path, None)
            self._maps.pop(os.fspath(path), None)
        if descriptor is not None:
            descriptor.release()

    def forget_map(self, path: str) -> None:
        """Drop only the map, since the file is about to be resized."""
        with self._lock:
            self._maps.pop(path, None)

    def close(self) -> None:
        with self._lock:
            held = list(self._descriptors.values())
            self._descriptors.clear()
            self._maps.clear()
        for descriptor in held:
            descriptor.release()
