"""Profiles: named connection settings, in a file that only its owner can read.

The file is in OTTLA_CONFIG_DIR, else in `ottla` in XDG_CONFIG_HOME, else in ~/.config/ottla. Its settings have
librdkafka's names.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...protocol.nearest import nearest
from ..failures import CommandFailed, UsageError
from ..files import write_atomically
from ..terminal.text import note

FILE = "profiles.json"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class Profiles:
    """The content of the profile file: settings by profile name.

    `chosen` is the name of the default profile, set by `ottla profile use`.
    """

    chosen: str | None = None
    settings: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)

    def of(self, name: str) -> dict[str, str]:
        """Return the settings of a profile. Raises CommandFailed if there is no such profile."""
        if name not in self.settings:
            meant = nearest(name, self.settings)
            hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(self.settings) or 'none'}"
            raise CommandFailed(f"there is no profile {name!r} in {path_of(os.environ)}; {hint}")
        return self.settings[name]


def path_of(environ: Mapping[str, str]) -> Path:
    """Return the path of the profile file, given the environment variables."""
    if folder := environ.get("OTTLA_CONFIG_DIR"):
        return Path(folder) / FILE
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "ottla" / FILE


def check_name(name: str) -> None:
    """Raise UsageError if a profile cannot have this name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"a profile is named by 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', not {name!r}")


def load(path: Path) -> Profiles:
    """Read the profile file; a missing file holds no profiles. Raises CommandFailed if it is damaged."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            found: Any = json.load(file, parse_int=str, parse_float=str)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CommandFailed(f"{path} is damaged: {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        note(f"others may read {path}, which may hold passwords: chmod 600 {path}")
    try:
        settings = {
            str(name): {str(key): _text(value) for key, value in profile.items()}
            for name, profile in found["profiles"].items()
        }
        chosen = found.get("chosen")
    except (AttributeError, KeyError, TypeError):
        raise CommandFailed(f"{path} is damaged: it holds no profiles") from None
    if not isinstance(chosen, str | None):
        raise CommandFailed(f"{path} is damaged: 'chosen' is the name of a profile")
    return Profiles(chosen, settings)


def _text(value: object) -> str:
    """Format a value of the profile file as text: numbers keep their digits, and `true` does not become `True`."""
    return value if isinstance(value, str) else json.dumps(value)


def save(profiles: Profiles, path: Path) -> None:
    """Replace the profile file atomically; only its owner can read it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps({"chosen": profiles.chosen, "profiles": profiles.settings}, indent=2)
    write_atomically(path, text + "\n", mode=0o600)
