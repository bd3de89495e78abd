"""Progress of commands on standard error: a line that is renewed on a terminal, else a line every few seconds."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Final, Self

from .text import note, show_progress

FIRST_AFTER_S: Final = 2.0
"""Seconds after which a command that waits says so; short commands say nothing."""
LINE_EVERY_S: Final = 5.0
"""Seconds between two lines in a pipe or a file."""
_RENEWED_EVERY_S: Final = 0.1
_LOOK_EVERY_S: Final = 0.5


class ProgressLine:
    """The progress of one operation of a command, for a `with` block.

    A terminal has one line, which each text replaces, and which the end of the block removes. A pipe or a file gets a
    line after FIRST_AFTER_S, and then at most one every LINE_EVERY_S.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s = clock() + (0 if sys.stderr.isatty() else FIRST_AFTER_S)
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._shown and sys.stderr.isatty():
            show_progress("")

    def show(self, text: str) -> None:
        """Show the present progress, unless it is too early for another line."""
        now_s = self._clock()
        if now_s < self._due_s:
            return
        self._shown = True
        if sys.stderr.isatty():
            self._due_s = now_s + _RENEWED_EVERY_S
            show_progress(text)
        else:
            self._due_s = now_s + LINE_EVERY_S
            note(text)

    def end(self, text: str) -> None:
        """Show the last text of the operation, if it has shown any progress."""
        if not self._shown:
            return
        self._shown = False
        if sys.stderr.isatty():
            show_progress(text, last=True)
        else:
            note(text)


def waiting(whom: str) -> AbstractAsyncContextManager[None]:
    """Show that the command waits for `whom`, and how long so far, if the block takes longer than FIRST_AFTER_S."""
    return renewed_line(partial(waiting_text, whom))


@asynccontextmanager
async def renewed_line(text: Callable[[float], str]) -> AsyncIterator[None]:
    """Show a text until the block ends, from FIRST_AFTER_S on. The text is made again and again, from the seconds since
    the block began, so it changes even while nothing happens."""
    teller = asyncio.create_task(_tell(text), name="progress")
    try:
        yield
    finally:
        teller.cancel()
        await asyncio.wait([teller])  # It removes its line from the terminal as it ends.


async def _tell(text: Callable[[float], str]) -> None:
    began_s = time.monotonic()
    with ProgressLine() as line:
        await asyncio.sleep(FIRST_AFTER_S)
        while True:
            line.show(text(time.monotonic() - began_s))
            await asyncio.sleep(_LOOK_EVERY_S)


def waiting_text(whom: str, seconds: float) -> str:
    """Return the text of a command that has waited for so many seconds."""
    return f"waiting for {whom}, {seconds:.0f} s"


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows the number of steps done, of `total`: as a bar on a terminal, else as lines."""
    if not sys.stderr.isatty():
        with ProgressLine() as line:
            yield lambda done: line.show(f"{what}: {done:,} of {total:,}")
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda done: bars.update(bar, completed=done)
