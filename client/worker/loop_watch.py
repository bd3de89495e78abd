"""A watch that warns when a handler blocks the event loop, with which the worker's heartbeats stop, too."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
from threading import Event, Thread, get_ident

BLOCKED_S = 1.0
"""The time without a turn of the loop that is reported."""
BEAT_S = 0.25

logger = logging.getLogger(__name__)


class LoopWatch:
    """A thread that looks whether the loop turns."""

    def __init__(self, handler: str, blocked_s: float = BLOCKED_S) -> None:
        self._handler = handler
        self._blocked_s = blocked_s
        self._beat_s = 0.0
        self._ended = Event()
        self._loop_thread = 0

    async def run(self) -> None:
        """Note each turn of the loop, until cancelled."""
        self._loop_thread = get_ident()
        self._beat_s = time.monotonic()
        Thread(target=self._watch, name="ottla-worker-watch", daemon=True).start()
        try:
            while True:
                self._beat_s = time.monotonic()
                await asyncio.sleep(BEAT_S)
        finally:
            self._ended.set()

    def _watch(self) -> None:
        reported_s = 0.0
        while not self._ended.wait(BEAT_S):
            beat_s = self._beat_s
            blocked_s = time.monotonic() - beat_s
            if blocked_s < self._blocked_s + BEAT_S or beat_s == reported_s:
                continue
            reported_s = beat_s
            logger.warning(
                "the event loop has been blocked for %.1f s, probably by handler %s, and heartbeats stop with it: call "
                "blocking functions in a handler that is no coroutine (def)\n%s",
                blocked_s,
                self._handler,
                self._stack(),
            )

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        return "" if frame is None else "".join(traceback.format_stack(frame)[-3:]).rstrip()
