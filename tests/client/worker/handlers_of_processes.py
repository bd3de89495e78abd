"""Handlers that the tests of worker processes call: another process imports them."""

from __future__ import annotations

import os
import signal
import time

from opentelemetry import trace

from ottla import Reject, WorkerRecord


class Unpicklable(Exception):
    """An exception that another process cannot load."""

    def __init__(self, one: object, two: object) -> None:
        super().__init__(f"{one} and {two}")


def compute(record: WorkerRecord) -> None:
    """Send the process id, or do what the value says."""
    match record.value:
        case b"reject":
            raise Reject("no")
        case b"die":
            os._exit(9)
        case b"hang":
            time.sleep(60)
        case b"unpicklable":
            raise Unpicklable(1, 2)
        case b"exit":
            raise SystemExit(3)
        case _:
            record.send(f"{record.topic}.out", b"%d" % os.getpid(), key=record.key)


def note_trace(record: WorkerRecord) -> None:
    """Send the identity of the current span."""
    span = trace.get_current_span().get_span_context()
    record.send("spans", b"%032x-%016x" % (span.trace_id, span.span_id))


def copy(record: WorkerRecord) -> None:
    """Send the record on. In the first attempt with a multiple of 20, die after that."""
    record.send(f"{record.topic}.out", record.value, key=record.key)
    time.sleep(0.01)
    if record.attempt == 1 and int(record.value) % 20 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
