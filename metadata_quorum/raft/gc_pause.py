"""No search for garbage while commands are applied: it would look through the whole image again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY_OBJECTS: Final = 20_000
"""A broker that is fenced leaves three objects for each of its replicas."""


@contextmanager
def gc_paused(*, stays: bool = False) -> Iterator[None]:
    """What a command makes stays, nearly all of it. One that changes every partition of a large cluster takes half as
    long without a search after every few hundred objects.

    `stays`: what is left of many objects is frozen. The search that is due then would look through all of them, and
    hold up everybody who waits for what the command did. A node looks through what is frozen once in a while.
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
