"""Decrypted data fills a buffer, piece by piece, in C as in Python, and no byte is lost where it stops."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.network.tls import decrypted_reads_in_python

try:
    from ottla.network.tls import _decrypted_reads as in_c
except ImportError:  # pragma: no cover  # it was not built here
    in_c = decrypted_reads_in_python

READERS = pytest.mark.parametrize(
    "reads", [decrypted_reads_in_python.read_decrypted, in_c.read_decrypted], ids=["python", "c"]
)
Reader = Callable[[Callable[[int, memoryview], int], memoryview, int], tuple[int, BaseException | None]]


class Stream:
    """Pieces in sequence, and a final error."""

    def __init__(self, pieces: Iterator[bytes] | list[bytes], behind: BaseException | None = None) -> None:
        self.pieces = list(pieces)
        self.behind = behind
        self.asked: list[int] = []

    def read(self, size: int, space: memoryview) -> int:
        """Read like OpenSSL: from one piece at a time, and at most `size` bytes."""
        self.asked.append(size)
        view = memoryview(space)
        assert size == len(view)
        if not self.pieces:
            if self.behind is not None:
                raise self.behind
            return 0
        piece = self.pieces.pop(0)
        part, rest = piece[:size], piece[size:]
        if rest:
            self.pieces.insert(0, rest)
        view[: len(part)] = part
        return len(part)


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=12),
    size=st.integers(1, 200),
    taken=st.integers(0, 200),
    ends=st.booleans(),
)
def test_both_fill_the_same(pieces: list[bytes], size: int, taken: int, ends: bool) -> None:
    begin = min(taken, size)
    reports = []
    for reads in (decrypted_reads_in_python.read_decrypted, in_c.read_decrypted):
        space = bytearray(b"." * size)
        stream = Stream(pieces, None if ends else ssl.SSLWantReadError())
        filled, stopped = reads(stream.read, memoryview(space), begin)
        reports.append((bytes(space), filled, type(stopped), stream.asked, stream.pieces))
    assert reports[0] == reports[1]
    space, filled, stopped_by, _, _ = reports[0]
    data = b"".join(pieces)[: size - begin]
    assert space == b"." * begin + data + b"." * (size - begin - len(data))
    assert filled == begin + len(data)
    assert stopped_by is (type(None) if filled == size else EOFError if ends else ssl.SSLWantReadError)


@READERS
def test_what_a_stream_raises_is_told_with_what_came_before(reads: Reader) -> None:
    failure = ssl.SSLError(1, "bad record mac")
    space = memoryview(bytearray(9))
    assert reads(Stream([b"abc", b"de"], failure).read, space, 0) == (5, failure)
    assert bytes(space[:5]) == b"abcde"


@READERS
def test_what_is_no_error_of_a_stream_is_raised(reads: Reader) -> None:
    with pytest.raises(KeyboardInterrupt):
        reads(Stream([b"abc"], KeyboardInterrupt()).read, memoryview(bytearray(9)), 0)


def test_c_trusts_no_count() -> None:
    """A wrong count would lead to a write beyond the buffer."""
    if in_c is decrypted_reads_in_python:
        pytest.skip("it was not built here")
    space = memoryview(bytearray(4))
    for wrong in (5, -1, 1 << 80):
        with pytest.raises((ValueError, OverflowError)):
            in_c.read_decrypted(lambda _size, _space, wrong=wrong: wrong, space, 0)
    for taken in (5, -1):
        with pytest.raises(ValueError, match="more is taken"):
            in_c.read_decrypted(lambda _size, _space: 0, space, taken)
    with pytest.raises((TypeError, BufferError)):
        in_c.read_decrypted(lambda _size, _space: 0, memoryview(b"abcd"), 0)
    with pytest.raises(TypeError):
        in_c.read_decrypted(lambda _size, _space: 0, space)


def test_a_space_is_free_again_afterwards() -> None:
    """The buffer's owner could otherwise not be resized, and its memory would leak."""
    space = bytearray(8)
    in_c.read_decrypted(Stream([b"12345678"]).read, memoryview(space), 0)
    space += b"more"
    assert space == b"12345678more"
