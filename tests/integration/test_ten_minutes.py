"""The blocks of docs/TEN-MINUTES.md, in their order: commands in two terminals, programs, and the expected output."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import pytest

from tests.cluster import wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "TEN-MINUTES.md"
BLOCK = re.compile(r"(?:`(\w+\.py)`:\n\n)?^```(sh|python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORT = "9092"
TERMINAL_OF_THE_CLUSTER = "ottla up"
WAIT_S = 60.0

pytestmark = pytest.mark.cluster


@dataclass
class Terminal:
    """A shell that gets blocks of commands, and the output of all programs in it."""

    shell: subprocess.Popen[str]
    written: list[str] = field(default_factory=list)
    """The lines so far."""

    def __post_init__(self) -> None:
        Thread(target=self._read, daemon=True).start()

    def type(self, block: str) -> None:
        """Enter a block of commands."""
        assert self.shell.stdin is not None
        self.shell.stdin.write(block)
        self.shell.stdin.flush()

    def expect(self, text: str) -> None:
        """Wait until each line was written; three dots stand for any text, and two blanks for any gap of a table."""
        for line in text.splitlines():
            pattern = re.compile(re.sub(r"(\\ ){2,}", r"\\s+", re.escape(line)).replace(r"\.\.\.", ".*"))
            wait_until(lambda pattern=pattern: self.find(pattern) is not None, f"the line {line!r}", WAIT_S)

    def find(self, pattern: re.Pattern[str]) -> str | None:
        """Return the first line that matches the pattern as a whole."""
        return next((line for line in [*self.written] if pattern.fullmatch(line)), None)

    def _read(self) -> None:
        assert self.shell.stdout is not None
        self.written += (line.rstrip("\n") for line in iter(self.shell.stdout.readline, ""))


@contextmanager
def terminal(folder: Path, environ: Mapping[str, str]) -> Iterator[Terminal]:
    """Open a terminal; all that runs in it ends with it."""
    shell = subprocess.Popen(
        ["bash"],
        cwd=folder,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield Terminal(shell)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def free_port() -> int:
    """Return a port that is free now, as is the port 100 above: `ottla up --combined` takes both.

    Both are below the system's ephemeral ports, of which other tests take thousands meanwhile.
    """
    for port in random.Random(os.urandom(8)).sample(range(10_000, 32_000), 1_000):
        with suppress(OSError), closing(listening(port)), closing(listening(port + 100)):
            return port
    raise RuntimeError("no two ports are free")


def listening(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def test_the_blocks_of_the_page_work(tmp_path: Path) -> None:
    port = str(free_port())
    tools = Path(sys.executable).parent
    environ = os.environ | {
        "OTTLA_BOOTSTRAP": f"localhost:{port}",
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
    }
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) > 15
    with terminal(tmp_path, environ) as first, terminal(tmp_path, environ) as second:
        current = first
        for name, kind, written in blocks:
            text = written.replace(PORT, port)
            if kind == "python":
                (tmp_path / name).write_text(text)
            elif kind == "text":
                current.expect(text)
            else:
                current = first if text.startswith(TERMINAL_OF_THE_CLUSTER) else second
                if "rm -r" in text:
                    look_at_the_console(first)
                    stop(first)
                current.type(text)
        wait_until(lambda: not (tmp_path / "ottla-data").exists(), "the folder is removed", WAIT_S)


def look_at_the_console(cluster: Terminal) -> None:
    """Open the address of the console that the cluster has printed."""
    address = cluster.find(re.compile(r"http://.*"))
    assert address is not None
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    assert "packing" in opener.open(address.replace("/?", "/groups?")).read().decode()


def stop(cluster: Terminal) -> None:
    """Press Control-C in the terminal of the cluster."""
    shell = cluster.shell.pid
    (running,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    os.kill(int(running), signal.SIGINT)
    cluster.type("echo ended\n")
    cluster.expect("ended")
