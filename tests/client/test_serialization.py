"""The arguments of a producer: serializers make bytes of them, and invalid records are refused at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest import mock

import pytest

from ottla.client.failures import ClientError, SerializationFailed
from ottla.client.producer import Producer
from ottla.client.producing import requests
from ottla.client.producing.partitioner import murmur2_partition
from ottla.protocol.errors import ErrorCode
from tests.client.fake_cluster import fake_cluster


def as_json(given: object) -> bytes:
    return json.dumps(given).encode()


async def test_serializers_make_bytes_and_leave_none_alone() -> None:
    async with (
        fake_cluster(partitions=4) as cluster,
        Producer(
            bootstrap_servers=cluster.bootstrap, key_serializer=str.encode, value_serializer=as_json
        ) as producer,
    ):
        first = await producer.send_and_wait("t", {"amount": 7}, key="anna")
        assert first.partition == murmur2_partition(b"anna", 4)
        await producer.send_and_wait("t", None, key="anna")
        log = cluster.logs[first.partition]
        assert log.values == [b'{"amount": 7}', b""], "a tombstone, which is b'' here, did not become null"


async def test_what_a_serializer_raises_reaches_the_caller_and_harms_nobody_else() -> None:
    async with (
        fake_cluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, value_serializer=as_json) as producer,
    ):
        good = await producer.send("t", 1)
        with pytest.raises(
            SerializationFailed, match="value_serializer failed with a record for 't'"
        ) as failed:
            await producer.send("t", {1, 2})
        assert isinstance(failed.value.__cause__, TypeError)
        assert failed.value.code is ErrorCode.INVALID_RECORD
        await producer.send_and_wait("t", 2)
        assert (await good).offset == 0
        assert cluster.logs[0].values == [b"1", b"2"]


async def test_a_serializer_has_to_make_bytes() -> None:
    async with (
        fake_cluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, value_serializer=json.dumps) as producer,  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=r"what the value_serializer makes .* is bytes or None, not str"):
            await producer.send("t", 1)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"value": "text"}, TypeError, "the value of a record for 't' is bytes or None, not str; encode it"),
        ({"value": 5}, TypeError, "not int"),
        ({"key": "k"}, TypeError, "the key of a record for 't' .* give the producer a key_serializer"),
        ({"headers": [("name", "text")]}, TypeError, r"a header .* not \('name', 'text'\)"),
        ({"headers": [(b"name", b"")]}, TypeError, "a header"),
        ({"headers": {"name": b""}}, TypeError, "a header .* not 'name'"),
        ({"headers": [("name",)]}, TypeError, "a header"),
        ({"headers": [("\udcff", b"")]}, ValueError, r"a header .* is not UTF-8: '\\udcff'"),
        ({"timestamp_ms": 1.5}, ValueError, "whole number of milliseconds since 1970, not 1.5"),
        ({"timestamp_ms": -1}, ValueError, "not -1"),
        ({"timestamp_ms": 1 << 63}, ValueError, "timestamp_ms"),
        ({"partition": "0"}, TypeError, "partition is a whole number or None, not '0'"),
    ],
)
async def test_what_is_no_record_is_refused_and_the_producer_goes_on(
    given: dict[str, Any], error: type[Exception], message: str
) -> None:
    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        with pytest.raises(error, match=message):
            await producer.send("t", **({"value": b"bad"} | given))
        await producer.send_and_wait("t", b"good")
        assert cluster.logs[0].values == [b"good"]


async def test_what_is_handed_over_may_be_changed_afterwards() -> None:
    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        value = bytearray(b"before")
        delivery = await producer.send("t", value, headers=[("h", memoryview(value))])  # type: ignore[list-item]
        value[:] = b"after!"
        await delivery
        assert cluster.logs[0].values == [b"before"]


@pytest.mark.parametrize("chosen", [4, -1, None, "0"])
async def test_a_partitioner_that_chooses_what_is_not_there_is_told_so(chosen: Any) -> None:
    async with (
        fake_cluster(partitions=4) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, partitioner=lambda key, count: chosen) as producer,
    ):
        with pytest.raises(ValueError, match=r"the partitioner chose .*, topic 't' has 4 partitions"):
            await producer.send("t", b"", key=b"k")


async def test_nobody_waits_for_ever_after_a_fault_of_the_producer_itself() -> None:
    """The fault would have been a hang: no delivery, no flush, no stop."""
    async with asyncio.timeout(20), fake_cluster() as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap)
        await producer.start()
        calls: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: calls.append(context["exception"])
        )
        with mock.patch.object(requests, "encode_records", side_effect=OverflowError("too far")):
            delivery = await producer.send("t", b"")
            with pytest.raises(ClientError, match=r"fault of its own: OverflowError\('too far'\)"):
                await delivery
        assert isinstance(calls[0], OverflowError), "it is not hidden from the loop's handler"
        with pytest.raises(ClientError, match="fault of its own"):
            await producer.send("t", b"")
        await producer.flush()
        await producer.stop()
