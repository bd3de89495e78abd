"""The encoding of columns into batches: in C if built, unless OTTLA_PURE_PYTHON=1 disables it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ....protocol.pure_python import PURE_PYTHON
from .rows_in_python import BlobBuffers, Rows, rows_by_partition

if not TYPE_CHECKING and not PURE_PYTHON:
    with suppress(ImportError):
        from ._rows import Rows, rows_by_partition

__all__ = ["BlobBuffers", "Rows", "rows_by_partition"]
