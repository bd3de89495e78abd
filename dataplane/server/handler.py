"""Handlers, which are methods registered for one API and a range of versions, and the request that they are given."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.headers import response_header
from ...protocol.wire.codec import encode_into
from ...protocol.wire.schema import Message
from ...protocol.wire.schema import Request as RequestMessage
from ..runtime.time_slices import is_large
from ..security.authorization.access import EVERYTHING, Access
from ..security.authorization.needs import Needs
from .connection import ClientConnection
from .sending import IN_MEMORY, Part

if TYPE_CHECKING:
    from ..quotas import RequestMeter

ErrorResponse = Callable[[Any, KafkaError], Message]
UnsupportedResponse = Callable[["Handler"], Message]
FrameTaker = Callable[["ClientRequest", memoryview, int], bool]
"""Handles a request whose body begins at an offset of its frame: has its connection expect it, and answers it. Or it
returns False, and has done nothing."""
_Function = TypeVar("_Function", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

ELEMENTS_PER_TURN = 10_000
"""How many elements of arrays a request may have, unless its handler says that it takes more."""

WHOLE_CLUSTER_ELEMENTS = 21_000
"""For what may be asked about each of a cluster's ten thousand partitions at once, with its topic."""

_REGISTRATION = "__ottla_handles__"
_SIZE = struct.Struct(">i")


def as_kafka_error(error: Exception, subject: object) -> KafkaError:
    """What a client is told of a failure.

    A handler that answers for many partitions catches whatever one of them raises and passes it through here. So a
    fault in `subject`, one partition, never spoils the answer for the others. An error that is no KafkaError is a
    fault of ours: it is logged, and the client reads UNKNOWN_SERVER_ERROR.
    """
    if isinstance(error, KafkaError):
        return error
    logger.error("%s failed", subject, exc_info=error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


@dataclass(frozen=True, slots=True)
class _Registration:
    request_class: type[RequestMessage[Any]]
    min_version: int
    max_version: int
    advertised_min_version: int
    on_error: ErrorResponse | None
    on_unsupported: UnsupportedResponse | None
    elements_max: int
    needs: Needs | None
    takes_frames: str | None
    waits_for_others: bool


def handles(
    request_class: type[RequestMessage[Any]],
    min_version: int,
    max_version: int,
    *,
    advertise_from: int | None = None,
    on_error: ErrorResponse | None = None,
    on_unsupported: UnsupportedResponse | None = None,
    elements_max: int = ELEMENTS_PER_TURN,
    needs: Needs | None = None,
    takes_frames: str | None = None,
    waits_for_others: bool = False,
) -> Callable[[_Function], _Function]:
    """Register a method as the handler of `request_class` in versions `min_version` to `max_version`.

    The method takes `(request, message)`. A plain method returns the response, or None if it replies later through the
    request, or never (acks=0). A coroutine method runs as a task and returns the response.

    `advertise_from`: a lower first version for ApiVersions than the one really served.
    `on_error`: builds the response for an error that escapes the method. Needed where the response has no error code
    of its own at the top.
    `on_unsupported`: builds the response, in version 0, to a version outside the range. Without it the connection is
    closed.
    `elements_max`: a request with more elements in its arrays is refused with POLICY_VIOLATION. So the method need not
    give others a turn of the event loop, unless one element takes it more than some microseconds.
    `needs`: what the sender has to be allowed to do. Without it the API is denied to everybody, where there is an
    authorizer.
    `takes_frames`: the name of a `FrameTaker` beside the method. It is asked first, but where rights or processor time
    have to be looked at.
    `waits_for_others`: its answer waits for others to do something, and tells of it. So nobody gets it whose session
    was ended meanwhile.
    """
    first = min_version if advertise_from is None else advertise_from
    registration = _Registration(
        request_class,
        min_version,
        max_version,
        first,
        on_error,
        on_unsupported,
        elements_max,
        needs,
        takes_frames,
        waits_for_others,
    )

    def register(function: _Function) -> _Function:
        setattr(function, _REGISTRATION, registration)
        return function

    return register


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered method, bound to its object."""

    api_key: int
    request_class: type[RequestMessage[Any]]
    min_version: int
    max_version: int
    advertised_min_version: int
    function: Callable[..., Any]
    is_coroutine: bool
    on_error: ErrorResponse | None
    on_unsupported: UnsupportedResponse | None
    elements_max: int
    needs: Needs | None
    take_frame: FrameTaker | None
    waits_for_others: bool

    def authorize(self, access: Access, message: Any) -> None:
        """Raises KafkaError if the sender of a message may not call this."""
        if self.needs is None:
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"nobody may call {self.request_class.__name__}"
            )
        self.needs.check(access, message)


@functools.cache
def _registered(handlers: type) -> tuple[tuple[str, _Registration], ...]:
    """The names of a class's `@handles` methods, in alphabetical order."""
    found = ((name, getattr(getattr(handlers, name), _REGISTRATION, None)) for name in dir(handlers))
    return tuple((name, registration) for name, registration in found if registration is not None)


class HandlerTable:
    """All handlers of a server by API key; what is not in it is not supported, nor advertised."""

    def __init__(self, *handler_objects: object) -> None:
        self._handlers: dict[int, Handler] = {}
        for handler_object in handler_objects:
            self.add(handler_object)

    def add(self, handler_object: object) -> None:
        """Register every `@handles` method of an object. Two handlers of one API are a programming error."""
        kind: type = type(handler_object)
        for name, registration in _registered(kind):
            method = getattr(handler_object, name)
            api_key = registration.request_class.schema.api_key
            if api_key in self._handlers:
                raise ValueError(
                    f"API key {api_key} is handled twice: {self._handlers[api_key].function}, {method}"
                )
            self._handlers[api_key] = Handler(
                api_key=api_key,
                request_class=registration.request_class,
                min_version=registration.min_version,
                max_version=registration.max_version,
                advertised_min_version=registration.advertised_min_version,
                function=method,
                is_coroutine=inspect.iscoroutinefunction(method),
                on_error=registration.on_error,
                on_unsupported=registration.on_unsupported,
                elements_max=registration.elements_max,
                needs=registration.needs,
                take_frame=None
                if registration.takes_frames is None
                else getattr(handler_object, registration.takes_frames),
                waits_for_others=registration.waits_for_others,
            )

    def get(self, api_key: int) -> Handler | None:
        """The handler of an API, None if it is not supported."""
        return self._handlers.get(api_key)

    def waits_for_others(self, api_key: int) -> bool:
        """Return whether requests of an API wait for others to do something."""
        handler = self._handlers.get(api_key)
        return handler is not None and handler.waits_for_others

    def __iter__(self) -> Iterator[Handler]:
        """All handlers in the order of their API keys."""
        return iter(sorted(self._handlers.values(), key=lambda handler: handler.api_key))


class ClientRequest:
    """One request of a client, and the place of its reply in the connection's order.

    It is answered once: by `reply`, `reply_parts`, `no_reply` or `close_connection`; answers to a connection
    that is gone are dropped.
    """

    __slots__ = (
        "access",
        "api_key",
        "api_version",
        "began_s",
        "client_id",
        "connection",
        "correlation_id",
        "encoding",
        "frame",
        "is_long",
        "meter",
        "parts",
        "received_at",
        "session",
        "throttle_ms",
        "timed_as",
    )

    def __init__(
        self,
        connection: ClientConnection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        received_at: float,
    ) -> None:
        self.connection = connection
        # Who has sent it; that the peer authenticates itself anew later changes nothing.
        self.session = connection.session
        self.api_key = api_key
        # What its sender may do.
        self.access: Access = EVERYTHING
        # Its bytes, only while its plain handler is called.
        self.frame: memoryview | None = None
        # Under which key its time is counted.
        self.timed_as = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        # Seconds on the event loop's clock, which stands still during a turn of the loop.
        self.received_at = received_at
        # Seconds on a clock that does not.
        self.began_s = perf_counter()
        # None until answered; then what the connection sends, nothing for acks=0.
        self.parts: Sequence[Part] | None = None
        # It has so many elements that its answer may take long to encode.
        self.is_long = False
        # The encoding of its answer in a thread.
        self.encoding: asyncio.Task[None] | None = None
        # What it costs is counted by this, where a quota limits that.
        self.meter: RequestMeter | None = None
        # How long its client has to wait for having gone over quotas.
        self.throttle_ms = 0

    @property
    def client_host(self) -> str:
        """The peer's address."""
        return self.session.host

    @property
    def holders(self) -> tuple[str, str]:
        """Return who claims the memory that the request makes the broker keep: its principal and address."""
        return str(self.session.principal), self.session.host

    @property
    def listener(self) -> str:
        """The name of the listener that the client connected to."""
        return self.session.listener

    def throttle(self, for_ms: int) -> None:
        """The client went over a quota: it is told so, and its connection is not read for so long (KIP-219)."""
        if for_ms > self.throttle_ms:
            self.throttle_ms = for_ms
            self.connection.mute(for_ms)

    def spend(self, seconds: float) -> None:
        """Count processor time that a thread has spent for the request, where a quota limits that."""
        if self.meter is not None:
            self.meter.spend(seconds)

    def charge(self) -> None:
        """Charge the client what the request has cost so far, where a quota limits that."""
        if self.meter is not None:
            self.throttle(self.meter.charge())

    def reply(self, message: Message) -> None:
        """Answer with a response, encoded at the version of the request."""
        if self.is_long and is_large(message):
            self.encoding = asyncio.get_running_loop().create_task(self.reply_when_encoded(message))
            return
        self._tell_throttle(message)
        self.connection.answer(self, (self._encoded(message),))

    async def reply_when_encoded(self, message: Message) -> None:
        """The same; what takes long to encode is encoded in a thread, and others have their turns."""
        if is_large(message):
            self._tell_throttle(message)
            self.connection.answer(self, (await asyncio.to_thread(self._encoded, message),))
        else:
            self.reply(message)

    def _tell_throttle(self, message: Message) -> None:
        if self.meter is not None:
            self.charge()
        if self.throttle_ms and hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = self.throttle_ms

    def _encoded(self, message: Message) -> bytearray:
        frame = bytearray(4)
        frame += response_header(self.api_key, self.api_version, self.correlation_id)
        encode_into(message, self.api_version, frame)
        _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
        return frame

    def reply_parts(self, parts: Sequence[Part]) -> None:
        """Answer with an encoded body in parts, which are sent without being copied or joined.

        Slices of the log are released once sent, or at once if the connection is gone.
        """
        header = response_header(self.api_key, self.api_version, self.correlation_id)
        size = len(header)
        frame: list[Part] = [b""]
        for part in parts:
            part_size = len(part) if isinstance(part, IN_MEMORY) else part.size
            if part_size:
                frame.append(part)
                size += part_size
            elif not isinstance(part, IN_MEMORY):
                part.release()
        frame[0] = _SIZE.pack(size) + header
        self.connection.answer(self, frame)

    def no_reply(self) -> None:
        """Finish a request that gets no answer (Produce with acks=0)."""
        self.connection.answer(self, ())

    def close_connection(self) -> None:
        """Answer by closing the connection, after the replies to earlier requests, which are sent if they are
        ready.
        """
        self.connection.close_after_replies(self)
