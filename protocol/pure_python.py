"""The switch OTTLA_PURE_PYTHON=1 in the environment, which disables modules in C that have an equivalent in Python."""

from __future__ import annotations

import os
from typing import Final

PURE_PYTHON: Final = os.environ.get("OTTLA_PURE_PYTHON") == "1"
