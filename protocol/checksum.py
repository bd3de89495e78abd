"""CRC-32C, the checksum of record batches and files.

Only the extension module of the package `crc32c` is loaded. The package itself asks `importlib.metadata` for its
version, and that loads parsers of e-mail and archives: 2.5 MB of memory in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _of_extension() -> Callable[..., int]:
    package = find_spec("crc32c")
    folders = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", folders)
    if spec is None or spec.loader is None:
        return import_module("crc32c").crc32c  # type: ignore[no-any-return] # a release that is laid out otherwise
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension.crc32c  # type: ignore[no-any-return]


crc32c = _of_extension()
"""Compute a checksum: `crc32c(data, before=0)`. `before` is the checksum of the data in front of `data`."""
