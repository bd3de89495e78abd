"""Runs `pip install` and says what it does: which step, which package, how long so far.

    python .ci/pip_progress.py LOG --editable '.[test]'

On a terminal one line is renewed each second. Elsewhere, as in CI, a line is printed when a step begins and every half
minute. pip's own output goes to LOG; if pip fails, the end of it is printed. Only Python's library is needed, since
nothing is installed yet.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final, TextIO

FETCHING, BUILDING, INSTALLING = (
    "step 2 of 4: fetching packages",
    "step 2 of 4: building",
    "step 3 of 4: installing",
)
SHOWN_EVERY_S: Final = 30.0
RENEWED_EVERY_S: Final = 1.0
_TAIL_LINES: Final = 30
_SIZE = re.compile(r"\(([\d.]+) (bytes|kB|MB|GB)\)$")
_BYTES: Final = {"bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_FILE = re.compile(r"^\s*(?:Downloading|Using cached) (?:\S*/)?([^/\s]+?)-[\d][^/\s]*(?: \(|$)")
_BUILT = re.compile(r"^\s*Building (?:wheel|editable) for (\S+)")


class PipState:
    """What pip does, by its output. Pure."""

    def __init__(self) -> None:
        self.step = FETCHING
        self.package = ""
        self.fetched = 0
        self.fetched_bytes = 0.0
        self.to_install = 0

    def read(self, line: str) -> None:
        """Learn from a line of pip's output."""
        line = line.rstrip()
        if line.startswith("Installing collected packages:"):
            self.step, self.package = INSTALLING, ""
            self.to_install = line.count(",") + 1
        elif built := _BUILT.match(line):
            self.step, self.package = BUILDING, built[1]
        elif (file := _FILE.match(line)) and ".metadata" not in line:
            self.package, self.fetched = file[1], self.fetched + 1
            if "Downloading" in line and (size := _SIZE.search(line)):
                self.fetched_bytes += float(size[1]) * _BYTES[size[2]]

    def text(self, elapsed_s: float, installed: int) -> str:
        """Return the state for people; `installed` is the number of packages that pip has installed by now."""
        clock = f"{int(elapsed_s) // 60}:{int(elapsed_s) % 60:02d}"
        if self.step is INSTALLING:
            return f"{self.step}: {min(installed, self.to_install)} of {self.to_install} packages, {clock}"
        count = f"{self.fetched} so far, {self.fetched_bytes / 1e6:.0f} MB downloaded"
        return f"{self.step}: {f'{self.package}, ' if self.package else ''}{count}, {clock}"


class Shown:
    """The lines that tell the progress: one that is renewed on a terminal, else a few."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._step, self._shown_s = "", -SHOWN_EVERY_S

    def show(self, step: str, text: str, elapsed_s: float) -> None:
        """Show the progress now, unless it is too early for another line."""
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{text}")
        elif step != self._step or elapsed_s - self._shown_s >= SHOWN_EVERY_S:
            self._step, self._shown_s = step, elapsed_s
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        """End the line on a terminal."""
        if self._stream.isatty():
            self._stream.write("\n")


def packages_in(environment: Path) -> int:
    """Return the number of packages that are installed in a virtual environment."""
    return sum(1 for _ in environment.glob("lib/python*/site-packages/*.dist-info"))


def main(log: Path, words: list[str]) -> int:
    """Run `pip install` with these words, and return its exit code."""
    began, before = time.monotonic(), packages_in(Path(sys.prefix))
    state, shown, over = PipState(), Shown(sys.stdout), threading.Event()

    def tell() -> None:
        while not over.wait(RENEWED_EVERY_S):
            elapsed_s = time.monotonic() - began
            shown.show(state.step, state.text(elapsed_s, packages_in(Path(sys.prefix)) - before), elapsed_s)

    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
        *words,
    ]
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    with (
        log.open("w") as kept,
        subprocess.Popen(
            pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as run,
    ):
        assert run.stdout is not None
        for line in run.stdout:
            kept.write(line)
            kept.flush()
            state.read(line)
    over.set()
    teller.join()
    shown.end()
    if run.returncode:
        tail = log.read_text().splitlines()[-_TAIL_LINES:]
        print("\n".join((*tail, f"pip failed; {log} has all of its output")), file=sys.stderr)
    return run.returncode


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(130)
