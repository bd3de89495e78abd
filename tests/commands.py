"""`ottla` commands as tests run them: each is a process with an exit code and output of its own.

They are forked from a process that has loaded the whole command line. Loading it anew takes a third of a second of
processor time, which was most of what a command took. `tests/cli/test_main.py` starts commands without this.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from tempfile import TemporaryFile
from threading import Thread

from ottla.cli.main import main

TIMEOUT_S = 60.0
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.loaded_commands"])


def run_ottla(
    *words: str,
    given: str = "",
    environ: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run one to its end, with `given` on its standard input. Raises TimeoutExpired, and kills it then."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        stdin, feed = _CONTEXT.Pipe(duplex=False)
        ends = (stdin, _end(out.fileno()), _end(err.fileno()))
        process = _CONTEXT.Process(target=_run, args=(words, dict(environ or os.environ), *ends))
        process.start()
        for end in ends:
            end.close()
        feeding = Thread(target=_feed, args=(feed, given.encode()))
        feeding.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, timeout_s)
        feeding.join()
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(words, process.exitcode, out.read(), err.read())


def _end(number: int) -> Connection:
    """An open file as `multiprocessing` passes it on."""
    return Connection(os.dup(number), readable=False)


def _feed(pipe: Connection, data: bytes) -> None:
    try:
        with open(pipe.fileno(), "wb", closefd=False) as file:
            file.write(data)
    except BrokenPipeError:
        pass  # it does not want more
    finally:
        pipe.close()


def _run(
    words: Sequence[str],
    environ: Mapping[str, str],
    stdin: Connection,
    stdout: Connection,
    stderr: Connection,
) -> None:
    """In the process of the command."""
    for number, end in enumerate((stdin, stdout, stderr)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdin = open(0)  # noqa: SIM115 - `multiprocessing` had put another file there
    os.environ.clear()
    os.environ.update(environ)
    sys.exit(main(words))
