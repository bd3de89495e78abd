"""A range of bytes of a segment, ready for `sendfile`."""

from __future__ import annotations

import os
from collections.abc import Callable

from .descriptors import SharedDescriptor

_PROBE_EVERY_BYTES = 128 * 1024
"""The number of bytes that Linux reads ahead by default."""


class LogSlice:
    """Whole record batches in a file: `size` bytes from `position`, starting with the batch at `first_offset`.

    The slice keeps the file open until `release()`, even if the segment is deleted meanwhile. An empty slice has size
    0.
    """

    __slots__ = ("_descriptor", "first_offset", "on_failure", "position", "size")

    def __init__(
        self, descriptor: SharedDescriptor | None, position: int, size: int, first_offset: int
    ) -> None:
        self._descriptor = descriptor
        self.position = position
        self.size = size
        self.first_offset = first_offset
        self.on_failure: Callable[[OSError], None] | None = None

    def failed(self, error: OSError) -> None:
        """Report to the log that the disk refused to read. To be called by the reader of the file."""
        if self.on_failure is not None:
            self.on_failure(error)

    def fileno(self) -> int:
        """Return the descriptor of the slice's file, from which `sendfile` sends. Raises ValueError if the slice is
        empty or was released."""
        if self._descriptor is None:
            raise ValueError("an empty or released slice has no file")
        return self._descriptor.fd

    def release(self) -> None:
        """Let the slice's file be closed; further calls do nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.release()

    def read(self) -> bytes:
        """Return the bytes, for connections that cannot use `sendfile`.

        Raises EOFError if the file was truncated below the slice's end. Raises OSError if the disk refused; then the
        log has been notified.
        """
        if self.size == 0:
            return b""
        try:
            data = os.pread(self.fileno(), self.size, self.position)
        except OSError as error:
            self.failed(error)
            raise
        if len(data) != self.size:
            raise EOFError("the log was truncated while a slice of it was read")
        return data

    def read_cached(self) -> bytes | bytearray | None:
        """Return the bytes if the kernel's cache has all of them, so that the caller never waits for a disk; None
        otherwise.

        A file system that does not support this reads them in any case. Raises EOFError and OSError as `read` does.
        """
        data = bytearray(self.size)
        try:
            read = os.preadv(self.fileno(), [data], self.position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return self.read()
        return data if read == self.size else None

    def is_cached(self) -> bool:
        """Return whether the kernel's cache has some probed pages, so that sending will probably not wait for a disk.

        The probes are the last page and some within. The first and last pages were read when the slice was located, so
        they prove little about the rest.
        """
        if self.size == 0:
            return True
        probe, fd, last = bytearray(1), self.fileno(), self.position + self.size - 1
        within = range(self.position + min(self.size, _PROBE_EVERY_BYTES) // 2, last, _PROBE_EVERY_BYTES)
        for position in (*within, last):
            try:
                if os.preadv(fd, [probe], position, os.RWF_NOWAIT) != 1:
                    return False
            except BlockingIOError:
                return False
            except OSError:
                return True  # The file system does not support this; treat it as one that never waits.
        return True
