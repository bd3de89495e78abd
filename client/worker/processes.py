"""Processes for handlers that compute: each calls the handler for one record at a time.

A process that is cancelled, or dies, is replaced; other calls go on. The executors of the standard library break all
calls if one process dies.

The records that a handler sends come back with the end of its call, and the worker's process sends them. A writer in
each process, joined to the transaction, would have to take back the records of an attempt that fails or is killed.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import pickle
import signal
import traceback
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from ..exactly_once.batch import NewRecord
from ..records import ConsumerRecord
from .handlers import Handler, name_of, until_ended
from .threads import HandlerThreads
from .worker_record import WorkerRecord

if TYPE_CHECKING:
    from ..tracing.spans import Creation

POLL_S = 0.05
"""The interval at which a call looks whether it is cancelled."""
END_S = 1.0
"""The time within which an idle process ends before it is killed."""

logger = logging.getLogger(__name__)


class ProcessDied(RuntimeError):
    """The process of a handler ended in the middle of a record, for example for want of memory."""


class _Request(NamedTuple):
    record: ConsumerRecord
    attempt: int
    trace: Mapping[str, str]
    """The trace context of the attempt; empty without traces."""


class _Answer(NamedTuple):
    sent: Sequence[NewRecord]
    result: str | None
    """The type of the handler's result, None for no result."""
    error: BaseException | None


class HandlerProcess:
    """A process that calls a handler. Its methods block, and belong to one thread at a time."""

    def __init__(self, handler: Handler, creation: Creation | None) -> None:
        # A forked child would inherit the event loop, its sockets, and locks of other threads.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, handler, creation), name="ottla-worker-handler", daemon=True
        )
        self._process.start()
        theirs.close()

    def wait(self) -> None:
        """Wait until the process has imported the handler. Raises ProcessDied."""
        try:
            self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error

    def call(self, record: WorkerRecord) -> object:
        """Call the handler, and return the name of its result's type. Raises its exception, ProcessDied, and
        CancelledError after the process was killed, as `record.cancelled` was set."""
        trace = {} if record.creation is None else record.creation.carried()
        try:
            self._connection.send(_Request(ConsumerRecord(*record), record.attempt, trace))
            while not self._connection.poll(POLL_S):
                if record.cancelled.is_set():
                    raise asyncio.CancelledError
            answer: _Answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(END_S)
            raise ProcessDied(
                f"the handler's process died, with exit code {self._process.exitcode}"
            ) from error
        if answer.error is not None:
            raise answer.error
        record.sent = answer.sent
        return answer.result

    @property
    def is_alive(self) -> bool:
        """True while the process can be called."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End the process at once, in the middle of a record if need be."""
        self._process.kill()
        self._process.join(END_S)
        self._connection.close()

    def _death(self) -> ProcessDied:
        self._process.join(END_S)
        return ProcessDied(f"the handler's process died, with exit code {self._process.exitcode}")

    def close(self) -> None:
        """End the idle process."""
        self._connection.close()
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()


class ProcessCalls:
    """Calls of a plain function in processes, which begin when they are needed."""

    coroutine_function = None

    def __init__(self, handler: Handler, creation: Creation | None = None) -> None:
        """`creation` makes the trace contexts of records that the handler sends.

        Raises TypeError for a handler that another process cannot import.
        """
        self._handler = handler
        self._creation = creation
        self._threads = HandlerThreads("ottla-worker-process")
        self._idle: list[HandlerProcess] = []
        self._reserved: dict[int, HandlerProcess] = {}
        """The processes of calls that were prepared, by the identities of their records."""
        self._is_closed = False
        try:
            pickle.dumps(handler)
        except Exception as error:
            raise TypeError(
                f"handler {name_of(handler)} cannot be imported by another process: define it at the top of a module "
                f"({error})"
            ) from error

    async def prepare(self, record: WorkerRecord) -> None:
        """Reserve a process for a record, and start it if none is idle. Raises ProcessDied if it does not start."""
        await until_ended(self._threads, lambda: self._reserve(record), record, name_of(self._handler))

    async def call(self, record: WorkerRecord) -> object:
        """Call the handler in a process, and wait for its end. Raises its exception, and ProcessDied.

        A cancellation kills the process.
        """
        return await until_ended(self._threads, lambda: self._call(record), record, name_of(self._handler))

    def close(self) -> None:
        """End the processes; one in a handler ends with its call."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()
        self._threads.close()

    def _call(self, record: WorkerRecord) -> object:
        """Call the handler, on a thread that waits for it."""
        process = self._reserved.pop(id(record))
        try:
            result = process.call(record)
        except (ProcessDied, asyncio.CancelledError):
            process.kill()
            raise
        except BaseException:
            self._put_back(process)
            raise
        self._put_back(process)
        return result

    def _reserve(self, record: WorkerRecord) -> None:
        process = self._next_idle() or self._started()
        if record.cancelled.is_set():
            self._put_back(process)
        else:
            self._reserved[id(record)] = process

    def _next_idle(self) -> HandlerProcess | None:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            process.kill()
        return None

    def _started(self) -> HandlerProcess:
        process = HandlerProcess(self._handler, self._creation)
        try:
            process.wait()
        except BaseException:
            process.kill()
            raise
        return process

    def _put_back(self, process: HandlerProcess) -> None:
        if self._is_closed:
            process.close()
        else:
            self._idle.append(process)


def _serve(connection: Connection, handler: Handler, creation: Creation | None) -> None:
    """Call the handler for each record that comes, until the worker is gone.

    Signals are the worker's: a terminal and a service manager send them to all processes of a group.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection.send(True)  # The handler is imported: the time of a call begins.
    while True:
        try:
            request: _Request = connection.recv()
        except (EOFError, OSError):
            return
        with nullcontext() if creation is None else creation.continued(request.trace):
            answer = _answer(handler, request, creation)
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return


def _answer(handler: Handler, request: _Request, creation: Creation | None) -> _Answer:
    record = WorkerRecord.of(request.record, request.attempt, creation)
    try:
        result = handler(record)
    except Exception as error:
        return _Answer([], None, _portable(error))
    answer = _Answer(record.sent, None if result is None else type(result).__name__, None)
    try:
        pickle.dumps(answer)
    except Exception as error:
        return _Answer([], None, TypeError(f"a record that the handler sent has no bytes: {error}"))
    return answer


def _portable(error: Exception) -> BaseException:
    """Return an exception that the worker's process can load, with the text of its trace."""
    trace = "".join(traceback.format_exception(error))
    try:
        copy: Any = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = None
    if type(copy) is not type(error):
        copy = RuntimeError(f"{type(error).__qualname__}: {error}")
    copy.add_note(f"In the handler's process:\n{trace}")
    return copy  # type: ignore[no-any-return]
