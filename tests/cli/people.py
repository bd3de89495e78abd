"""Who uses commands in tests, and what they read."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest


class Person(io.StringIO):
    """Somebody at a terminal, who answers."""

    def isatty(self) -> bool:
        return True


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)
