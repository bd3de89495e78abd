"""`ottla up --until-exit`: a cluster that ends with another process, however that process ends."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..failures import CommandFailed
from ..nodes.child_processes import PR_SET_PDEATHSIG
from .layout import ClusterLayout


@contextmanager
def until_exit(pid: int | None, layout: ClusterLayout, *, temporary: bool) -> Iterator[None]:
    """Send this process SIGTERM when process `pid` ends, for as long as the block runs.

    If `pid` has ended by the end of the block, a `temporary` cluster is removed. Raises CommandFailed if there is no
    such process; a `temporary` cluster is then removed, too.
    """
    if pid is None:
        yield
        return
    if not sys.platform.startswith("linux"):
        raise CommandFailed("--until-exit needs Linux")
    try:
        owner = os.pidfd_open(pid)
    except ProcessLookupError:
        if temporary:
            layout.remove()
        raise CommandFailed(f"--until-exit {pid}: there is no such process") from None
    except OSError as error:
        raise CommandFailed(f"--until-exit {pid}: {error.strerror}") from None
    signal.signal(signal.SIGTERM, _leave)  # Exit at once until the handlers of an orderly stop are installed.
    _wake_when_parent_ends()
    threading.Thread(target=_terminate_after, args=(owner,), name="until-exit", daemon=True).start()
    try:
        yield
    finally:
        signal.signal(
            signal.SIGTERM, signal.SIG_IGN
        )  # A second signal must not keep the files from being removed.
        if temporary and _ended(owner, 0.0):
            layout.remove()


def _terminate_after(owner: int) -> None:
    _ended(owner, None)
    os.kill(os.getpid(), signal.SIGTERM)


def _ended(pidfd: int, timeout_s: float | None) -> bool:
    return bool(select.select([pidfd], [], [], timeout_s)[0])


def _leave(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _wake_when_parent_ends() -> None:
    """Have the kernel continue this process if it is stopped (SIGSTOP) when its parent ends, so that it ends, too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCONT)
