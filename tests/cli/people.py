"""The users of commands in tests, and their terminals."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest


class Person(io.StringIO):
    """A user at a terminal, who answers."""

    def isatty(self) -> bool:
        return True


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)
