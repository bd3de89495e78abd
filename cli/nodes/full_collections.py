"""Full passes of Python's garbage collector, which a node with many partitions cannot afford again and again.

A full pass looks through all objects: some 70 for each replica of a broker, so half a second for tens of thousands of
them. The loop stands still meanwhile, and a quorum node may lose its leadership. Nearly all that such a pass finds
stays. So after one that took long, the objects that are left are frozen: later passes leave them out. Nothing that
could have been collected is frozen, as it has just been.

What is frozen may become garbage later. So once in a while a pass looks through everything again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

LONG_S: Final = 0.01
WHOLE_EVERY_S: Final = 600.0
_FULL: Final = 2


class FullCollections:
    """Told when a pass begins and ends."""

    def __init__(
        self,
        *,
        long_s: float = LONG_S,
        whole_every_s: float = WHOLE_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._long_s = long_s
        self._whole_every_s = whole_every_s
        self._clock = clock
        self._began_s = self._whole_s = clock()

    def __call__(self, phase: Literal["start", "stop"], info: dict[str, Any]) -> None:
        """As `gc.callbacks` calls it."""
        if info["generation"] != _FULL:
            return
        now = self._clock()
        if phase == "start":
            if now - self._whole_s >= self._whole_every_s:
                self._whole_s = now
                gc.unfreeze()
            self._began_s = now
        elif now - self._began_s >= self._long_s:
            gc.freeze()


@contextmanager
def watched() -> Iterator[None]:
    """Meanwhile no full pass looks through what a long one has just looked through."""
    watch = FullCollections()
    gc.callbacks.append(watch)
    try:
        yield
    finally:
        gc.callbacks.remove(watch)
