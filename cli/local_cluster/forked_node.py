"""A node of a local cluster as a process forked from `ottla up`, with all modules loaded.

Loading modules takes most of a node's start, and nodes that start together would all load them at the same time.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Final

from ...network.garbage_collection import only_new_garbage_collected
from ..main import main
from ..nodes.child_processes import die_with_parent

LOADED_BY: Final = {
    "quorum": ("ottla.dataplane.security.node_tls", "ottla.metadata_quorum.node"),
    "broker": (
        "ottla.cli.nodes.mirror_sources",
        "ottla.dataplane.assembly.foundation",
        "ottla.dataplane.assembly.parts",
        "ottla.dataplane.broker",
    ),
}
"""The modules that nodes load, by role; their imports are left out. `tests/cli/test_node_imports.py` checks the
list."""
LOADED_BY_ALL: Final = ("ottla.cli.nodes.endpoint", "ottla.cli.nodes.node", "uvloop")
_PR_SET_NAME: Final = 15
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


def load(role: str) -> None:
    """Import the modules of brokers or quorum nodes (`role`), once for all nodes that are forked later."""
    with only_new_garbage_collected(freezes=True):
        for name in (*LOADED_BY_ALL, *LOADED_BY[role]):
            import_module(name)


def fork(
    name: str, words: Sequence[str], *, directory: str, environment: Mapping[str, str], log: Path
) -> ForkProcess:
    """Fork a process that runs `ottla WORDS`, and return it.

    The process runs in `directory`, with only `environment`, with its output in `log`, no other open file, and a
    separate process group. Its process name is `name`. It ends if its parent, this process, is killed. Raises
    CommandFailed where the system does not support that.
    """
    set_death_signal = die_with_parent("ottla up")

    def run() -> None:
        os.setpgid(0, 0)
        set_death_signal()
        ctypes.CDLL(None).prctl(_PR_SET_NAME, os.fsencode(name))
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for output in (1, 2):
            os.dup2(file.fileno(), output)
        _close_files()
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
        sys.exit(main(words))

    with log.open("ab") as file:
        process = multiprocessing.get_context("fork").Process(target=run, name=name)
        # Block stop signals until the new process has its own handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    return process


def _close_files() -> None:
    """Close all files of a forked process but the first three.

    Their Python objects belong to frames below this one, which never continue: the process exits.
    """
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2:
            with suppress(OSError):
                os.close(number)
