"""A measure of the work that a piece of Python does: its number of calls, which does not depend on
the machine's load.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Calls:
    """A counter of calls to Python and C functions."""

    def __init__(self) -> None:
        self.count = 0

    def _profiled(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count the calls that this thread makes within the block."""
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls._profiled)
    try:
        yield calls
    finally:
        sys.setprofile(before)
