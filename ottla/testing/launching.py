"""Starts `ottla up` as a child process and reads what it says about its cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __file__ as _package_file
from .failures import LocalClusterError
from .nodes import read_log
from .processes import Start, executed

SETTINGS_PREFIX = "KAFKA_"
"""Variables that nodes take for settings: those that are set where tests run are meant for something else."""
SAID_LINES_MAX = 15


class Launch:
    """An `ottla up` on `directory`; what it says goes to the file `output`. It ends when this process does."""

    def __init__(
        self,
        directory: Path,
        output: Path,
        *,
        quorum_nodes: int,
        brokers: int,
        settings: Mapping[str, str],
        arguments: Sequence[str] = (),
        start: Start = executed,
    ) -> None:
        self._directory = directory
        self._description = directory / "cluster.json"
        self._output = output
        self._description.unlink(missing_ok=True)
        command = [sys.executable, "-m", "ottla", "up", "--data", str(directory.absolute())]
        command += ["--quorum", str(quorum_nodes), "--brokers", str(brokers)]
        command += ["--until-exit", str(os.getpid()), *arguments]
        shown, hidden = _parted(settings)
        for key, value in shown.items():
            command += ["--set", f"{key}={value}"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(SETTINGS_PREFIX)} | hidden
        with output.open("ab") as file:
            self.process = start(
                command,
                cwd=Path(_package_file).resolve().parents[1],  # where -m finds this very package first
                env=environment,
                output=file.fileno(),
            )

    def description(self) -> dict[str, Any] | None:
        """What cluster.json says; None as long as the cluster is not ready.

        Raises LocalClusterError when `ottla up` has ended.
        """
        ended = self.process.poll() is not None
        try:
            return dict(json.loads(self._description.read_text()))
        except FileNotFoundError:
            if ended:
                raise LocalClusterError(f"ottla up could not start the cluster:\n{self.said()}") from None
            return None

    def stop(self, timeout_s: float) -> None:
        """End it as Control-C would, or kill it when it has not ended after `timeout_s`."""
        self.process.terminate()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def said(self) -> str:
        """The last lines of what it wrote, and of what its nodes did, for messages."""
        logs = {self._output, *self._directory.glob("logs/*.log")}
        return "\n".join(f"{path.stem}: {last_lines(read_log(path))}" for path in sorted(logs))


def last_lines(text: str) -> str:
    """The last lines of a log, for messages."""
    return "\n".join(text.rstrip().splitlines()[-SAID_LINES_MAX:]) or "(it wrote nothing)"


def _parted(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings for a command, which everybody on the machine sees, and variables for those that are secrets."""
    # Loaded late: pytest loads this module in every run, also where no test asks for a cluster.
    from ..cli.nodes.settings import variable_of
    from ..protocol.config_keys import is_sensitive

    hidden = {variable_of(key): value for key, value in settings.items() if is_sensitive(key)}
    return {key: value for key, value in settings.items() if not is_sensitive(key)}, hidden
