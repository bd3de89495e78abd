"""The build of this installation: the versions of Ottla and Python, and the codec: the extensions in C, or Python.

An extension in C replaces a module in Python that does the same work, only slower. `setup.py` builds the extensions
where there is a C compiler and Python's headers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from .. import __path__ as _roots
from ..protocol.pure_python import PURE_PYTHON
from ..version import __version__

EXTENSIONS: Final = (
    "network.tls._decrypted_reads",
    "protocol.records._record_codec",
    "protocol.records._record_validation",
    "protocol.direct_codecs._produce_frames",
    "dataplane.log.recovery._plain_batches",
    "dataplane.log.segments._batch_search",
    "dataplane.share.leader._key_hashes",
    "client.producing._appending",
    "client.producing.columns._rows",
)
"""The extensions of `setup.py`, by their names in this package."""
IN_C, IN_PYTHON, MIXED = "C", "python", "mixed"


@dataclass(frozen=True, slots=True)
class Build:
    """Versions and codec of an installation."""

    version: str
    python: str
    codec: str
    """IN_C if all extensions are in use, IN_PYTHON if none is, else MIXED."""
    slower: str
    """The reason why work is done in Python; empty if all extensions are in use."""

    def __str__(self) -> str:
        why = f" (slower: {self.slower})" if self.slower else ""
        return f"ottla {self.version}, Python {self.python}, codec: {self.codec}{why}"


def this_build() -> Build:
    """Return the build that this process runs. No extension is loaded for that."""
    missing = [name for name in EXTENSIONS if not _is_built(name)]
    codec, slower = codec_of(missing, is_switched_off=PURE_PYTHON)
    return Build(__version__, sys.version.split()[0], codec, slower)


def codec_of(missing: Sequence[str], *, is_switched_off: bool) -> tuple[str, str]:
    """Return the codec and the reason why it is slower. Pure."""
    if is_switched_off:
        return IN_PYTHON, "OTTLA_PURE_PYTHON=1"
    if not missing:
        return IN_C, ""
    if len(missing) == len(EXTENSIONS):
        return IN_PYTHON, "no C compiler or no Python headers at installation"
    return MIXED, f"not built at installation: {', '.join(missing)}"


def _is_built(extension: str) -> bool:
    """Return whether an extension was built for this Python. Its folder is below one of the package's roots: in a
    checkout they differ from the folder of the package."""
    path = extension.replace(".", "/")
    return any(Path(root, path + suffix).is_file() for root in _roots for suffix in EXTENSION_SUFFIXES)
