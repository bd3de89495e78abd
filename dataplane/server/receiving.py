"""The bytes of one connection that were received and not handled yet, and the memory they are in."""

from __future__ import annotations

import struct
from typing import Generic, TypeVar

from .buffers import SMALLEST_BYTES, Buffer, BufferPool
from .receive_budget import MEDIUM_BYTES, Grant, ReceiveBudget, Receiver

_SIZE = struct.Struct(">i")
# The first bytes of a frame are read into a buffer of the last frame's size, up to this.
_LARGEST_GUESS_BYTES = MEDIUM_BYTES

_Owner = TypeVar("_Owner", bound=Receiver)


class ReceiveBuffer(Generic[_Owner]):
    """A pooled buffer with a part of the stream, `view[start:end]`, which begins with a frame.

    A frame that is larger than the smallest buffer has to fill that first, so that a claim alone commits no memory.
    Then it waits until the budget grants its whole size.
    """

    __slots__ = ("_budget", "_buffer", "_owner", "_pool", "end", "grant", "last_frame_bytes", "start", "view")

    def __init__(self, owner: _Owner, pool: BufferPool, budget: ReceiveBudget[_Owner]) -> None:
        self._owner = owner
        self._pool = pool
        self._budget = budget
        # Invariant: no buffer means start == end == 0.
        self._buffer: Buffer | None = None
        self.view = memoryview(b"")
        self.start = self.end = 0
        #: leave to hold a buffer that is not of the smallest, or the wait for it
        self.grant: Grant[_Owner] | None = None
        #: size of the last frame that was handed on, without its own length
        self.last_frame_bytes = 0

    @property
    def occupied_bytes(self) -> int:
        """The size of the buffer."""
        return len(self.view)

    @property
    def waits(self) -> bool:
        """The budget has no room for the frame yet."""
        return self.grant is not None and self.grant.wanted_bytes > 0

    def needed(self) -> int:
        """The size of the frame at `start`, with its length, as far as it is known."""
        if self.end - self.start < 4:
            return 4
        return 4 + int(_SIZE.unpack_from(self.view, self.start)[0])

    def make_room(self) -> bool:
        """Have room for more of the frame at `start`; False if it has to wait for the budget."""
        if self._buffer is None:
            size = self._guess()
            if size > SMALLEST_BYTES:
                self.grant = self._budget.take(self._owner, size)
            self._buffer = self._pool.acquire(SMALLEST_BYTES if self.grant is None else size)
            self.view = memoryview(self._buffer)
            return True
        held = self.end - self.start
        if held == 0:
            self.start = self.end = 0
            return True
        needed = self.needed()
        if self.start + needed <= len(self.view):
            return True
        self.view[:held] = self.view[self.start : self.end]
        self.start, self.end = 0, held
        if needed <= len(self.view) or held < SMALLEST_BYTES:
            return True
        return self._grow(needed)

    def _grow(self, needed: int) -> bool:
        assert self._buffer is not None
        if self.grant is None or self.grant.held_bytes < needed:
            self.grant = self._budget.ask(self._owner, needed, self.grant)
            if self.grant.wanted_bytes:
                return False
        larger = self._pool.acquire(needed)
        view = memoryview(larger)
        view[: self.end] = self.view[: self.end]
        self.view = view
        self._pool.release(self._buffer)
        self._buffer = larger
        return True

    def _guess(self) -> int:
        """Room for the next frame: as for the last one."""
        return min(max(4 + self.last_frame_bytes, SMALLEST_BYTES), _LARGEST_GUESS_BYTES)

    def read_limit(self) -> int:
        """Where to stop reading: at the end of a large frame, so that the next one need not be moved."""
        held = self.end - self.start
        room = len(self.view)
        if held == 0:
            return min(self._guess(), room)
        if held >= 4:
            frame_end = self.start + self.needed()
            if frame_end - self.end >= SMALLEST_BYTES or room > _LARGEST_GUESS_BYTES:
                return min(frame_end, room)
        return room

    def received(self, size_bytes: int) -> None:
        """So much more is in the buffer."""
        self.end += size_bytes
        if self.grant is not None:
            self.grant.arrived_bytes += size_bytes

    def take_frame(self, size_bytes: int) -> memoryview:
        """The frame at `start`, which is whole; it is valid until more is received."""
        begin = self.start + 4
        self.start = begin + size_bytes
        self.last_frame_bytes = size_bytes
        return self.view[begin : self.start]

    def give_back(self) -> None:
        """Hold nothing any more: what was not handled is dropped."""
        if self._buffer is not None:
            self.view = memoryview(b"")
            self._pool.release(self._buffer)
            self._buffer = None
            self.start = self.end = 0
        if self.grant is not None:
            grant, self.grant = self.grant, None
            self._budget.give_back(grant)

    def give_back_if_empty(self) -> None:
        """An idle connection holds no buffer."""
        if self.start == self.end and self._buffer is not None:
            self.give_back()
