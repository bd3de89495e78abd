"""The cleaning process: `python -m ottla.dataplane.log.compaction.worker <parent's process id>`.

It reads jobs from its standard input, one at a time, writes replies to its standard output, and logs to its standard
error. It has a low priority (nice), and ends when its input ends, or its parent.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
from functools import partial
from typing import IO

from ....protocol.errors import KafkaError
from ..storage_errors import DISK_FULL
from .cleaning import LogCleaning, SourceChanged
from .job import CleaningFailed, CleaningJob, Reply, encode_reply, read_line
from .throttle import CompactionThrottle

_NICENESS = 10
_PR_SET_PDEATHSIG = 1

logger = logging.getLogger(__name__)


class Orphaned(Exception):
    """The error that the broker, which is the parent of this cleaning process, is gone. Its successor may be using the
    files."""


def serve(jobs: IO[bytes], replies: IO[bytes], parent: int) -> None:
    """Clean one log for each job that arrives, and write replies, until `jobs` ends. `parent` is the broker's process
    id.

    Global state of the process is not changed. Raises MalformedLine. Raises Orphaned if the broker is gone.
    """
    while (line := read_line(jobs)) is not None:
        job = CleaningJob.decode(line)
        throttle = CompactionThrottle(job.limits.io_bytes_per_second, time.monotonic, time.sleep)

        def spent(size: int, throttle: CompactionThrottle = throttle) -> None:
            if os.getppid() != parent:
                raise Orphaned
            throttle.spent(size)

        send = partial(_send, replies)
        try:
            send(LogCleaning(job, spent).run(send))
        except SourceChanged as changed:
            send(CleaningFailed(str(changed), may_pass=True))
        except KafkaError as error:
            send(CleaningFailed(error.message, may_pass=_may_pass(error.__cause__)))
        except OSError as error:
            send(CleaningFailed(f"{job.directory}: {error.strerror}", may_pass=_may_pass(error)))
        except MemoryError:
            send(CleaningFailed(f"{job.directory}: out of memory", may_pass=False))


def _may_pass(error: BaseException | None) -> bool:
    """Return whether the error of a cleaning is that a file is gone, as after the deletion of a topic, or that the disk
    is full."""
    return isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno in DISK_FULL)


def _send(replies: IO[bytes], reply: Reply) -> None:
    replies.write(encode_reply(reply))
    replies.flush()


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, so that it never writes beside a successor."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise Orphaned


def main(arguments: list[str]) -> None:
    """Run the process. The argument is the process id of the broker."""
    (parent,) = arguments
    logging.basicConfig(format="cleaner: %(message)s", level=logging.WARNING)
    # Ctrl-C reaches the whole foreground group, but only the broker ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    try:
        _die_with(int(parent))
        serve(sys.stdin.buffer, sys.stdout.buffer, int(parent))
    except (Orphaned, BrokenPipeError):
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
