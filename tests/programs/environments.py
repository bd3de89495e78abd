"""Python packages that programs need, each set in a separate virtual environment: none is a dependency of Ottla."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

from tests.programs.process import Program

SCRIPTS = Path(__file__).parent / "python"
_CACHE = Path("~/.cache/ottla-tests").expanduser()


class Environment:
    """The packages in a requirements file of the folder python/, which fixes their versions."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def python(self) -> Path:
        """Interpreter of the environment. pip fills the environment once, and again after the file has changed."""
        wanted = SCRIPTS / f"{self._name}.txt"
        digest = hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()[:12]
        folder = _CACHE / f"{self._name}-{digest}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                _run(sys.executable, "-m", "venv", str(folder))
                _run(str(folder / "bin/python"), "-m", "pip", "install", "-q", "-r", str(wanted))
                (folder / "complete").touch()
        return folder / "bin/python"

    def program(self, script: str, log: Path, *arguments: str) -> Program:
        """Return a process of a script in the folder python/."""
        return Program([str(self.python), "-u", str(SCRIPTS / script), *arguments], log)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr[-3000:]}"
