"""Error answers that are derived from schemas are those of the handlers' own functions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.dataplane.server import HandlerTable
from ottla.dataplane.server.handler import Handler
from ottla.dataplane.server.router import _leave_out_unknown
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.wire.codec import decode, encode
from tests.test_docs import handler_classes

from .error_requests import messages

SPECIAL = {
    "AlterClientQuotas",
    "AlterPartitionReassignments",
    "AlterReplicaLogDirs",
    "AlterUserScramCredentials",
    "Fetch",
    "Metadata",
    "Produce",
}


def name_of(handler: Handler) -> str:
    return handler.request_class.__name__.removesuffix("Request")


HANDLERS = [
    handler
    for handler in HandlerTable(*(object.__new__(each) for each in handler_classes()))
    if handler.on_error is not None and name_of(handler) not in SPECIAL
]


@pytest.mark.parametrize("handler", HANDLERS, ids=name_of)
@given(data=st.data(), code=st.sampled_from(ErrorCode), text=st.none() | st.text(max_size=5))
@settings(max_examples=60)
def test_the_derived_answer_is_the_one_of_the_handlers_own_function(
    handler: Handler, data: st.DataObject, code: ErrorCode, text: str | None
) -> None:
    error = KafkaError(code, text)
    for version in range(handler.min_version, handler.max_version + 1):
        request = data.draw(messages(handler.request_class, version))
        request = decode(handler.request_class, encode(request, version), version)
        assert handler.on_error is not None
        theirs = handler.on_error(request, error)
        _leave_out_unknown(theirs, version)
        derived = handler.errors.answer(request, error, version)
        assert derived is not None
        assert encode(derived, version) == encode(theirs, version)
