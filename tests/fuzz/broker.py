"""A broker's server over sockets, whose listener requires a login, and unauthenticated peers that send nearly valid
messages.

Each peer comes from a separate address, since failures of one address are slowed down. Now and then a peer with the
password logs in, and is served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ottla.dataplane.handlers.authenticate_node import AuthenticateNodeHandlers
from ottla.dataplane.handlers.sasl import SaslHandlers
from ottla.dataplane.security.sasl.plain import ListedUsers, PlainMechanism
from ottla.dataplane.security.sasl.scram import ScramCredentials, ScramLogins, sealed_credential
from ottla.dataplane.security.sasl.unknown_users import UnknownUsers
from ottla.dataplane.security.sealing import Sealer
from ottla.dataplane.server import ClientRequest, HandlerTable, Server, handles
from ottla.dataplane.server.authentication import AuthenticationSettings
from ottla.protocol.credentials.jaas import LoginModule
from ottla.protocol.credentials.scram import SCRAM_SHA_256
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.fuzz import valid_inputs
from tests.fuzz.mutation import make_input
from tests.fuzz.targets import FoundFault

LISTENER = "LOGINS"
AT_ONCE = 16
ASKED_EVERY = 500
ANSWER_S = 30.0
_USERS = ListedUsers(LoginModule("PlainLoginModule", "required", {"user_ann": "secret"}))


class _Handlers:
    @handles(ApiVersionsRequest, 0, 5, on_unsupported=lambda _handler: ApiVersionsResponse(error_code=35))
    def api_versions(self, request: ClientRequest, message: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse()


class _Complaints(logging.Handler):
    """A handler that collects the faults that the server logs about itself."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.texts.append(self.format(record))


@asynccontextmanager
async def _server() -> AsyncIterator[Server]:
    sealer = Sealer([valid_inputs.SECRET])
    subject = valid_inputs.USER, SCRAM_SHA_256.code
    sealed = {subject: sealed_credential(sealer, subject, valid_inputs.CREDENTIAL)}
    mechanisms = (
        PlainMechanism(_USERS.check),
        ScramLogins(
            SCRAM_SHA_256, ScramCredentials(sealer, lambda: sealed), UnknownUsers(b"key", lambda: sealed)
        ),
    )
    table = HandlerTable(_Handlers())
    server = Server(table)
    table.add(SaslHandlers(server.authentications))
    table.add(AuthenticateNodeHandlers(valid_inputs.node_credentials(1)))
    settings = AuthenticationSettings(
        {mechanism.name: mechanism for mechanism in mechanisms}, failure_delay_ms=1, timeout_ms=20
    )
    server.authentication = {LISTENER: settings}
    server.listen(LISTENER, "127.0.0.1", 0)
    server.start()
    try:
        yield server
    finally:
        server.close()


async def play_broker(seed: int, numbers: range) -> None:
    """Send an input over each connection. Raises FoundFault if the server fails to serve, or logs a fault."""
    complaints = _Complaints()
    logger = logging.getLogger("ottla")
    logger.addHandler(complaints)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: complaints.texts.append(str(context)))
    turn = asyncio.Semaphore(AT_ONCE)
    valid = valid_inputs.dialogs()
    try:
        async with _server() as server:
            port = server.listeners[0].port

            async def one(number: int) -> None:
                async with turn:
                    data = make_input(seed, "broker", number, valid)
                    await _stranger(port, number, data)
                if complaints.texts:
                    raise FoundFault(
                        f"broker: {complaints.texts[0]}\nAgain: python -m tests.fuzz.run --target broker "
                        f"--seed {seed} --first {max(numbers.start, number - AT_ONCE)} --inputs {2 * AT_ONCE}"
                    )

            for begin in range(numbers.start, numbers.stop, ASKED_EVERY):
                some = range(begin, min(begin + ASKED_EVERY, numbers.stop))
                await asyncio.gather(*(one(number) for number in some))
                await _is_served(port, seed, begin)
    finally:
        logger.removeHandler(complaints)


async def _stranger(port: int, number: int, data: bytes) -> None:
    address = f"127.{1 + (number >> 16) % 250}.{number >> 8 & 255}.{number & 255 or 1}"
    with suppress(OSError):  # it may have hung up already
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        try:
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(ANSWER_S):
                while await reader.read(65_536):
                    pass
        finally:
            writer.close()


async def _is_served(port: int, seed: int, number: int) -> None:
    """Log in, and check that each of the three requests is answered."""
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(valid_inputs.dialogs()[0])
            for _ in range(3):
                size = int.from_bytes(await reader.readexactly(4), "big")
                await reader.readexactly(size)
            writer.close()
    except (OSError, EOFError, TimeoutError) as error:
        raise FoundFault(
            f"broker: {error!r} for a right login behind input {number} of seed {seed}"
        ) from error
