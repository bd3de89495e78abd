"""How much work a piece of Python does: the calls that it makes, which are as many on a busy machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Calls:
    """Of functions in Python and in C."""

    def __init__(self) -> None:
        self.count = 0

    def _profiled(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Counts those that this thread makes within the block."""
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls._profiled)
    try:
        yield calls
    finally:
        sys.setprofile(before)
