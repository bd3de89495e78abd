"""The first programs of docs/ECOSYSTEM.md, as a new user follows them: files with their names, and commands in order.

A block of code belongs to the file that the text before it names last, as in "This is `pom.xml`". Other blocks are
commands. One that "goes on until Control-C" runs beside the following ones, until the page is done.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.kafka import HOST, free_ports
from tests.programs.process import Program

PAGE = Path(__file__).parents[2] / "docs/ECOSYSTEM.md"
CACHE = Path("~/.cache/ottla-tests").expanduser()
_BROKER, _REST = f"{HOST}:9092", f"{HOST}:8083"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"this\s+is\s+`([\w.]+)`", re.IGNORECASE)
_GOES_ON = "# it goes on until Control-C"
_PIP, _UP = "pip install ", "ottla up "
_OTTLA = Path(sys.executable).parent


class FirstPage(NamedTuple):
    """The files and commands of a section."""

    files: dict[str, str]
    commands: list[str]


def first_page(section: str) -> FirstPage:
    """Return the files and commands of a page's section, by its heading."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    files, commands, end = {}, [], 0
    for block in _BLOCK.finditer(text):
        named = _NAMED.findall(text, end, block.start())
        end = block.end()
        if named:
            files[named[-1]] = block[2]
        elif not block[1]:
            commands.extend(_commands(block[2]))
    return FirstPage(files, commands)


def _commands(block: str) -> Iterator[str]:
    """Yield the commands of a block: each is a line, or several with an open quotation or a backslash."""
    waiting = ""
    for line in block.splitlines(keepends=True):
        waiting += line
        if _is_whole(waiting):
            yield waiting.strip()
            waiting = ""
    assert not waiting, waiting


def _is_whole(command: str) -> bool:
    if command.endswith("\\\n"):
        return False
    try:
        return bool(shlex.split(command, comments=True))
    except ValueError:  # a quotation that has no end yet
        return False


class Newcomer:
    """A new user who follows a section in an empty folder, with an existing cluster."""

    def __init__(self, folder: Path, bootstrap: str, section: str) -> None:
        self._folder = folder
        self._files, self._commands = first_page(section)
        self._addresses = {_BROKER: bootstrap.split(",")[0], _REST: f"{HOST}:{free_ports(1)[0]}"}
        paths = [str(_python_of(self._commands).parent), str(_OTTLA), os.environ["PATH"]]
        self._exported = {"OTTLA_BOOTSTRAP": bootstrap, "PATH": ":".join(paths)}
        self._going_on: list[Program] = []

    def follow(self, running: ExitStack) -> Program:
        """Run all commands, and return the last one, which prints a topic's contents.

        Continuous commands run until the block ends.
        """
        for name, text in self._files.items():
            (self._folder / name).write_text(self._here(text))
        for number, command in enumerate(self._commands):
            if command.startswith((_PIP, _UP)):
                continue
            program = running.enter_context(self._program(f"{number}.log", command))
            if _GOES_ON in command:
                self._going_on.append(program)
            elif command is not self._commands[-1]:
                program.wait(300)
        return program

    def check(self) -> None:
        """Check that continuous commands have not ended."""
        for program in self._going_on:
            assert program.alive, program.said[-3000:]

    def _program(self, log: str, command: str) -> Program:
        exported = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self._exported.items())
        script = f"cd {shlex.quote(str(self._folder))} || exit\n{exported}{self._here(command)}\n"
        return Program(["bash", "-c", script], self._folder / log)

    def _here(self, text: str) -> str:
        for written, used in self._addresses.items():
            text = text.replace(written, used)
        return text


def _python_of(commands: list[str]) -> Path:
    """Return the interpreter of an environment in which pip has installed the section's packages, once."""
    wanted = [command for command in commands if command.startswith(_PIP)]
    if not wanted:
        return Path(sys.executable)
    digest = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:12]
    folder = CACHE / f"first-page-{digest}"
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        for command in wanted:
            subprocess.run(f"{python} -m {command}", shell=True, check=True)
        (folder / "complete").touch()
    return python
