"""The processes of programs, which tests kill and restart."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster import wait_until


class Program:
    """A process whose output goes to a file, until the block ends. It may be killed and restarted."""

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        self._argv, self.log = argv, log
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_at = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()

    @property
    def said(self) -> str:
        """Output since its last start."""
        with self.log.open("rb") as file:
            file.seek(self._begun_at)
            return file.read().decode(errors="replace")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, for the first time or again."""
        assert not self.alive
        with self.log.open("ab") as file:
            self._begun_at = file.tell()
            self._process = subprocess.Popen(
                self._argv,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                process_group=0,
            )

    def kill9(self) -> None:
        """Kill by SIGKILL, with the processes that it started; return once it is gone."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)

    def stop(self, timeout_s: float = 60) -> None:
        """Send SIGTERM, and return once it has ended in good order."""
        assert self._process is not None
        self.send(signal.SIGTERM)
        self._process.wait(timeout_s)

    def wait(self, timeout_s: float) -> None:
        """Return once it has ended by itself; fails with the end of its output on an error."""
        assert self._process is not None
        assert self._process.wait(timeout_s) == 0, self.said[-3000:]

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait_until_said(self, text: str, timeout_s: float = 90) -> None:
        """Return once it has printed `text`; fails with the end of its output if it ends before."""
        wait_until(lambda: text in self.said or not self.alive, f"{text!r} in {self.log}", timeout_s)
        assert text in self.said, self.said[-3000:]
