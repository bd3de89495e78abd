"""The receive buffer of a connection: unhandled bytes, and the memory that they occupy."""

from __future__ import annotations

from typing import Generic, TypeVar

from ...protocol.messages.headers import FRAME_SIZE
from .buffers import SMALLEST_BYTES, Buffer, BufferPool
from .receive_budget import MEDIUM_BYTES, Grant, ReceiveBudget, Receiver

# The first bytes of a frame are received into a buffer of the last frame's size, up to this limit.
_LARGEST_GUESS_BYTES = MEDIUM_BYTES

_Owner = TypeVar("_Owner", bound=Receiver)


class ReceiveBuffer(Generic[_Owner]):
    """The receive buffer of one connection: a pooled buffer with the unhandled part of the byte stream,
    `view[start:end]`, which begins with a frame.

    A frame that is larger than the smallest buffer must fill that buffer first, so that a claimed size alone commits no
    memory. Then it waits until the budget grants its whole size.
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
        #: permission to hold a buffer larger than the smallest, or the wait for it
        self.grant: Grant[_Owner] | None = None
        #: size of the last frame that was passed on, without its own length
        self.last_frame_bytes = 0

    @property
    def occupied_bytes(self) -> int:
        """The size of the pooled buffer in bytes; 0 if there is none."""
        return len(self.view)

    @property
    def waits(self) -> bool:
        """True if the frame's first bytes are here, and the budget has no room for the rest yet."""
        return self.grant is not None and self.grant.wanted_bytes > 0

    def needed(self) -> int:
        """Return the size in bytes of the frame at `start`, including its length field; 4 as long as that field is
        incomplete.
        """
        if self.end - self.start < 4:
            return 4
        return 4 + int(FRAME_SIZE.unpack_from(self.view, self.start)[0])

    def missing(self) -> int:
        """Return the minimum number of missing bytes of the frame at `start`; 0 or less if it is complete, or there is
        none."""
        held = self.end - self.start
        return self.needed() - held if held else 0

    def space(self, bytes_max: int) -> memoryview | None:
        """Return the space for further bytes, at most `bytes_max`; None if the frame at `start` must wait for the
        budget."""
        if self.start == self.end:
            guess = self._guess()
            if self._buffer is None:
                self._begin(guess)
            self.start = self.end = 0
            limit = min(guess, len(self.view))
        elif self._make_room():
            limit = self._limit()
        else:
            return None
        return self.view[self.end : min(limit, self.end + bytes_max)]

    def _begin(self, size: int) -> None:
        if size > SMALLEST_BYTES:
            self.grant = self._budget.take(self._owner, size)
        self._buffer = self._pool.acquire(SMALLEST_BYTES if self.grant is None else size)
        self.view = memoryview(self._buffer)

    def _make_room(self) -> bool:
        """Make room in the buffer for the rest of the frame at `start`. Returns False if the frame must wait for the
        budget.
        """
        needed = self.needed()
        if self.start + needed <= len(self.view):
            return True
        held = self.end - self.start
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
        """Return the expected size of the next frame in bytes: the size of the last frame."""
        size = 4 + self.last_frame_bytes
        if size <= SMALLEST_BYTES:
            return SMALLEST_BYTES
        return size if size < _LARGEST_GUESS_BYTES else _LARGEST_GUESS_BYTES

    def _limit(self) -> int:
        """Return the position in the buffer up to which to receive: the end of a large frame, so that the next need not
        be moved.
        """
        room = len(self.view)
        if self.end - self.start >= 4:
            frame_end = self.start + self.needed()
            if frame_end - self.end >= SMALLEST_BYTES or room > _LARGEST_GUESS_BYTES:
                return min(frame_end, room)
        return room

    def received(self, size_bytes: int) -> None:
        """Note that `size_bytes` were received into the buffer."""
        self.end += size_bytes
        if self.grant is not None:
            self.grant.arrived_bytes += size_bytes

    def take_frame(self, size_bytes: int) -> memoryview:
        """Return the complete frame at `start`; it is valid until more bytes are received."""
        begin = self.start + 4
        self.start = begin + size_bytes
        self.last_frame_bytes = size_bytes
        return self.view[begin : self.start]

    def give_back(self) -> None:
        """Release the buffer and the grant; unhandled bytes are dropped."""
        if self._buffer is not None:
            self.view = memoryview(b"")
            self._pool.release(self._buffer)
            self._buffer = None
            self.start = self.end = 0
        if self.grant is not None:
            grant, self.grant = self.grant, None
            self._budget.give_back(grant)

    def give_back_if_empty(self) -> None:
        """Release the buffer if it is empty, as an idle connection holds none."""
        if self.start == self.end and self._buffer is not None:
            self.give_back()

    @property
    def is_at_rest(self) -> bool:
        """True if the connection holds no buffer and waits for no memory."""
        return self._buffer is None and self.grant is None
