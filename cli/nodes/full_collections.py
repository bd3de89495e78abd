"""Fewer full passes of Python's garbage collector, which are too slow for a node with many partitions.

A full pass visits all objects: some 70 for each replica of a broker, so half a second for tens of thousands of
replicas. The event loop stands still meanwhile, and a quorum node may lose its leadership. Nearly all of these objects
are permanent. So the objects that survive a long pass are frozen: later passes leave them out. The pass has just
collected all garbage, so no garbage is frozen.

Frozen objects may become garbage later. So a pass visits all objects once in a while.
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
    """A `gc.callbacks` function that freezes the survivors of long full passes."""

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
        """Handle the begin or end of a pass, as `gc.callbacks` calls it."""
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
    """Freeze the survivors of long full passes while the block runs."""
    watch = FullCollections()
    gc.callbacks.append(watch)
    try:
        yield
    finally:
        gc.callbacks.remove(watch)
