"""The submission of commands. Each command is applied exactly once, however often links and leaders change meanwhile.

The caller gets its answer once two things have arrived, in either order: the outcome, and the record stream up to the
command's effects. So a caller that has an answer also sees the effects in the image.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.command import Command, CommandResult, ResultT, accepted
from ...protocol.messages.quorum_commands import Session, decode_result, encode_command
from ...protocol.messages.quorum_session import CommandReply, CommandStatus, SubmitCommand
from ..security.peer_session import PeerSession
from .command_queue import CommandQueue, Departure

logger = logging.getLogger(__name__)

Send = Callable[[SubmitCommand], bool]

_REFUSED_IN_A_ROW_MAX = 3
"""The number of times in a row that the oldest command without an outcome may be refused as out of order. All commands
before it have an outcome, so the refusal means that the quorum has forgotten them. A single refusal may be a late
answer of the previous leader."""


class Answer(Enum):
    """The consequence of one command's answer for all commands that have no outcome yet."""

    TAKEN = "none: the commands go on waiting"
    SEND_AGAIN = "the commands have to be sent again after a moment"
    FORGOTTEN = (
        "the quorum has forgotten commands that it had applied, so that sending them again cannot succeed"
    )


class Ticket(Generic[ResultT]):
    """A command submitted to the quorum, its author, and the future that its caller awaits."""

    __slots__ = ("author", "command", "outcome")

    def __init__(
        self, command: Command[ResultT], author: PeerSession | None, outcome: asyncio.Future[ResultT]
    ) -> None:
        self.command = command
        self.author = author
        self.outcome = outcome


class CommandSubmitter:
    """The submission of this broker's commands to the quorum, under one registration (broker id, broker epoch).

    `send` passes a submission to the present leader and returns whether it was sent. `timeout_ms` is the time limit of
    callers that name none.
    """

    def __init__(
        self,
        broker_id: int,
        send: Send,
        timeout_ms: int,
        check: Callable[[Command[Any]], None] = lambda _command: None,
        *,
        in_flight_max: int = 256,
    ) -> None:
        """`check` raises KafkaError for a command that must not be sent."""
        self.broker_epoch = -1
        self._broker_id = broker_id
        self._send = send
        self._timeout_ms = timeout_ms
        self._check = check
        self._queue: CommandQueue[Ticket[Any]] = CommandQueue(in_flight_max=in_flight_max)
        self._offset = 0
        self._behind: list[tuple[int, int, Ticket[Any], CommandResult]] = []
        self._order = 0
        self._refused_in_a_row = 0
        #: the error with which `submit` refuses commands now
        self._suspension: KafkaError | None = None
        self._closed = False

    async def submit(
        self,
        command: Command[ResultT],
        timeout_ms: int | None = None,
        *,
        author: PeerSession | None = None,
    ) -> ResultT:
        """Submit a command as described at `access.Quorum.submit`. A command that timed out may still be applied."""
        if self._suspension is not None:
            raise KafkaError(self._suspension.code, self._suspension.message)
        if self._queue.full:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many commands wait for the metadata quorum")
        self._check(command)
        timeout_s = (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        ticket: Ticket[ResultT] = Ticket(command, author, asyncio.get_running_loop().create_future())
        self._queue.add(ticket)
        self.flush()
        try:
            async with asyncio.timeout(timeout_s):
                return accepted(await ticket.outcome)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{type(command).__name__}: no answer from the metadata quorum within {timeout_s:g} s",
            ) from None
        finally:
            if not ticket.outcome.done() or ticket.outcome.cancelled():
                self._queue.withdraw(ticket)

    def flush(self) -> None:
        """Send the commands that may be sent now. To be called when there is a leader, and after every change."""
        if self.broker_epoch < 0:
            return
        for departure in self._queue.departures():
            if not self._send(self._submission(departure)):
                self._queue.send_again()
                return

    def new_leader(self) -> None:
        """Send all commands without an outcome to the new leader, in order."""
        self._refused_in_a_row = 0
        self._queue.send_again()
        self.flush()

    def replied(self, reply: CommandReply) -> Answer:
        """Process the quorum's answer to a command. Returns the consequence for all commands that have no outcome
        yet."""
        status = CommandStatus(reply.status)
        if status in (CommandStatus.NOT_LEADER, CommandStatus.UNKNOWN, CommandStatus.OUT_OF_ORDER):
            self._queue.send_again()
            return self._doubtful(reply.sequence, status)
        self._refused_in_a_row = 0
        ticket = self._queue.resolve(reply.sequence)
        if ticket is not None:
            self._resolve(ticket, status, reply)
            self.flush()
        return Answer.TAKEN

    def _doubtful(self, sequence: int, status: CommandStatus) -> Answer:
        if status is CommandStatus.OUT_OF_ORDER and sequence == self._queue.acknowledged_sequence + 1:
            self._refused_in_a_row += 1
            if self._refused_in_a_row >= _REFUSED_IN_A_ROW_MAX:
                return Answer.FORGOTTEN
        return Answer.SEND_AGAIN

    def _resolve(self, ticket: Ticket[Any], status: CommandStatus, reply: CommandReply) -> None:
        if status is CommandStatus.STALE_SESSION:
            self._fail(ticket, ErrorCode.STALE_BROKER_EPOCH, "this broker's registration was replaced")
        elif status is CommandStatus.INVALID:
            logger.error("the quorum refused %s as invalid", type(ticket.command).__name__)
            self._fail(ticket, ErrorCode.UNKNOWN_SERVER_ERROR, "the metadata quorum refused the command")
        else:
            result = decode_result(ticket.command, reply.result)
            self._order += 1
            heapq.heappush(self._behind, (reply.metadata_offset, self._order, ticket, result))
            self.image_at(self._offset)

    def image_at(self, offset: int) -> None:
        """Note the metadata offset that the image has reached, and answer callers whose commands take effect up to
        it."""
        self._offset = offset
        while self._behind and self._behind[0][0] <= offset:
            _, _, ticket, result = heapq.heappop(self._behind)
            if not ticket.outcome.done():
                ticket.outcome.set_result(result)

    def suspend(self, code: ErrorCode, reason: str) -> None:
        """Refuse new commands, and fail all that wait for an outcome, because the broker does not follow the quorum.
        Commands that were sent go to the next leader all the same, since the sequences would have a gap without them.
        """
        if not self._closed:
            self._suspension = KafkaError(code, reason)
        self._refused_in_a_row = 0
        for ticket in [
            *self._queue.withdraw_waiting(),
            *self._queue.left,
            *(entry[2] for entry in self._behind),
        ]:
            self._fail(ticket, code, reason)

    def resume(self) -> None:
        """Accept commands again, because the broker follows the quorum again."""
        if not self._closed:
            self._suspension = None

    def close(self, code: ErrorCode, reason: str) -> None:
        """Fail all commands for good, because the session has ended. The first reason given stays."""
        if not self._closed:
            self._suspension = KafkaError(code, reason)
        self._closed = True
        for ticket in [*self._queue.drain(), *(entry[2] for entry in self._behind)]:
            self._fail(ticket, code, reason)
        self._behind.clear()

    def _fail(self, ticket: Ticket[Any], code: ErrorCode, reason: str) -> None:
        if not ticket.outcome.done():
            ticket.outcome.set_exception(KafkaError(code, reason))

    def _submission(self, departure: Departure[Ticket[Any]]) -> SubmitCommand:
        session = Session(
            self._broker_id, self.broker_epoch, departure.sequence, departure.acknowledged_sequence
        )
        author = departure.ticket.author
        return SubmitCommand(
            sequence=departure.sequence,
            acknowledged_sequence=departure.acknowledged_sequence,
            command=encode_command(session, departure.ticket.command),
            principal="" if author is None else str(author.principal),
            host="" if author is None else author.host,
        )
