"""The reader of decrypted TLS data: in C if that was built, in Python otherwise or if OTTLA_PURE_PYTHON=1."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import decrypted_reads_in_python as _reads
else:
    try:
        if os.environ.get("OTTLA_PURE_PYTHON") == "1":
            raise ImportError("what is written in C is turned down")
        from . import _decrypted_reads as _reads
    except ImportError:  # also if it is not built, or is built for another Python
        from . import decrypted_reads_in_python as _reads

read_decrypted = _reads.read_decrypted

__all__ = ["read_decrypted"]
