"""The settings of Python's garbage collector in a node: full passes are too slow for a node with many partitions.

A full pass visits all objects: some 70 for each replica of a broker, so half a second for tens of thousands of
replicas. The event loop stands still meanwhile, and a quorum node may lose its leadership. Nearly all of these objects
are permanent. So permanent objects are frozen: later passes leave them out.

`only_new_garbage_collected` is for a time in which very many permanent objects are created, `gc_paused` for the turns
in which a quorum node applies commands. `freeze_all_objects` is called once a node serves. `long_passes_freeze` is in
force while the node runs.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

LONG_S: Final = 0.01
WHOLE_EVERY_S: Final = 600.0
MANY_OBJECTS: Final = 20_000
"""Number of new objects that `gc_paused` freezes. Fencing a broker leaves three objects for each of its replicas."""
_FULL: Final = 2
_NEW_OBJECTS, _NEVER = 10_000, 2**31 - 1
"""The number of new objects after which the collector scans them, and the threshold that keeps it from older
objects."""
_guard = threading.Lock()
_before: list[tuple[int, int, int]] = []


class FullCollections:
    """A `gc.callbacks` function that calls `gc.freeze` after each full collection that took at least `long_s`, so that
    later collections leave out the surviving objects.

    The pass has just collected all garbage, so no garbage is frozen. Frozen objects may become garbage later, so a pass
    visits all objects once in a while.
    """

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
        """Time a full collection from its "start" to its "stop", and freeze the surviving objects if it was long.
        Collections of younger generations are ignored."""
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
def long_passes_freeze() -> Iterator[None]:
    """Run the block with a garbage collector that freezes the surviving objects of each long full collection."""
    watch = FullCollections()
    gc.callbacks.append(watch)
    try:
        yield
    finally:
        gc.callbacks.remove(watch)


@contextmanager
def only_new_garbage_collected(*, freezes: bool) -> Iterator[None]:
    """Keep the garbage collector from scanning older objects in the `with` block. Repeated scans of all new objects are
    a tenth of the time to open thousands of logs, and a twelfth of a broker's start. Temporary objects, such as the
    first of the two classes that a dataclass with slots creates, would take two megabytes without any collection.

    With `freezes`, later collections ignore all objects that exist at the end. Several threads may use this at the same
    time.
    """
    with _guard:
        _before.append(gc.get_threshold())
        gc.set_threshold(_NEW_OBJECTS, _NEVER, _NEVER)
    try:
        yield
    finally:
        with _guard:
            if freezes:
                gc.freeze()
            before = _before.pop()
            if not _before:  # Otherwise another thread still needs its own threshold.
                gc.set_threshold(*before)


@contextmanager
def gc_paused(*, stays: bool = False) -> Iterator[None]:
    """Disable the garbage collector. Nearly all objects that a command makes are permanent.

    A command that changes every partition of a large cluster takes half as long without a collection after every few
    hundred objects.

    With `stays`, a large number of new objects is frozen. The next collection would otherwise scan all of them, and
    delay every caller that waits for the command. A node scans frozen objects from time to time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if stays and gc.get_count()[0] > MANY_OBJECTS:
                gc.freeze()
            gc.enable()


def freeze_all_objects() -> None:
    """Have later passes of the garbage collector leave out all objects that exist now."""
    gc.freeze()
