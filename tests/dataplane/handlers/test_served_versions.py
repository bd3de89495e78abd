"""Each handler serves the versions that its messages have, and its module names them."""

from __future__ import annotations

import re
import sys

import pytest

from ottla.dataplane.server import HandlerTable
from ottla.dataplane.server.handler import Handler
from tests.test_docs import handler_classes

HANDLERS = list(HandlerTable(*(object.__new__(each) for each in handler_classes())))
NOT_SERVED = {"InitProducerId": 6}
"""The last version of the messages where brokers serve fewer: two-phase commit (KIP-939) is for clients alone."""


def name_of(handler: Handler) -> str:
    return handler.request_class.__name__.removesuffix("Request")


@pytest.mark.parametrize("handler", HANDLERS, ids=name_of)
def test_a_request_a_response_and_their_handler_have_the_same_last_version(handler: Handler) -> None:
    request, response = handler.request_class.schema.versions, handler.request_class.response.schema.versions
    assert (request.first, request.last) == (response.first, response.last), "@request and @response differ"
    assert request.first <= handler.min_version
    last = NOT_SERVED.get(name_of(handler), handler.max_version)
    assert request.last == last, "@handles and @request have different last versions"


@pytest.mark.parametrize("handler", HANDLERS, ids=name_of)
def test_the_module_of_a_handler_names_its_versions(handler: Handler) -> None:
    first, last = handler.min_version, handler.max_version
    versions = f"{first}" if first == last else f"{first}-{last}"
    text = sys.modules[handler.function.__module__].__doc__ or ""
    wanted = rf"\b{name_of(handler)}\s+\(?{versions}\b(?!-)"
    assert re.search(wanted, text), f"the docstring of the module has no '{name_of(handler)} ({versions})'"
