"""The two codecs of records, for tests that hold for both."""

from __future__ import annotations

from types import ModuleType

import pytest

from ottla.protocol import record, record_codec

try:
    from ottla.protocol import _record_codec as in_c
except ImportError:
    in_c = None

NEEDS_C = pytest.mark.skipif(
    in_c is None, reason="the extension is not built: no compiler, or no Python headers"
)
BOTH = [
    pytest.param(record_codec, id="in Python"),
    pytest.param(in_c, id="in C", marks=NEEDS_C),
]


def use(codec: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Let everything that is not about one codec work with this one."""
    patch.setattr(record, "encode_records", codec.encode_records)
    patch.setattr(record, "RecordCursor", codec.RecordCursor)
