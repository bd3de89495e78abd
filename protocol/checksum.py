"""CRC-32C, which record batches and files carry.

Of the package `crc32c` the extension alone is loaded. The package itself asks `importlib.metadata` for its version.
That loads what reads e-mail and archives: 2.5 MB of memory in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _of_extension() -> Callable[..., int]:
    package = find_spec("crc32c")
    folders = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", folders)
    if spec is None or spec.loader is None:
        raise ImportError("the package crc32c, or its extension, is not installed")
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    found: Callable[..., int] = extension.crc32c
    return found


crc32c = _of_extension()
"""`crc32c(data, before=0)`: of the data behind what gave `before`."""
