"""Hashes of the keys of records.

The implementation is `key_hashes_in_python.py`, or its equivalent in C if that was built; OTTLA_PURE_PYTHON=1 disables
the C version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.pure_python import PURE_PYTHON

if TYPE_CHECKING:
    from . import _key_hashes as _in_c
else:
    try:
        if PURE_PYTHON:
            raise ImportError("the hashes in C are turned down")
        from . import _key_hashes as _in_c
    except ImportError:  # disabled, not built, or built for another Python
        from . import key_hashes_in_python as _in_c

hash_keys = _in_c.hash_keys

__all__ = ["hash_keys"]
