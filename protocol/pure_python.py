"""Whether what is written in C, and in Python as well, is turned down: with OTTLA_PURE_PYTHON=1 in the environment."""

from __future__ import annotations

import os
from typing import Final

PURE_PYTHON: Final = os.environ.get("OTTLA_PURE_PYTHON") == "1"
