"""Handlers: methods that are registered for an API and a range of versions, and the request that they get."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.headers import FRAME_SIZE, response_header
from ...protocol.session.node_proof import NodeRole
from ...protocol.wire.codec import encode_into
from ...protocol.wire.schema import Message
from ...protocol.wire.schema import Request as RequestMessage
from ..runtime.time_slices import is_large
from ..security.authorization.access import EVERYTHING, Access
from ..security.authorization.needs import Needs
from .connection import ClientConnection
from .error_answers import ErrorAnswers
from .sending import IN_MEMORY, Part

if TYPE_CHECKING:
    from ..quotas import RequestMeter

ErrorResponse = Callable[[Any, KafkaError], Message]
UnsupportedResponse = Callable[["Handler"], Message]
FrameReader = Callable[[memoryview, int, int], object]
"""A function that reads a request from its frame, the offset of its body and its version, without a message. It returns
None for an unusual request, which is decoded to a message."""
_Function = TypeVar("_Function", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

ELEMENTS_PER_TURN = 10_000
"""The maximum number of array elements in a request, unless its handler allows more."""

WHOLE_CLUSTER_ELEMENTS = 21_000
"""The maximum for requests about each of a cluster's ten thousand partitions at once, with its topic."""

_REGISTRATION = "__ottla_handles__"
_DERIVED = ErrorAnswers()


def as_kafka_error(error: Exception, subject: object) -> KafkaError:
    """Return the error to be sent to the client for an exception that handling `subject` raised.

    A handler that answers for many partitions catches each partition's exception and passes it through this function.
    So a fault in `subject`, one partition, never spoils the answers for the others. An exception other than KafkaError
    is a fault of the broker: it is logged, and the client gets UNKNOWN_SERVER_ERROR.
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
    errors: ErrorAnswers
    on_unsupported: UnsupportedResponse | None
    elements_max: int
    needs: Needs | None
    reads_frames: FrameReader | None
    waits_for_others: bool
    feature: str
    brokers_only: bool


def handles(
    request_class: type[RequestMessage[Any]],
    min_version: int,
    max_version: int,
    *,
    advertise_from: int | None = None,
    on_error: ErrorResponse | None = None,
    errors: ErrorAnswers = _DERIVED,
    on_unsupported: UnsupportedResponse | None = None,
    elements_max: int = ELEMENTS_PER_TURN,
    needs: Needs | None = None,
    reads_frames: FrameReader | None = None,
    waits_for_others: bool = False,
    feature: str = "",
    brokers_only: bool = False,
) -> Callable[[_Function], _Function]:
    """Register a method as the handler of `request_class` in versions `min_version` to `max_version`.

    The method takes `(request, message)`. A plain method returns the response, or None if it replies later through the
    request, or never (acks=0). A coroutine method runs as a task and returns the response.

    `advertise_from`: a first version for ApiVersions that is lower than the first served version.

    `errors`: the response for an exception of the method, as far as it differs from the one that `error_answers`
    derives from the request.

    `on_error`: builds that response in place of `errors`, without regard to versions.

    `on_unsupported`: builds the response, in version 0, to a version outside the range. Without it the connection is
    closed.

    `elements_max`: a request with more array elements is refused with POLICY_VIOLATION. So the method need not yield to
    the event loop, unless an element takes it more than some microseconds.

    `needs`: the rights that the sender needs. Without it the API is denied to every client, if there is an authorizer.

    `reads_frames`: reads a usual request faster. Its result takes the place of the message, for the method and for
    `on_error`.

    `waits_for_others`: the answer waits for actions of other clients, and reports them. So it is not sent if the
    session was ended meanwhile.

    `feature`: the API is listed only if this feature is in force at level 1 at least. The method refuses requests
    before.
    `brokers_only`: the API is refused to peers that have not proved to be a broker, and ApiVersions does not list it.
    """
    first = min_version if advertise_from is None else advertise_from
    registration = _Registration(
        request_class,
        min_version,
        max_version,
        first,
        on_error,
        errors,
        on_unsupported,
        elements_max,
        needs,
        reads_frames,
        waits_for_others,
        feature,
        brokers_only,
    )

    def register(function: _Function) -> _Function:
        setattr(function, _REGISTRATION, registration)
        return function

    return register


@dataclass(frozen=True, slots=True)
class Handler:
    """The registration of an API: the bound method that handles its requests, its versions, its error answers and its
    needed rights.
    """

    api_key: int
    request_class: type[RequestMessage[Any]]
    min_version: int
    max_version: int
    advertised_min_version: int
    function: Callable[..., Any]
    is_coroutine: bool
    on_error: ErrorResponse | None
    errors: ErrorAnswers
    on_unsupported: UnsupportedResponse | None
    elements_max: int
    needs: Needs | None
    reads_frames: FrameReader | None
    waits_for_others: bool
    feature: str
    brokers_only: bool

    def authorize(self, access: Access, message: Any) -> None:
        """Raise KafkaError unless the sender of a request has the rights that this API needs."""
        if self.needs is None:
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"nobody may call {self.request_class.__name__}"
            )
        self.needs.check(access, message)

    def error_answer(self, message: Any, error: KafkaError, version: int) -> Message | None:
        """Return the response to a message that carries an error; None if the response has no place for it."""
        if self.on_error is None:
            return self.errors.answer(message, error, version)
        response = self.on_error(message, error)
        blank = type(response)()
        for field in response.schema.fields:
            if version not in field.versions:
                setattr(response, field.name, getattr(blank, field.name))
        return response


@functools.cache
def _registered(handlers: type) -> tuple[tuple[str, _Registration], ...]:
    """Return name and registration of each of the class's methods with `@handles`, in alphabetical order."""
    found = ((name, getattr(getattr(handlers, name), _REGISTRATION, None)) for name in dir(handlers))
    return tuple((name, registration) for name, registration in found if registration is not None)


def _for_brokers(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler's method that refuses peers which have not proved to be a broker of the cluster."""

    @functools.wraps(method)
    def called(request: ClientRequest, message: Any) -> Any:
        check_is_broker(request)
        return method(request, message)

    return called


def check_is_broker(request: ClientRequest) -> None:
    """Raise KafkaError CLUSTER_AUTHORIZATION_FAILED unless the sender has proved to be a broker of the cluster."""
    node = request.session.node
    if node is None or node.role is not NodeRole.BROKER:
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only brokers of the cluster may ask for this"
        )


class HandlerTable:
    """All handlers of a server by API key; other APIs are neither supported nor advertised."""

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
                function=_for_brokers(method) if registration.brokers_only else method,
                is_coroutine=inspect.iscoroutinefunction(method),
                on_error=registration.on_error,
                errors=registration.errors,
                on_unsupported=registration.on_unsupported,
                elements_max=registration.elements_max,
                needs=registration.needs,
                reads_frames=registration.reads_frames,
                waits_for_others=registration.waits_for_others,
                feature=registration.feature,
                brokers_only=registration.brokers_only,
            )

    def get(self, api_key: int) -> Handler | None:
        """Return the handler of an API; None if it is not supported."""
        return self._handlers.get(api_key)

    def name(self, api_key: int) -> str:
        """Return the name of an API, as Produce; its key if it is not supported."""
        handler = self._handlers.get(api_key)
        return str(api_key) if handler is None else handler.request_class.__name__.removesuffix("Request")

    def waits_for_others(self, api_key: int) -> bool:
        """Return whether requests of an API wait for actions of other clients."""
        handler = self._handlers.get(api_key)
        return handler is not None and handler.waits_for_others

    def __iter__(self) -> Iterator[Handler]:
        """Iterate over all handlers in the order of their API keys."""
        return iter(sorted(self._handlers.values(), key=lambda handler: handler.api_key))


class ClientRequest:
    """A request of a client, and the place of its reply in the connection's order.

    It is answered once: by `reply`, `reply_parts`, `no_reply` or `close_connection`; answers to a closed connection are
    dropped.
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
        # The session of its arrival; a later re-authentication of the peer does not change it.
        self.session = connection.session
        self.api_key = api_key
        # The rights of its sender.
        self.access: Access = EVERYTHING
        # Its bytes, only while its plain handler is called.
        self.frame: memoryview | None = None
        # API key under which its time is counted.
        self.timed_as = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        # Seconds on the event loop's clock, which stands still during a turn of the loop.
        self.received_at = received_at
        # Seconds on a clock that runs during a turn.
        self.began_s = perf_counter()
        # None until answered; then the parts to send, empty for acks=0.
        self.parts: Sequence[Part] | None = None
        # True if it has so many elements that the encoding of its answer may take long.
        self.is_long = False
        # The task that encodes its answer in a thread.
        self.encoding: asyncio.Task[None] | None = None
        # The meter of its cost, if a quota limits that.
        self.meter: RequestMeter | None = None
        # Time in ms that its client must wait for exceeding quotas.
        self.throttle_ms = 0

    @property
    def client_host(self) -> str:
        """The peer's address."""
        return self.session.host

    @property
    def holders(self) -> tuple[str, str]:
        """The principal and the address of the client. The memory that the request makes the broker keep counts for
        both.
        """
        return str(self.session.principal), self.session.host

    @property
    def listener(self) -> str:
        """The name of the listener that the client connected to."""
        return self.session.listener

    def throttle(self, for_ms: int) -> None:
        """Note in the answer that the client exceeded a quota, and do not read its connection for `for_ms`
        (KIP-219).
        """
        if for_ms > self.throttle_ms:
            self.throttle_ms = for_ms
            self.connection.mute(for_ms)

    def spend(self, seconds: float) -> None:
        """Count processor seconds that a thread has spent for the request, if the client has a quota of processor
        time.
        """
        if self.meter is not None:
            self.meter.spend(seconds)

    def charge(self) -> None:
        """Charge the client for the processor time of the request so far, if it has such a quota, and throttle the
        client if necessary.
        """
        if self.meter is not None:
            self.throttle(self.meter.charge())

    def reply(self, message: Message) -> None:
        """Answer with a response, encoded at the version of the request."""
        if self.is_long and is_large(message):
            self.encoding = asyncio.get_running_loop().create_task(self.reply_when_encoded(message))
            return
        self._report_throttle(message)
        self.connection.answer(self, (self._encoded(message),))

    async def reply_when_encoded(self, message: Message) -> None:
        """Answer with a response. A large one is encoded in a thread, so that the event loop is not blocked."""
        if is_large(message):
            self._report_throttle(message)
            self.connection.answer(self, (await asyncio.to_thread(self._encoded, message),))
        else:
            self.reply(message)

    def _report_throttle(self, message: Message) -> None:
        if self.meter is not None:
            self.charge()
        if self.throttle_ms and hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = self.throttle_ms

    def _encoded(self, message: Message) -> bytearray:
        frame = bytearray(4)
        frame += response_header(self.api_key, self.api_version, self.correlation_id)
        encode_into(message, self.api_version, frame)
        FRAME_SIZE.pack_into(frame, 0, len(frame) - FRAME_SIZE.size)
        return frame

    def reply_parts(self, parts: Sequence[Part]) -> None:
        """Answer with an encoded body in parts, which are sent without being copied or joined.

        Slices of the log are released once sent, or at once if the connection is closed.
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
        frame[0] = FRAME_SIZE.pack(size) + header
        self.connection.answer(self, frame)

    def no_reply(self) -> None:
        """Finish a request that gets no answer (Produce with acks=0)."""
        self.connection.answer(self, ())

    def close_connection(self) -> None:
        """Close the connection instead of an answer, after the replies to earlier requests, which are sent if they are
        ready."""
        self.connection.close_after_replies(self)
