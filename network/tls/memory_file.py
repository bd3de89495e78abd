"""Files in memory only: OpenSSL accepts keys by path, and a decrypted or received key must not touch a disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_memory(content: bytes) -> Iterator[str]:
    """Yield the path of a file with this content, which exists until the context ends."""
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
