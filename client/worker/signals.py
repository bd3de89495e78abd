"""Signals that end a worker: the first lets it finish its records, a further signal cancels them."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

ENDING: Final = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger(__name__)


class Stop(Protocol):
    """The function that stops a worker."""

    def __call__(self, *, at_once: bool = False) -> None:
        """Begin to stop; with `at_once` the handlers are cancelled."""


@contextmanager
def stopping_on_signals(stop: Stop) -> Iterator[None]:
    """Return a context manager in which SIGTERM and SIGINT stop a worker.

    On the loop of the main thread the loop calls `stop`. In the main thread without a loop Python does. It has no
    effect in other threads, which get no signals, and on loops without signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = _counted(stop)
    before = {number: signal.getsignal(number) for number in ENDING}
    loop = asyncio._get_running_loop()
    try:
        for number in ENDING:
            if loop is None:
                signal.signal(number, lambda *_: ended())
            else:
                loop.add_signal_handler(number, ended)
    except NotImplementedError:  # Loops of Windows have no signals.
        yield
        return
    try:
        yield
    finally:
        for number in ENDING:
            if loop is not None:
                loop.remove_signal_handler(number)
            signal.signal(number, before[number])


def _counted(stop: Stop) -> Callable[[], Any]:
    """Return a function that stops a worker, and at the second call cancels its handlers."""
    count = 0

    def ended() -> None:
        nonlocal count
        count += 1
        if count == 1:
            logger.info("a signal: the worker ends once its handlers have")
        else:
            logger.warning("a further signal: handlers are cancelled")
        stop(at_once=count > 1)

    return ended
