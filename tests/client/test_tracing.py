"""Traces: the context in headers, the spans of handled records, and clients without the package."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import ottla.sync
from ottla import Consumer, Producer, Worker, WorkerRecord
from ottla.client.records import ConsumerRecord
from ottla.client.tracing.iteration import TracedRecords
from ottla.client.tracing.options import TracingOptions
from ottla.client.tracing.spans import Creation, Handling
from ottla.testing import LocalCluster

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def record(*headers: tuple[str, bytes | None], offset: int = 7, value: bytes | None = b"v") -> ConsumerRecord:
    return ConsumerRecord("orders", 2, offset, 0, b"key", value, headers)


def spans(exporter: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.kind is kind]


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


# ------------------------------------------------------------ headers


def test_a_record_gets_the_context_of_its_creation(exported: InMemorySpanExporter) -> None:
    with trace.get_tracer("program").start_as_current_span("request") as request:
        headers = Creation("billing").headers("orders", [("a", b"1")])
    (created,) = spans(exported, SpanKind.PRODUCER)
    assert (created.name, trace_id(created)) == ("create orders", request.get_span_context().trace_id)
    assert dict(created.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.destination.name": "orders",
        "messaging.client.id": "billing",
    }
    assert created.context is not None
    flags = created.context.trace_flags
    written = f"00-{created.context.trace_id:032x}-{created.context.span_id:016x}-{flags:02x}"
    assert headers == [("a", b"1"), ("traceparent", written.encode())]


def test_a_record_that_is_passed_on_keeps_its_context(exported: InMemorySpanExporter) -> None:
    given_headers = [("traceparent", PARENT.encode()), ("tracestate", b"a=b")]
    assert Creation("c").headers("orders", given_headers) == given_headers
    assert exported.get_finished_spans() == ()


# ------------------------------------------------------------ handling


def test_a_handler_runs_in_a_span_that_is_linked_and_no_child(exported: InMemorySpanExporter) -> None:
    handling = Handling("billing-1", "billing")
    with handling.span(record(("traceparent", PARENT.encode()), ("tracestate", b"a=b"))) as current:
        assert trace.get_current_span() is current
    assert not trace.get_current_span().get_span_context().is_valid
    (span,) = spans(exported, SpanKind.CONSUMER)
    assert (span.name, span.parent, span.status.status_code) == ("process orders", None, StatusCode.UNSET)
    (link,) = span.links
    assert link.context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert link.context.trace_state.to_header() == "a=b"
    assert trace_id(span) != link.context.trace_id
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "2",
        "messaging.client.id": "billing-1",
        "messaging.consumer.group.name": "billing",
        "messaging.kafka.offset": 7,
        "messaging.kafka.message.key": "key",
    }


def test_an_exception_of_a_handler_is_in_its_span(exported: InMemorySpanExporter) -> None:
    with pytest.raises(KeyError), Handling("c", None).span(record(value=None)):
        raise KeyError("customer")
    (span,) = spans(exported, SpanKind.CONSUMER)
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "KeyError"
    assert span.attributes["messaging.kafka.message.tombstone"] is True
    assert [event.name for event in span.events] == ["exception"]


def test_an_exception_without_a_text_is_in_its_span(exported: InMemorySpanExporter) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ArithmeticError

    with pytest.raises(Mute), Handling("c", None).span(record()):
        raise Mute
    (span,) = spans(exported, SpanKind.CONSUMER)
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


@given(st.binary(max_size=2_000), st.binary(max_size=2_000) | st.none())
def test_any_header_may_come(parent: bytes, state: bytes | None) -> None:
    with Handling("c", "g").span(record(("traceparent", parent), ("tracestate", state))):
        pass


@pytest.mark.parametrize("value", [None, b"", b"00-0-0-01", b"\xff", PARENT.encode() * 40])
def test_a_context_that_is_none_is_not_linked(value: bytes | None, exported: InMemorySpanExporter) -> None:
    with Handling("c", "g").span(record(("traceparent", value))):
        pass
    assert spans(exported, SpanKind.CONSUMER)[0].links == ()


async def test_a_span_of_a_loop_ends_with_the_next_record(exported: InMemorySpanExporter) -> None:
    left = [record(offset=offset) for offset in range(3)]

    async def read() -> ConsumerRecord:
        assert not trace.get_current_span().get_span_context().is_valid
        if not left:
            raise StopAsyncIteration
        return left.pop(0)

    traced = TracedRecords(Handling("c", "g").in_hand(), read)
    inner = trace.get_tracer("program")
    async for found in traced:
        with inner.start_as_current_span(f"work {found.offset}"):
            pass
        if found.offset == 1:
            break
    assert trace.get_current_span().get_span_context().is_valid
    # Another task stops the consumer: it ends the span, and cannot restore the context of this task.
    await asyncio.create_task(ending(traced))
    finished = exported.get_finished_spans()
    assert [span.name for span in finished] == ["work 0", "process orders", "work 1", "process orders"]
    parents = [span.parent.span_id for span in finished if span.parent is not None]
    assert parents == [
        span.context.span_id for span in finished if span.name.startswith("process") and span.context
    ]


async def ending(traced: TracedRecords) -> None:
    traced.end()


# ------------------------------------------------------------ clients


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1) as running:
        yield running


@pytest.mark.cluster
async def test_the_span_of_a_consumer_is_linked_to_its_producer(
    cluster: LocalCluster, exported: InMemorySpanExporter, tmp_path: Any
) -> None:
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "tracing": True}
    cluster.create_topic("traced")
    async with Producer(**options) as producer:
        await producer.send_and_wait("traced", b"1", key=b"k", headers=[("a", b"b")])
    with ottla.sync.Producer(**options) as blocking:
        blocking.send_and_wait("traced", b"2")
    async with Producer(**options, spool_dir=tmp_path) as spooling:
        await spooling.send("traced", b"3")
        await spooling.flush()
    created = [span.context.span_id for span in spans(exported, SpanKind.PRODUCER) if span.context]
    assert len(created) == 3
    with pytest.raises(LookupError):
        async with Consumer("traced", group_id="g", auto_offset_reset="earliest", **options) as consumer:
            async for found in consumer:
                if found.value == b"3":
                    raise LookupError
    handled = spans(exported, SpanKind.CONSUMER)
    assert [link.context.span_id for span in handled for link in span.links] == created
    assert [span.status.status_code for span in handled] == [StatusCode.UNSET] * 2 + [StatusCode.ERROR]
    exported.clear()
    with ottla.sync.Consumer("traced", auto_offset_reset="earliest", **options) as blocking_consumer:
        for found in blocking_consumer:
            assert trace.get_current_span().get_span_context().is_valid
            if found.value == b"3":
                break
    assert not trace.get_current_span().get_span_context().is_valid
    assert len(spans(exported, SpanKind.CONSUMER)) == 3


@pytest.mark.cluster
@pytest.mark.parametrize("transactional", [False, True], ids=["at least once", "exactly once"])
async def test_the_span_of_a_workers_handler_is_linked_to_its_producer(
    cluster: LocalCluster, exported: InMemorySpanExporter, transactional: bool
) -> None:
    topic = f"worked-on-{transactional}"
    for name in (topic, f"{topic}.bills"):
        cluster.create_topic(name)
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "tracing": True}
    async with Producer(**options) as producer:
        await producer.send_and_wait(topic, b"1", key=b"k")
    (created,) = spans(exported, SpanKind.PRODUCER)
    worker = Worker(topic, group_id=topic, transactional=transactional, idle_timeout_ms=300, **options)

    @worker.handler
    async def bill(order: WorkerRecord) -> None:
        order.send(f"{topic}.bills", order.value, key=order.key)

    await worker.run()
    (handled,) = spans(exported, SpanKind.CONSUMER)
    assert created.context is not None
    assert [link.context.span_id for link in handled.links] == [created.context.span_id]
    exported.clear()
    async with Consumer(f"{topic}.bills", auto_offset_reset="earliest", **options) as consumer:
        async for found in consumer:
            assert "traceparent" in dict(found.headers)
            break
    (read,) = spans(exported, SpanKind.CONSUMER)
    assert [link.context.trace_id for link in read.links] == [trace_id(handled)]


def test_nothing_is_imported_without_the_option() -> None:
    program = (
        "import sys, ottla; ottla.Producer(); ottla.Consumer('orders')\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or name.endswith('tracing.spans')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("kind", [Producer, Consumer, ottla.sync.Producer, ottla.sync.Consumer])
def test_a_missing_package_is_named(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "ottla.client.tracing.spans", raising=False)
    with pytest.raises(
        ModuleNotFoundError, match=r"tracing=True needs opentelemetry-api: pip install '\.\[otel\]'"
    ):
        kind(tracing=True)
    assert TracingOptions().handling("c", None) is None
