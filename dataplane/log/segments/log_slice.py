"""A range of bytes of a segment, ready for `sendfile`."""

from __future__ import annotations

import os
from collections.abc import Callable

from .descriptors import SharedDescriptor

_PROBE_EVERY_BYTES = 128 * 1024
"""As much as Linux reads ahead by default."""


class LogSlice:
    """Whole record batches in a file: `size` bytes from `position`, starting with the batch at
    `first_offset`.

    Holds the file open until `release()`, even if the segment is deleted meanwhile. An empty slice has
    size 0.
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
        """Whoever reads the file tells its log that the disk refused."""
        if self.on_failure is not None:
            self.on_failure(error)

    def fileno(self) -> int:
        """The descriptor to send from. Raises ValueError if the slice is empty or was released."""
        if self._descriptor is None:
            raise ValueError("an empty or released slice has no file")
        return self._descriptor.fd

    def release(self) -> None:
        """Let the file go; further calls do nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.release()

    def read(self) -> bytes:
        """The bytes themselves, for connections that cannot use `sendfile`.

        Raises EOFError if the file was truncated below the slice since it was made. Raises OSError if the disk refused,
        and the log has been told.
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
        """The bytes themselves if the kernel holds all of them, so that nobody waits for a disk; None else.

        A file system that cannot tell reads them in any case. Raises EOFError and OSError as `read` does.
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
        """Whether the kernel holds the pages that are looked at, so that sending will probably not wait for a
        disk: the last one, and some within. To find out where a slice begins and ends a page was read there,
        so these say little about the rest.
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
                return True  # The file system cannot tell; treat it as one that never waits.
        return True
