"""Garbage is looked for in new objects alone, while very many are made that stay."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS, _NEVER = 10_000, 2**31 - 1
"""After how many new objects garbage is looked for in them, and never in older ones."""
_guard = threading.Lock()
_before: list[tuple[int, int, int]] = []


@contextmanager
def only_new_garbage_collected(*, freezes: bool) -> Iterator[None]:
    """To look through all that was made again and again is a tenth of what it takes to open thousands of logs.

    `freezes`: later nobody looks through what is there at the end. Several threads may be in here at a time.
    """
    with _guard:
        _before.append(gc.get_threshold())
        gc.set_threshold(_NEW_OBJECTS, _NEVER, _NEVER)
    try:
        yield
    finally:
        with _guard:
            before = _before.pop()
            if not _before:  # Else it is what somebody set who is still in here.
                gc.set_threshold(*before)
            if freezes:
                gc.freeze()
