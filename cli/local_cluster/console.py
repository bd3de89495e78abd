"""The console of a local cluster, in a separate process that ends with the cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from ...console.requirements import require_extra
from ..failures import CommandFailed
from ..nodes.child_processes import die_with_parent
from .console_address import console_address, token_file
from .layout import CONSOLE_LOG, ClusterLayout
from .ports import HOST
from .supervisor import STOP_GRACE_S

READS, CHANGES = "reads", "changes"
_OF_OTHER_CLUSTERS: Final = ("OTTLA_BOOTSTRAP", "OTTLA_PROFILE", "OTTLA_COMMAND_CONFIG")


class LocalConsole:
    """The process of a local cluster's web console. It prints its address, which is the same in each run."""

    def __init__(self, layout: ClusterLayout, mode: str, listen: str | None = None) -> None:
        """Keep the cluster's layout, and find the console's address and token.

        `mode` is READS, or CHANGES for a console that can change the cluster. `listen` is the address that the user
        chose in this run. Raises CommandFailed if the console's dependencies are missing or its address is in use, and
        UsageError for a malformed address.
        """
        try:
            require_extra()
        except ModuleNotFoundError as error:
            raise CommandFailed(str(error)) from None
        self._layout, self._mode = layout, mode
        self._address = console_address(layout.directory, listen, layout.reserved)
        self._token_file = token_file(layout.directory)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def argv(self) -> list[str]:
        """The command line of the console's process."""
        words = [sys.executable, "-m", "ottla", "console", "-b", self._layout.local_bootstrap]
        words += ["--listen", str(self._address), "--token-file", str(self._token_file), "--show-token"]
        for member in self._layout.members:
            words += ["--metrics", f"http://{HOST}:{member.metrics_port}/metrics"]
        if self._layout.security is not None:
            words += ["--metrics-token-file", str(self._layout.security.metrics_token_file)]
        return words + (["--allow-changes"] if self._mode == CHANGES else [])

    def start(self, environment: Mapping[str, str], directory: str) -> None:
        """Start the console's process; its log is `console.log` in the folder of the cluster."""
        mine = {name: value for name, value in environment.items() if name not in _OF_OTHER_CLUSTERS}
        mine["OTTLA_CONFIG_DIR"] = str(
            self._layout.directory / "client"
        )  # A secured cluster has a profile there.
        with (self._layout.directory / CONSOLE_LOG).open("ab") as log:
            self._process = subprocess.Popen(
                self.argv,
                cwd=directory,
                env=mine,
                stdin=subprocess.DEVNULL,
                stderr=log,
                process_group=0,
                preexec_fn=die_with_parent("ottla up"),
            )

    def stop(self) -> None:
        """Stop the console's process if it was started."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
