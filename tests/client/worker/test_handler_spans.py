"""Spans of a worker's attempts, without a cluster: links, failures, retries, and contexts of sent records."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import ottla.sync
from ottla import DeadLetter, Reject, Worker, WorkerRecord
from ottla.client.exactly_once.batch import NewRecord
from ottla.client.tracing.attempts import AttemptTraces
from ottla.client.worker.handlers import ThreadCalls
from ottla.client.worker.processes import ProcessCalls
from tests.client.worker.dispatch_bench import Bench
from tests.client.worker.handlers_of_processes import note_trace

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CREATED = (("traceparent", PARENT.encode()),)


def traces() -> AttemptTraces:
    return AttemptTraces("billing-1", "billing")


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def identity(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}-{span.context.span_id:016x}"


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def context_of(sent: NewRecord) -> str:
    (parent,) = (value for name, value in sent.headers if name == "traceparent" and value is not None)
    return parent.decode()[3:-3]


async def test_each_attempt_has_a_span_that_is_linked_to_the_producers(
    exported: InMemorySpanExporter,
) -> None:
    async def bill(record: WorkerRecord) -> None:
        with trace.get_tracer("program").start_as_current_span("charge"):
            await asyncio.sleep(0)
        if record.attempt < 3:
            raise LookupError("no customer")

    bench = Bench(bill, traces=traces())
    bench.offer(1, headers=CREATED)
    await bench.until(lambda: bench.settlement.settled == [0])
    attempts = named(exported, "process orders")
    assert [span.kind for span in attempts] == [SpanKind.CONSUMER] * 3
    assert [span.parent for span in attempts] == [None] * 3
    assert {f"{link.context.trace_id:032x}" for span in attempts for link in span.links} == {PARENT[3:35]}
    assert [len(span.links) for span in attempts] == [1] * 3
    told = [span.attributes or {} for span in attempts]
    assert [attributes["ottla.worker.attempt"] for attributes in told] == [1, 2, 3]
    assert {attributes["messaging.consumer.group.name"] for attributes in told} == {"billing"}
    failed, ok = StatusCode.ERROR, StatusCode.UNSET
    assert [span.status.status_code for span in attempts] == [failed, failed, ok]
    assert told[0]["error.type"] == "LookupError"
    charges = named(exported, "charge")
    assert [parent_of(span) for span in charges] == [
        span.context.span_id for span in attempts if span.context
    ]


async def test_spans_do_not_reach_other_records_of_a_runner(exported: InMemorySpanExporter) -> None:
    runners: set[asyncio.Task[object] | None] = set()

    async def handle(record: WorkerRecord) -> None:
        runners.add(asyncio.current_task())
        with trace.get_tracer("program").start_as_current_span(f"work {record.offset}"):
            await asyncio.sleep(0)

    bench = Bench(handle, concurrency=4, traces=traces())
    bench.offer(200)
    await bench.until(lambda: len(bench.settlement.settled) == 200)
    assert len(runners) == 4, "a runner with a span ends no sooner"
    spans = named(exported, "process orders")
    by_offset = {(span.attributes or {})["messaging.kafka.offset"]: span for span in spans}
    for offset, span in by_offset.items():
        (work,) = named(exported, f"work {offset}")
        assert span.context is not None
        assert (span.parent, parent_of(work)) == (None, span.context.span_id)


async def test_a_handler_in_a_thread_is_in_the_span(exported: InMemorySpanExporter) -> None:
    def bill(record: WorkerRecord) -> None:
        with trace.get_tracer("program").start_as_current_span("charge"):
            record.send("bills", b"1")

    calls = ThreadCalls(bill)
    bench = Bench(calls, traces=traces())
    bench.offer(1, headers=CREATED)
    await bench.until(lambda: bench.settlement.settled == [0])
    calls.close()
    (attempt,), (charge,), (create,) = (
        named(exported, name) for name in ("process orders", "charge", "create bills")
    )
    assert attempt.context is not None
    assert charge.context is not None
    assert parent_of(charge) == attempt.context.span_id
    assert parent_of(create) == charge.context.span_id
    (sent,) = bench.settlement.sent
    assert context_of(sent) == identity(create)


async def test_the_context_of_an_attempt_reaches_a_handlers_process(exported: InMemorySpanExporter) -> None:
    made = traces()
    calls = ProcessCalls(note_trace, made.creation)
    bench = Bench(calls, traces=made)
    try:
        bench.offer(2, headers=CREATED)
        async with asyncio.timeout(60):
            while len(bench.settlement.settled) < 2:
                await asyncio.sleep(0.01)
    finally:
        calls.close()
    attempts = [identity(span) for span in named(exported, "process orders")]
    assert [(sent.value or b"").decode() for sent in bench.settlement.sent] == attempts
    assert [context_of(sent) for sent in bench.settlement.sent] == attempts, "the process has no SDK"


async def test_a_letter_keeps_the_context_of_its_record(exported: InMemorySpanExporter) -> None:
    async def refuse(record: WorkerRecord) -> None:
        raise Reject("empty")

    bench = Bench(refuse, dead_letter=DeadLetter("orders.dlq", most_ratio=None), traces=traces())
    bench.offer(1, headers=CREATED)
    await bench.until(lambda: bench.settlement.settled == [0])
    (letter,) = bench.settlement.sent
    assert context_of(letter) == PARENT[3:-3]
    (span,) = named(exported, "process orders")
    assert (span.attributes or {})["error.type"] == "ottla.Reject"


async def test_attempts_that_are_cut_off_end_their_spans(exported: InMemorySpanExporter) -> None:
    started: list[int] = []

    async def hang(record: WorkerRecord) -> None:
        started.append(record.attempt)
        await asyncio.sleep(60)

    bench = Bench(hang, timeout_s=0.5, traces=traces())
    bench.offer(1)
    await bench.until(lambda: started == [1, 2])
    bench.dispatch.cancel(bench.tasks.running())
    await bench.until(lambda: len(named(exported, "process orders")) == 2)
    late, cancelled = ((span.attributes or {})["error.type"] for span in named(exported, "process orders"))
    assert (late, cancelled) == ("TimeoutError", "asyncio.exceptions.CancelledError")


def test_nothing_is_imported_without_the_option() -> None:
    program = (
        "import sys, ottla; ottla.Worker('orders', group_id='billing').handler(print)\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or name.endswith('tracing.spans')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("kind", [Worker, ottla.sync.Worker])
def test_a_missing_package_is_named(kind: type[Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in ("spans", "attempts"):
        monkeypatch.delitem(sys.modules, f"ottla.client.tracing.{name}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"tracing=True needs opentelemetry-api"):
        kind("orders", group_id="billing", tracing=True)
