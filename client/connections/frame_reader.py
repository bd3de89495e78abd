"""Puts together what a socket brings into frames: small ones from one buffer, a large one in a buffer of its own, where
the system writes it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from
from typing import Final

_SIZE_BYTES: Final = 4
SHARED_BYTES: Final = 64 * 1024
"""What is not larger arrives with others."""
COPIED_BYTES: Final = 16 * 1024
"""Whoever gets a larger one keeps the buffer in which it came."""
_GROWS_FROM_BYTES: Final = 4 * 1024 * 1024
"""Of a larger frame no more than twice of what has arrived is allocated: its size is only what the other side says."""


class ImpossibleSize(Exception):
    """A frame is announced that cannot be one; `size` is in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a frame of {size} bytes")
        self.size = size


class FrameReader:
    """Of one connection. A frame that it has given is never written to again."""

    __slots__ = ("_buffer", "_filled", "_frame_bytes", "_least", "_most", "_shared")

    def __init__(self, least: int, most: int) -> None:
        """Frames have from `least` to `most` bytes, without their size."""
        self._least, self._most = least, most
        self._shared = self._buffer = bytearray(SHARED_BYTES)
        self._filled = 0
        self._frame_bytes = 0
        """Of the frame, with its size, that has the buffer for itself; 0 while the buffer is shared."""

    def room(self) -> memoryview:
        """Where to put what comes next; never empty."""
        end = min(len(self._buffer), self._frame_bytes or SHARED_BYTES)
        return memoryview(self._buffer)[self._filled : end]

    def frames(self, received: int) -> Iterator[memoryview]:
        """The frames that are whole now that so many bytes were put into the room, without their sizes. To be gone
        through before there is room again. Raises ImpossibleSize."""
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
        """To a frame of which this much is there."""
        self._frame_bytes = frame_bytes
        self._buffer = bytearray(min(frame_bytes, max(_GROWS_FROM_BYTES, 2 * len(arrived))))
        self._buffer[: len(arrived)] = arrived
