"""Checks that secrets among a node's settings stand only where other users of the machine cannot read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..failures import UsageError
from .config_providers import has_reference
from .settings import variable_of


def check_visible(overrides: Mapping[str, str]) -> None:
    """Raise UsageError for a secret among the --set settings. A reference to a secret is allowed."""
    for name in _secrets(overrides):
        raise UsageError(
            f"--set {name}: other users could see it in the list of processes. The file, the variable "
            f"{variable_of(name)} or a reference (config.providers) takes secrets"
        )


def remark_on_file(file: Path, settings: Mapping[str, str]) -> str:
    """Return a warning if the settings file has secrets and every user of the machine can read it; otherwise an empty
    text."""
    from ...protocol.session.node_secrets import others_may_read

    name = next(iter(_secrets(settings)), None)
    if name is None or not others_may_read(file):
        return ""
    return f"{file} has {name}, and every user of this machine may read it: chmod 600 {file}"


def _secrets(settings: Mapping[str, str]) -> list[str]:
    """Return the names of the secret settings that are given by value, not by reference."""
    from ...protocol.settings.config_keys import is_sensitive

    return [
        name for name, text in settings.items() if text and is_sensitive(name) and not has_reference(text)
    ]
