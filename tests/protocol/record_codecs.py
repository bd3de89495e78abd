"""The two codecs of records, for tests that hold for both."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from ottla.client.consuming import fetched
from ottla.client.consuming.columns import fetching
from ottla.protocol.records import record, record_codec

try:
    from ottla.protocol.records import _record_codec as in_c
except ImportError:
    in_c = None

NEEDS_C = pytest.mark.skipif(
    in_c is None, reason="the extension is not built: no compiler, or no Python headers"
)
BOTH = [
    pytest.param(record_codec, id="in Python"),
    pytest.param(in_c, id="in C", marks=NEEDS_C),
]


@pytest.fixture(scope="module", autouse=True, params=BOTH)
def record_codec_in_use(request: pytest.FixtureRequest) -> Iterator[None]:
    """Import this, and each test of the module runs with both."""
    codec: ModuleType = request.param
    with pytest.MonkeyPatch.context() as patch:
        for user in (record, fetched):
            patch.setattr(user, "RecordCursor", codec.RecordCursor)
        for user in (record, fetching):
            patch.setattr(user, "Columns", codec.Columns)
        patch.setattr(record, "encode_records", codec.encode_records)
        yield
