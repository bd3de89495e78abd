"""Commands of `ottla` as tests run them: each is a process with its own exit code and output.

They are forked from a process that has already loaded the whole command line and the modules of nodes. Loading these
for each command takes a third of a second of processor time, which was most of a command's cost.
`tests/cli/test_main.py` starts commands without this, and so do `ottla.testing` and clusters whose nodes run other
code.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread

from ottla.cli.main import main
from ottla.testing.processes import Process

TIMEOUT_S = 60.0
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.loaded_commands"])


def run_ottla(
    *words: str,
    given: str = "",
    environ: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with `given` on its standard input.

    Kills the command and raises TimeoutExpired on timeout.
    """
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


class ForkedProcess:
    """A running command with the interface of a process in `ottla.testing`."""

    def __init__(self, process: ForkServerProcess, argv: Sequence[str]) -> None:
        assert process.pid is not None  # it was started
        self.pid = process.pid
        self._process = process
        self._argv = argv

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self._argv, timeout or 0.0)
        return code

    def send_signal(self, sig: int | signal.Signals, /) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # The fork server has heard of its end before this process.
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def forked(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int) -> Process:
    """Start `python -m ottla ...`, and return at once; see `ottla.testing.processes`."""
    python, *module, name = argv[:4]
    assert (python, module) == (sys.executable, ["-m", "ottla"]), argv
    end = _end(output)
    process = _CONTEXT.Process(target=_stay, args=([name, *argv[4:]], str(cwd), dict(env), end))
    process.start()
    end.close()
    return ForkedProcess(process, argv)


def _end(number: int) -> Connection:
    """Wrap a duplicate of an open file descriptor, in the form that `multiprocessing` can pass to another process."""
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
    """Run a command whose caller waits for its end; runs in the forked process."""
    for number, end in enumerate((stdin, stdout, stderr)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdin = open(0)  # noqa: SIM115 - `multiprocessing` had put another file there
    os.environ.clear()
    os.environ.update(environ)
    sys.exit(main(words))


def _stay(words: Sequence[str], directory: str, environ: Mapping[str, str], output: Connection) -> None:
    """Run a command that goes on in the background; runs in the forked process."""
    os.setsid()
    os.chdir(directory)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(output.fileno(), number)
    output.close()
    os.environ.clear()
    os.environ.update(environ)
    sys.exit(main(words))
