"""The router, which passes each request frame to the handler of its API, and answers every failure as the protocol
prescribes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from time import perf_counter
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.headers import KEY_VERSION_CORRELATION, decode_client_id
from ...protocol.wire.codec import MalformedMessage, decode, decode_at_most, decode_stepwise
from ...protocol.wire.schema import Message
from ..quotas import ClientQuotas, RequestMeter, Stepwise
from ..security.authorization.access import Authorization
from .connection import ClientConnection
from .handler import ClientRequest, Handler, HandlerTable, as_kafka_error
from .long_requests import (
    ELEMENTS_AT_ONCE,
    LONG_FRAME_BYTES,
    READ_AT_ONCE,
    RUN_AT_ONCE,
    check_elements,
    read_in_time_slices,
)

logger = logging.getLogger(__name__)


class Router:
    """A router that decodes request frames and calls handlers. `dispatch` raises no error, whatever a client sends."""

    def __init__(
        self,
        table: HandlerTable,
        loop: asyncio.AbstractEventLoop,
        quotas: ClientQuotas,
        authorization: Authorization | None = None,
    ) -> None:
        """Without `authorization` every client may do everything."""
        self._table = table
        self._authorization = authorization
        self._quotas = quotas
        self._loop = loop
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._reading = asyncio.Semaphore(READ_AT_ONCE)
        self._running = asyncio.Semaphore(RUN_AT_ONCE)
        #: long requests that are waiting, being parsed or being handled
        self.reading = 0
        # Two long requests are never handled in the same turn of the loop.
        self._handling = asyncio.Lock()

    def dispatch(self, connection: ClientConnection, frame: memoryview) -> None:
        """Decode the request in `frame` and call the handler of its API. `frame` is valid during this call only."""
        now = self._loop.time()
        if connection.shortcut is not None:
            try:
                if connection.shortcut(connection, frame, now):
                    return
            except Exception as error:
                # It is unknown whether the request was answered. Its client would wait, also for the answers to all
                # later requests.
                as_kafka_error(error, f"a request like those before it of {connection}")
                connection.close()
                return
        api_key, api_version, correlation_id = KEY_VERSION_CORRELATION.unpack_from(frame)
        handler = self._table.get(api_key)
        if handler is None:
            logger.warning("closing the connection of %s: API key %d is not supported", connection, api_key)
            connection.close()
            return
        quota = self._quotas.requests
        started_s = perf_counter() if quota is not None else 0.0
        if not handler.min_version <= api_version <= handler.max_version:
            self._refuse_version(
                connection,
                handler,
                ClientRequest(connection, api_key, api_version, correlation_id, None, now),
            )
            return
        try:
            client_id, offset = decode_client_id(frame, api_key, api_version)
            request = ClientRequest(connection, api_key, api_version, correlation_id, client_id, now)
            message: Any = None
            if handler.reads_frames is not None:
                message = handler.reads_frames(frame, offset, api_version)
            if message is None:
                message = _read(handler, frame, api_version, offset)
        except MalformedMessage as error:
            _close_unreadable(connection, handler, api_version, error)
            return
        if self._authorization is not None:
            request.access = self._authorization.access(request)
        if quota is not None and request.session.is_metered:
            request.meter = RequestMeter(quota, request.session.user, client_id, started_s, perf_counter)
        connection.expect(request)
        if message is None:
            connection.hold(request)
            self._start(request, self._run_long(handler, request, frame, offset))
            return
        if handler.is_coroutine:
            self._start(request, self._run(handler, request, message))
            return
        request.frame = frame
        try:
            if self._authorization is not None:
                handler.authorize(request.access, message)
            response = handler.function(request, message)
            if response is not None:
                request.reply(response)
            elif request.meter is not None:
                request.charge()
        except Exception as error:
            self._fail(handler, request, message, error)
        finally:
            request.frame = None

    def close(self) -> None:
        """Cancel the handlers that run as tasks."""
        for task in self._tasks:
            task.cancel()

    def _start(self, request: ClientRequest, running: Coroutine[Any, Any, None]) -> None:
        if request.meter is not None:
            request.meter.pause()
            running = Stepwise(running, request.meter)
        task = self._loop.create_task(running)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _run(self, handler: Handler, request: ClientRequest, message: Message) -> None:
        try:
            _check_session(request)
            if self._authorization is not None:
                handler.authorize(request.access, message)
            await request.reply_when_encoded(await handler.function(request, message))
        except Exception as error:
            self._fail(handler, request, message, error)

    async def _run_long(
        self, handler: Handler, request: ClientRequest, frame: memoryview, offset: int
    ) -> None:
        """Parse and handle a request with very many elements in several turns of the event loop. Until it is parsed the
        connection holds its frame.
        """
        self.reading += 1
        try:
            async with self._running:
                async with self._reading:
                    steps = decode_stepwise(handler.request_class, frame, request.api_version, offset)
                    read = await read_in_time_slices(request.connection, steps)
                if read is not None:
                    await self._handle_long(handler, request, *read)
        except MalformedMessage as error:
            _close_unreadable(request.connection, handler, request.api_version, error)
        finally:
            self.reading -= 1
            request.connection.go_on(request)

    async def _handle_long(
        self, handler: Handler, request: ClientRequest, message: Message, elements: int
    ) -> None:
        connection = request.connection
        request.is_long = True
        try:
            _check_session(request)
            check_elements(handler, elements)
            if self._authorization is not None:
                handler.authorize(request.access, message)
            if handler.is_coroutine:
                connection.go_on(request)
                response = await handler.function(request, message)
            else:
                async with self._handling:
                    if connection.closed:
                        return  # The buffer with the records was released with it.
                    response = handler.function(request, message)
                    connection.go_on(request)
                    await asyncio.sleep(0)
            if response is not None:
                await request.reply_when_encoded(response)
            else:
                request.charge()
        except Exception as error:
            await self._fail_long(handler, request, message, error)

    def _refuse_version(self, connection: ClientConnection, handler: Handler, request: ClientRequest) -> None:
        if handler.on_unsupported is not None:
            request.api_version = 0
            connection.expect(request)
            request.reply(handler.on_unsupported(handler))
            return
        logger.warning(
            "closing the connection of %s: %s version %d, supported are %d to %d",
            connection, handler.request_class.__name__, request.api_version,
            handler.min_version, handler.max_version,
        )  # fmt: skip
        connection.close()

    def _fail(self, handler: Handler, request: ClientRequest, message: Message, error: Exception) -> None:
        known = _known(handler, request, error)
        if request.parts is not None:
            return
        try:
            response = handler.error_answer(message, known, request.api_version)
        except Exception:
            logger.exception("the error response to %s could not be made", handler.request_class.__name__)
            response = None
        if response is not None:
            request.reply(response)
        else:
            _close_without_answer(handler, request, known)

    async def _fail_long(
        self, handler: Handler, request: ClientRequest, message: Message, error: Exception
    ) -> None:
        """Answer a long request with an error, as `_fail` does, in several turns: the answer has an element for each of
        many elements.
        """
        known = _known(handler, request, error)
        if request.parts is not None:
            return
        try:
            response = await asyncio.to_thread(handler.error_answer, message, known, request.api_version)
            if response is not None:
                await request.reply_when_encoded(response)
                return
        except Exception:
            logger.exception("the error response to %s could not be made", handler.request_class.__name__)
        _close_without_answer(handler, request, known)


def _read(handler: Handler, frame: memoryview, version: int, offset: int) -> Message | None:
    """Return the message in `frame`, whose request header ends at `offset`; None if parsing takes more than one turn of
    the event loop. Raises MalformedMessage.
    """
    if len(frame) > LONG_FRAME_BYTES:
        return decode_at_most(handler.request_class, frame, version, ELEMENTS_AT_ONCE, offset)
    # A task outlives the receive buffer.
    body = bytes(frame) if handler.is_coroutine else frame
    message: Message = decode(handler.request_class, body, version, offset)
    return message


def _check_session(request: ClientRequest) -> None:
    """Raise SASL_AUTHENTICATION_FAILED if the session of a request was ended before the request was begun."""
    if request.connection.session_ended:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the session has ended")


def _close_unreadable(
    connection: ClientConnection, handler: Handler, version: int, error: MalformedMessage
) -> None:
    logger.warning(
        "closing the connection of %s: %s version %d cannot be read: %s",
        connection, handler.request_class.__name__, version, error,
    )  # fmt: skip
    connection.close()


def _close_without_answer(handler: Handler, request: ClientRequest, error: KafkaError) -> None:
    logger.warning(
        "closing the connection of %s: %s version %d has no place for the error %s",
        request.connection, handler.request_class.__name__, request.api_version, error.code.name,
    )  # fmt: skip
    request.close_connection()


def _known(handler: Handler, request: ClientRequest, error: Exception) -> KafkaError:
    """Return the error to be sent to the client for an exception of its handler. An exception other than KafkaError is
    logged.
    """
    return as_kafka_error(
        error, f"{handler.request_class.__name__} version {request.api_version} of {request.connection}"
    )
