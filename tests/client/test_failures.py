"""The codes of failures that a client finds itself: none of them says that a server failed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import ottla.client
from ottla.client.consumer import Consumer
from ottla.client.failures import ClientClosed, ClientError, SpoolUnusable, TlsFailed
from ottla.protocol.errors import ErrorCode
from tests.client.fake_cluster import fake_cluster


def family(kind: type[ClientError] = ClientError) -> Iterator[type[ClientError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from family(subclass)


def test_no_failure_of_a_client_says_that_a_server_failed() -> None:
    for module in pkgutil.walk_packages(ottla.client.__path__, "ottla.client."):
        importlib.import_module(module.name)
    kinds = {*family()}
    assert {ClientClosed, SpoolUnusable, TlsFailed} < kinds
    for kind in kinds:
        code = kind.error_code
        assert code not in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE), kind
        assert code.message, kind


async def test_a_closed_client_says_so() -> None:
    async with fake_cluster() as cluster:
        consumer = Consumer("t", bootstrap_servers=cluster.bootstrap)
        await consumer.start()
        await consumer.stop()
        with pytest.raises(ClientClosed) as closed:
            await consumer.getmany(timeout_ms=None)
    assert closed.value.code is ErrorCode.CLIENT_CLOSED
    assert str(closed.value) == closed.value.message == "the consumer was stopped"
