"""A reader that assembles received bytes into frames. Pure.

Small frames come from one shared buffer. A large frame gets a dedicated buffer, into which the system writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from
from typing import Final

_SIZE_BYTES: Final = 4
SHARED_BYTES: Final = 64 * 1024
"""The maximum size of frames that arrive in the shared buffer."""
COPIED_BYTES: Final = 16 * 1024
"""The maximum size of frames that are copied; a larger frame keeps the buffer in which it arrived."""
_GROWS_FROM_BYTES: Final = 4 * 1024 * 1024
"""The size above which a frame's buffer is at most twice the bytes that have arrived, since the peer's announced size
is not trusted.
"""


class ImpossibleSize(Exception):
    """An error: the announced size of a received frame is outside the limits; `size` is in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a frame of {size} bytes")
        self.size = size


class FrameReader:
    """A buffer that divides the bytes of one connection into frames (messages after their size). A returned frame is
    never written to again."""

    __slots__ = ("_buffer", "_filled", "_frame_bytes", "_least", "_most", "_shared")

    def __init__(self, least: int, most: int) -> None:
        """Create a reader for frames of `least` to `most` bytes, without their size field."""
        self._least, self._most = least, most
        self._shared = self._buffer = bytearray(SHARED_BYTES)
        self._filled = 0
        self._frame_bytes = 0
        """The size, with the size field, of the frame that has a dedicated buffer; 0 for the shared buffer."""

    def room(self) -> memoryview:
        """Return the buffer into which the next received bytes are written; never empty."""
        end = min(len(self._buffer), self._frame_bytes or SHARED_BYTES)
        return memoryview(self._buffer)[self._filled : end]

    def frames(self, received: int) -> Iterator[memoryview]:
        """Yield the frames, without size fields, that are complete after this number of received bytes.

        The caller must exhaust the iterator before it calls `room` again. Raises ImpossibleSize.
        """
        self._filled += received
        if not self._frame_bytes:
            yield from self._shared_frames()
        elif self._filled == self._frame_bytes:
            frame = memoryview(self._buffer)[_SIZE_BYTES : self._frame_bytes].toreadonly()
            self._buffer, self._filled, self._frame_bytes = self._shared, 0, 0
            yield frame
        elif self._filled == len(self._buffer):
            self._give_room(self._frame_bytes, self._buffer)

    def _shared_frames(self) -> Iterator[memoryview]:
        buffer, start, end = self._shared, 0, self._filled
        view, needed, kept = memoryview(buffer).toreadonly(), _SIZE_BYTES, False
        while end - start >= _SIZE_BYTES:
            size: int = unpack_from(">i", buffer, start)[0]
            if not self._least <= size <= self._most:
                raise ImpossibleSize(size)
            needed = _SIZE_BYTES + size
            if end - start < needed:
                break
            frame = view[start + _SIZE_BYTES : start + needed]
            start, needed = start + needed, _SIZE_BYTES
            if size > COPIED_BYTES:
                kept = True
            else:
                frame = memoryview(bytes(frame))
            yield frame
        left = view[start:end]
        if kept:
            self._shared = self._buffer = bytearray(SHARED_BYTES)
        self._filled = len(left)
        if needed > SHARED_BYTES:
            self._give_room(needed, left)
        elif start:
            self._shared[: len(left)] = left

    def _give_room(self, frame_bytes: int, arrived: bytearray | memoryview) -> None:
        """Allocate the dedicated buffer of a frame, and copy the bytes that have arrived."""
        self._frame_bytes = frame_bytes
        self._buffer = bytearray(min(frame_bytes, max(_GROWS_FROM_BYTES, 2 * len(arrived))))
        self._buffer[: len(arrived)] = arrived
