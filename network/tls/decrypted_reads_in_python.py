"""Reading what TLS has decrypted, in Python. `_decrypted_reads.c` has the same under the same name, and
`tests/network/tls/test_decrypted_reads.py` compares them.
"""

from __future__ import annotations

from collections.abc import Callable


def read_decrypted(
    read: Callable[[int, memoryview], int], space: memoryview, taken: int
) -> tuple[int, OSError | EOFError | None]:
    """Fill `space` behind the `taken` bytes that it has: how many it has then, and None if it is full, else why not.

    `read` puts at most as many bytes as it is told into what it is given, and says how many. 0 is the end of the
    stream, told as EOFError. An OSError of `read` is told, too.
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
