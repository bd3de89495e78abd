"""A pause of Python's garbage collector while commands are applied, since each run would scan the whole image."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY_OBJECTS: Final = 20_000
"""Number of new objects that are frozen. Fencing a broker leaves three objects for each of its replicas."""


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
