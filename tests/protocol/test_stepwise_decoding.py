"""Requests with many elements are read in steps: the same message as at once, and no step is long. A bounded reader
gives up where a message has more elements than its bound."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

import ottla.protocol.messages
from ottla.protocol.wire.codec import MalformedMessage, decode, decode_at_most, decode_stepwise, encode
from ottla.protocol.wire.codec_source import STEP_ELEMENTS
from ottla.protocol.wire.schema import Field, Message, Request
from tests.worst_requests import requests, widest

ELEMENTS = 600

for module in pkgutil.iter_modules(ottla.protocol.messages.__path__):
    importlib.import_module(f"ottla.protocol.messages.{module.name}")


def in_steps(cls: type[Message], body: bytes, version: int) -> tuple[Message, list[int]]:
    steps = []
    reading = decode_stepwise(cls, memoryview(body), version)
    while True:
        try:
            steps.append(next(reading))
        except StopIteration as done:
            return done.value, steps


@pytest.mark.parametrize("request_class", requests(), ids=lambda cls: cls.__name__)
def test_every_request_is_read_in_steps_and_within_a_bound_as_it_is_at_once(
    request_class: type[Request[Any]],
) -> None:
    for version in {request_class.min_version, request_class.max_version}:
        for path, message in widest(request_class, version, ELEMENTS):
            body = encode(message, version)
            read, steps = in_steps(request_class, body, version)
            assert read == decode(request_class, memoryview(body), version), (path, version)
            assert sum(steps) >= ELEMENTS, (path, version)
            assert decode_at_most(request_class, memoryview(body), version, sum(steps)) == read, (
                path,
                version,
            )
            assert decode_at_most(request_class, memoryview(body), version, sum(steps) - 1) is None, (
                path,
                version,
            )
            if not _holds_numbers(path[-1]):
                assert max(steps) <= STEP_ELEMENTS, (path, version)


def _holds_numbers(field: Field) -> bool:
    assert field.element is not None
    return field.element.kind not in ("struct", "string", "uuid", "bytes")


@pytest.mark.parametrize("request_class", requests(), ids=lambda cls: cls.__name__)
def test_what_is_cut_short_is_malformed_at_whichever_step(request_class: type[Request[Any]]) -> None:
    version = request_class.max_version
    for path, message in widest(request_class, version, ELEMENTS):
        body = encode(message, version)
        for cut in (1, len(body) // 2, len(body) - 1):
            try:
                expected: Message | str = decode(request_class, body[:cut], version)
            except MalformedMessage as error:
                expected = str(error)
            try:
                found: Message | str = in_steps(request_class, body[:cut], version)[0]
            except MalformedMessage as error:
                found = str(error)
            assert found == expected, (path, cut)
            try:
                bounded: Message | str | None = decode_at_most(request_class, body[:cut], version, 10**6)
            except MalformedMessage as error:
                bounded = str(error)
            assert bounded == expected, (path, cut)
