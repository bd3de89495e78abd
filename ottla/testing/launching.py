"""Starts `ottla up` as a child process, and reads the description and the output of its cluster."""

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
"""Prefix of variables that nodes read as settings. Removed for nodes, since tests may use such variables otherwise."""
SAID_LINES_MAX = 15


class Launch:
    """An `ottla up` process that runs a cluster with its data in `directory` and writes its output to the file
    `output`. `ottla up` stops the cluster when this Python process ends."""

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
                cwd=Path(_package_file)
                .resolve()
                .parents[1],  # -m finds this very package first in this folder
                env=environment,
                output=file.fileno(),
            )

    def description(self) -> dict[str, Any] | None:
        """Return the content of cluster.json; None until the cluster is ready.

        Raises LocalClusterError if `ottla up` has ended.
        """
        ended = self.process.poll() is not None
        try:
            return dict(json.loads(self._description.read_text()))
        except FileNotFoundError:
            if ended:
                raise LocalClusterError(f"ottla up could not start the cluster:\n{self.said()}") from None
            return None

    def stop(self, timeout_s: float) -> None:
        """Stop `ottla up` and its cluster by SIGTERM, or kill it by SIGKILL if it has not ended after `timeout_s`."""
        self.process.terminate()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def said(self) -> str:
        """Return the last lines of the logs of `ottla up` and of each node, for error messages."""
        logs = {self._output, *self._directory.glob("logs/*.log")}
        return "\n".join(f"{path.stem}: {last_lines(read_log(path))}" for path in sorted(logs))


def last_lines(text: str) -> str:
    """Return the last 15 lines of a log, for error messages."""
    return "\n".join(text.rstrip().splitlines()[-SAID_LINES_MAX:]) or "(it wrote nothing)"


def _parted(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split broker settings into those for the command line, which all users of the machine can see, and environment
    variables for secret settings."""
    # Imported late: pytest loads this module in every run, even if no test needs a cluster.
    from ..cli.nodes.settings import variable_of
    from ..protocol.settings.config_keys import is_sensitive

    hidden = {variable_of(key): value for key, value in settings.items() if is_sensitive(key)}
    return {key: value for key, value in settings.items() if not is_sensitive(key)}, hidden
