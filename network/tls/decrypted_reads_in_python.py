"""The reader of decrypted TLS data in Python. `_decrypted_reads.c` has the same function under the same name, and
`tests/network/tls/test_decrypted_reads.py` compares the two."""

from __future__ import annotations

from collections.abc import Callable


def read_decrypted(
    read: Callable[[int, memoryview], int], space: memoryview, taken: int
) -> tuple[int, OSError | EOFError | None]:
    """Fill `space` after its first `taken` bytes with decrypted data. Return the number of bytes now in `space`, and
    the error or end that stopped the reading; None if `space` is full.

    `read(most, view)` puts at most `most` bytes into `view` and returns their number. 0 marks the end of the stream,
    which is returned as EOFError. An OSError of `read` is returned, too.
    """
    size = len(space)
    try:
        while taken < size:
            received = read(size - taken, space[taken:])
            if received == 0:
                return taken, EOFError()
            taken += received
    except OSError as error:
        return taken, error
    return taken, None
