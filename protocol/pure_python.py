"""The switch that disables modules in C which have an equivalent in Python: OTTLA_PURE_PYTHON=1 in the environment."""

from __future__ import annotations

import os
from typing import Final

PURE_PYTHON: Final = os.environ.get("OTTLA_PURE_PYTHON") == "1"
