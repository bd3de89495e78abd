"""The broker's session with the metadata quorum, for use by the rest of the broker."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.errors import ErrorCode
from ...protocol.messages.app_version_questions import AppVersionsTold, AskAppVersions
from ...protocol.messages.broker_commands import RegisterBroker
from ...protocol.messages.quorum_commands import decode_result
from ...protocol.messages.quorum_session import (
    AskContacts,
    BrokerContact,
    CommandReply,
    CommandStatus,
    ContactsReported,
    FeedRecords,
    FeedSnapshotChunk,
    HeartbeatAnswer,
    HistoryCompared,
    LeaderChanged,
    QuorumStatus,
    SessionHeartbeat,
    SessionMessage,
    ShutdownAllowed,
    SubmitCommand,
    Subscribe,
    TransactionsSettled,
    Unsubscribe,
    decode_session_message,
    encode_session_message,
)
from ...protocol.messages.transaction_questions import (
    CutTold,
    TransactionAnswer,
    TransactionIdsTold,
    TransactionQuestion,
    TransactionsTold,
)
from ...protocol.session.liveness_datagrams import DatagramSeal
from ..runtime.clocks import wall_ms
from .app_version_questions import AppVersionQuestions
from .commands import Answer, CommandSubmitter
from .config import MetadataPosition, QuorumSessionConfig
from .heartbeats import HeartbeatThread
from .image_follower import Fold, ImageFollower
from .log_end_reports import LogEndReports, LogEnds, NoLogs
from .metadata_room import check_room
from .offset_reports import Echo
from .questions import PendingQuestions
from .quorum_connection import QuorumConnection
from .registration import Registration, SessionLost
from .transaction_questions import TransactionQuestions

logger = logging.getLogger(__name__)

OnDelta = Callable[[ClusterImage, ImageDelta], None]
_LOOP_TURN_S_MAX = 0.1
_HEARTBEATS_PER_SILENCE = 5
"""The least number of heartbeats over UDP within the silence after which the quorum fences a broker."""
_RESEND_AFTER_S = 0.02
_SHUTDOWN_ASK_EVERY_S = 0.05
_QUORUM_GONE_S = 3.0
"""Seconds after which the quorum counts as stopped if all its nodes refuse connections. A stopped quorum moves no
leaderships."""
_RESTORED = (
    'its folders were put back from old copies. Put the newer folders back, or see "Restore the quorum from a '
    'backup" in docs/OPERATIONS.md'
)


class QuorumSession:
    """A session that follows the quorum's leader and maintains the image, commands, heartbeats and the broker's own
    state.

    `on_delta(image, delta)` is called in the loop turn in which the image changed. It is also called when the answer to
    the registration arrives after the registration's changes. `log_ends()` returns the ends of this broker's logs; it
    is called once the session runs. `contact_age_s(broker_id)` returns the seconds since the last bytes from another
    broker, or None. `on_settled(transactional_id, number)` is called when a decided transaction has all
    its markers, before the image shows it. `on_lost(error)` is called once if another process took over this broker's
    id.
    """

    def __init__(
        self,
        config: QuorumSessionConfig,
        *,
        on_delta: OnDelta,
        log_ends: Callable[[], LogEnds] = NoLogs,
        contact_age_s: Callable[[int], float | None] = lambda _broker_id: None,
        on_settled: Callable[[str, int], None] | None = None,
        on_lost: Callable[[SessionLost], None] | None = None,
    ) -> None:
        self._config = config
        self._on_delta = on_delta
        self._contact_age_s = contact_age_s
        self._on_settled = on_settled
        self._on_lost = on_lost
        self._follower = ImageFollower(config.broker_id)
        self._commands = CommandSubmitter(
            config.broker_id,
            self._send_command,
            config.command_timeout_ms,
            lambda command: check_room(self.image, command),
        )
        #: the method of `access.Quorum`
        self.submit = self._commands.submit
        self._questions = PendingQuestions()
        #: questions to the quorum's leader about transactions that are not in this broker's image
        self.transactions = TransactionQuestions(self._ask_about_transactions)
        self.app_versions = AppVersionQuestions(self._ask_about_app_versions)
        self._links = {
            node_id: QuorumConnection(
                config,
                node_id,
                on_open=self._link_opened,
                on_payload=self._payload_received,
                on_loss=self._link_lost,
            )
            for node_id in config.voters
        }
        self._leader: QuorumConnection | None = None
        self._leader_knows_transactions = self._leader_knows_app_versions = False
        self._followed: QuorumConnection | None = None
        self._term = -1
        self._heartbeats = HeartbeatThread(
            config.broker_id,
            config.incarnation,
            config.heartbeat_host,
            config.voters,
            min(config.heartbeat_interval_ms, config.silence_fence_ms // _HEARTBEATS_PER_SILENCE),
        )
        self._log_end_reports = LogEndReports(log_ends, self._report_to_leader)
        self._registration = Registration(config)
        #: coroutines that wait until the image shows this broker as registered or unfenced; they raise SessionLost
        self.registered = self._registration.registered
        self.unfenced = self._registration.unfenced
        self._shutdown_allowed = asyncio.Event()
        self._wants_unfence = False
        self._wants_shutdown = False
        self._echo = Echo(self._report_to_leader)
        self._ticker: asyncio.Task[None] | None = None
        #: the leader that was asked whether it has all metadata that this broker has followed; it is followed only
        #: after it has confirmed this
        self._asked: LeaderChanged | None = None
        self._history_lost = ""

    # ------------------------------------------------------------ what the broker sees

    @property
    def image(self) -> ClusterImage:
        """The cluster's metadata as far as this broker knows: the same object always, which changes only between loop
        turns."""
        return self._follower.image

    @property
    def broker_epoch(self) -> int:
        """The broker epoch, by which the quorum tells this registration from earlier ones of the same broker id; -1
        before the registration."""
        return self._commands.broker_epoch

    @property
    def is_registered(self) -> bool:
        """True if the image has this registration and all its consequences."""
        return self._registration.is_in(self.image)

    @property
    def fenced(self) -> bool:
        """True if this broker may not lead, according to its own image."""
        broker = self._registration.in_image(self.image)
        return broker is None or broker.fenced

    @property
    def position(self) -> MetadataPosition:
        """The position (offset and history mark) up to which this broker has followed the metadata, in this process or
        an earlier one."""
        before = self._config.reached
        # Before it accepts the registration, the quorum may be missing metadata that an earlier process has followed.
        if before is not None and (self.broker_epoch < 0 or before.offset > self.image.offset):
            return before
        return MetadataPosition(self.image.offset, self._follower.history)

    @property
    def history_lost(self) -> str:
        """The reason why the quorum is not followed: it has lost metadata that this broker has followed. Empty while it
        has all."""
        return self._history_lost

    @property
    def leader_id(self) -> int | None:
        """The quorum node that accepts commands now; None if unknown."""
        return None if self._leader is None else self._leader.node_id

    @property
    def term(self) -> int:
        """The highest Raft term of any leader so far; -1 before the first leader."""
        return self._term

    @property
    def voters(self) -> Mapping[int, tuple[str, int]]:
        """The addresses of all quorum nodes: id -> (host, port)."""
        return self._config.voters

    @property
    def heartbeat_port(self) -> int:
        """The UDP port on which this broker answers the probes of quorum nodes."""
        return self._heartbeats.port

    async def start(self) -> None:
        """Begin to connect; the quorum may start later. Await `registered` and `unfenced` as needed."""
        self._heartbeats.start()
        self._ticker = asyncio.create_task(self._tick(), name="quorum session")
        for link in self._links.values():
            link.start()

    def ask_to_unfence(self) -> None:
        """Ask by heartbeats, from now on, for this broker to be unfenced, since it is ready to serve."""
        self._wants_unfence = True
        self._heartbeat()

    async def quorum_status(self, timeout_s: float) -> QuorumStatus | None:
        """Ask the leader for the progress of the quorum's nodes and the brokers. Returns None if no leader answered in
        time."""
        answer = await self._questions.ask(self._ask_for_status, timeout_s)
        return answer if isinstance(answer, QuorumStatus) else None

    async def shut_down_controlled(self, timeout_s: float) -> bool:
        """Have this broker's leaderships moved away. Returns True once they are moved and the other brokers know.

        Returns False if this took longer than `timeout_s`, the quorum is not followed, or none of its nodes runs any
        more: stopping now costs clients a failover.
        """
        self._wants_shutdown = True
        if self._registration.lost is not None:
            return False
        listened = time.monotonic()
        deadline = listened + timeout_s
        while not self._shutdown_allowed.is_set():
            now = time.monotonic()
            if not all(link.is_refused for link in self._links.values()):
                listened = now
            if self._history_lost or now >= deadline or now - listened >= _QUORUM_GONE_S:
                return False
            self._heartbeat()
            try:
                async with asyncio.timeout(_SHUTDOWN_ASK_EVERY_S):
                    await self._shutdown_allowed.wait()
            except TimeoutError:
                continue
        return True

    async def stop(self) -> None:
        """Close the heartbeat port, then all links. Commands without an outcome fail.

        The order matters: when the leader sees a link end, it finds the port refused and fences this broker at once.
        """
        if self._ticker is not None:
            self._ticker.cancel()
        self._echo.stop()
        self._log_end_reports.stop()
        self._heartbeats.stop()
        await asyncio.gather(*(link.stop() for link in self._links.values()))
        self._commands.close(ErrorCode.REQUEST_TIMED_OUT, "the broker is stopping")

    # ------------------------------------------------------------ links

    def _link_opened(self, link: QuorumConnection) -> None:
        """Begin heartbeats to this node. The node announces by itself whether it leads."""
        if link.channel is not None:
            seal = DatagramSeal(link.channel.derive(b"datagrams"), is_broker=True)
            self._heartbeats.link_opened(link.node_id, seal)
        self._heartbeat_to(link)

    def _link_lost(self, link: QuorumConnection) -> None:
        self._heartbeats.link_lost(link.node_id)
        if link is self._leader:
            self._leader = None
        if link is self._followed:
            self._followed = None

    def _payload_received(self, link: QuorumConnection, payload: bytes) -> None:
        message = decode_session_message(payload)
        match message:
            case LeaderChanged():
                self._leader_changed(link, message)
            case FeedRecords() if link is self._followed:
                self._folded(self._follower.records(message))
            case FeedSnapshotChunk() if link is self._followed:
                self._folded(self._follower.snapshot(message))
            case CommandReply():
                self._replied(link, message)
            case HistoryCompared():
                self._compared(link, message)
            case QuorumStatus() | CutTold() | TransactionsTold() | TransactionIdsTold() | AppVersionsTold():
                self._questions.answered(message)
            case TransactionsSettled() if link is self._leader and self._on_settled is not None:
                for transaction in message.transactions:
                    self._on_settled(transaction.transactional_id, transaction.number)
            case HeartbeatAnswer():
                self._heartbeats.answered_over_tcp(link.node_id, message.number)
                if link is self._leader:
                    self._log_end_reports.answered(message.number)
            case AskContacts():
                self._send(link, self._contacts(message))
            case ShutdownAllowed() if link is self._leader:
                self._shutdown_allowed.set()
            case _:
                return

    def _leader_changed(self, link: QuorumConnection, message: LeaderChanged) -> None:
        """Process a node's announcement of who leads. Only a node's announcement about itself counts, and the highest
        term wins.

        A leader of a lower term has not learned of its successor yet, unless the quorum was restored from old copies:
        so it is asked.
        """
        if message.leader_id != link.node_id:
            if link is self._leader:
                self._leader = None
            return
        if link is self._leader and message.term == self._term:
            return
        if message.term < self._term or self._history_lost:
            self._asked = message
            self._send(link, self._subscription(asks=True))
            self._send(link, Unsubscribe())
        else:
            self._follow(link, message)

    def _compared(self, link: QuorumConnection, compared: HistoryCompared) -> None:
        if not compared.stands:
            self._lose_history(
                f"the metadata quorum has lost metadata that broker {self._config.broker_id} has followed, up to "
                f"offset {self.position.offset}: node {link.node_id} leads in term {compared.term} with metadata up to "
                f"{compared.end_offset}, and {_RESTORED}"
            )
            return
        asked, self._asked = self._asked, None
        if asked is not None and (asked.leader_id, asked.term) == (link.node_id, compared.term):
            if self._history_lost:
                logger.warning("the metadata quorum has all again that this broker has followed")
                self._history_lost = ""
                self._commands.resume()
            self._follow(link, asked)

    def _lose_history(self, reason: str) -> None:
        """Stop following the quorum, since its present decisions do not continue the metadata that this broker has."""
        if not self._history_lost:
            logger.error("%s", reason)
        self._history_lost = reason
        self._send(self._followed, Unsubscribe())
        self._followed = self._leader = None
        self._commands.suspend(ErrorCode.BROKER_NOT_AVAILABLE, reason)

    def _follow(self, link: QuorumConnection, message: LeaderChanged) -> None:
        self._term = message.term
        self._leader = link
        self._leader_knows_transactions = message.knows_transactions
        self._leader_knows_app_versions = message.knows_app_versions
        logger.info("quorum node %d leads in term %d", link.node_id, message.term)
        if self._followed is not None and self._followed is not link:
            self._send(self._followed, Unsubscribe())
        self._followed = link
        self._log_end_reports.new_leader(takes_pieces=message.takes_pieces)
        self._subscribe()
        if self.broker_epoch < 0:
            self._register()
        self._heartbeat_to(link)
        self._commands.new_leader()
        self._questions.new_leader()

    def _send(self, link: QuorumConnection | None, message: SessionMessage) -> bool:
        return link is not None and link.send(encode_session_message(message))

    def _subscription(self, *, asks: bool = False) -> Subscribe:
        return Subscribe(
            metadata_offset=self.image.offset,
            hears_of_settled=self._on_settled is not None,
            history=self._follower.history,
            asks=asks,
        )

    def _subscribe(self) -> None:
        self._send(self._followed, self._subscription())

    async def _ask_about_transactions(
        self, make: Callable[[int], TransactionQuestion], timeout_s: float
    ) -> TransactionAnswer | None:
        def send(number: int) -> None:
            if self._leader_knows_transactions:
                self._send(self._leader, make(number))

        answer = await self._questions.ask(send, timeout_s)
        return None if isinstance(answer, QuorumStatus | AppVersionsTold) else answer

    async def _ask_about_app_versions(
        self, make: Callable[[int], AskAppVersions], timeout_s: float
    ) -> AppVersionsTold | None:
        def send(number: int) -> None:
            if self._leader_knows_app_versions:
                self._send(self._leader, make(number))

        answer = await self._questions.ask(send, timeout_s)
        return answer if isinstance(answer, AppVersionsTold) else None

    # ------------------------------------------------------------ registration and commands

    def _register(self) -> None:
        self._send(self._leader, self._registration.request())

    def _send_command(self, submission: SubmitCommand) -> bool:
        return self._send(self._leader, submission)

    def _replied(self, link: QuorumConnection, reply: CommandReply) -> None:
        is_registration = reply.sequence == 0
        answer = self._take_registration(link, reply) if is_registration else self._commands.replied(reply)
        if answer is Answer.FORGOTTEN:
            self._lose_history(
                "the metadata quorum has forgotten commands of this broker that it had applied: node "
                f"{link.node_id} leads in term {self._term}, and {_RESTORED}"
            )
        elif answer is Answer.SEND_AGAIN and link is self._leader:
            asyncio.get_running_loop().call_later(_RESEND_AFTER_S, self._send_again)

    def _send_again(self) -> None:
        if self._registration.lost is None and self._leader is not None:
            if self.broker_epoch < 0:
                self._register()
            self._commands.flush()

    def _take_registration(self, link: QuorumConnection, reply: CommandReply) -> Answer:
        if self.broker_epoch >= 0:
            return Answer.TAKEN
        if reply.status == CommandStatus.HISTORY_LOST:
            self._compared(link, HistoryCompared(term=self._term, end_offset=reply.metadata_offset))
            return Answer.TAKEN
        if reply.status != CommandStatus.APPLIED:
            return Answer.SEND_AGAIN
        result = decode_result(RegisterBroker(), reply.result)
        if result.error_code != ErrorCode.NONE:
            self._end(f"registration as broker {self._config.broker_id} was refused: {result.error_message}")
            return Answer.TAKEN
        self._commands.broker_epoch = self._heartbeats.broker_epoch = result.broker_epoch
        self._registration.taken(reply.metadata_offset)
        logger.info("registered as broker %d, epoch %d", self._config.broker_id, result.broker_epoch)
        if self.is_registered:
            self._on_delta(self.image, ImageDelta())  # Changes before the registration may be acted on now.
        self._look_at_registration()
        self._commands.flush()
        return Answer.TAKEN

    # ------------------------------------------------------------ the image

    def _folded(self, outcome: ImageDelta | Fold) -> None:
        if outcome is Fold.RESUBSCRIBE:
            self._subscribe()
        if outcome is Fold.DIVERGED:
            self._lose_history(
                "the metadata quorum has lost metadata that this broker has followed, and gone on differently before "
                f"offset {self.image.offset}: {_RESTORED}"
            )
        if isinstance(outcome, Fold):
            return
        self._heartbeats.metadata_offset = self.image.offset
        self._on_delta(self.image, outcome)
        self._look_at_registration()
        self._commands.image_at(self.image.offset)
        self._echo.image_moved(outcome)

    def _look_at_registration(self) -> None:
        if not self._registration.look(self.image):
            self._end(
                f"broker id {self._config.broker_id} was taken over by another process, or was unregistered: "
                "two brokers must not share one node.id"
            )

    def _end(self, reason: str) -> None:
        if self._registration.lost is None:
            lost = self._registration.lose(reason)
            self._commands.close(ErrorCode.STALE_BROKER_EPOCH, reason)
            self._wants_unfence = False
            if self._on_lost is not None:
                self._on_lost(lost)

    # ------------------------------------------------------------ heartbeats

    async def _tick(self) -> None:
        interval = self._config.heartbeat_interval_ms / 1000
        turn = min(_LOOP_TURN_S_MAX, interval / 2)
        next_beat = 0.0
        while True:
            now = self._heartbeats.loop_turned_at = time.monotonic()
            if now >= next_beat:
                next_beat = now + interval
                self._heartbeat()
            await asyncio.sleep(turn)

    def _report_to_leader(self) -> None:
        if self._leader is not None:
            self._heartbeat_to(self._leader)

    def _heartbeat(self) -> None:
        number = self._heartbeats.next_number()
        for link in self._links.values():
            self._heartbeat_to(link, number=number)

    def _ask_for_status(self, question: int) -> None:
        if self._leader is not None:
            self._heartbeat_to(self._leader, question=question)

    def _heartbeat_to(self, link: QuorumConnection, *, question: int = 0, number: int = 0) -> None:
        if not link.is_open or self._registration.lost is not None:
            return
        is_heard = self._is_heard_by(link)
        piece = self._log_end_reports.piece(self.image.offset, waits=number == 0) if is_heard else None
        if piece is not None and self._log_end_reports.is_amid_round:
            number = number or self._heartbeats.next_number()
            self._log_end_reports.sent(number)
        self._send(
            link,
            SessionHeartbeat(
                broker_epoch=self.broker_epoch,
                metadata_offset=self.image.offset,
                heartbeat_port=self._heartbeats.port,
                wants_unfence=self._wants_unfence,
                wants_shutdown=self._wants_shutdown,
                progress=piece or [],
                question=question,
                number=number,
                answered=self._heartbeats.answered(link.node_id),
                told_offset=self._log_end_reports.reported_offset if is_heard else 0,
                wall_ms=wall_ms() if number else -1,
                reports_contacts=True,
            ),
        )

    def _contacts(self, question: AskContacts) -> ContactsReported:
        """Return the times since this broker last received something from the brokers of the question."""
        contacts = []
        for broker_id in question.broker_ids:
            age_s = self._contact_age_s(broker_id)
            age_ms = -1 if age_s is None else round(age_s * 1000)
            contacts.append(BrokerContact(broker_id=broker_id, age_ms=age_ms))
        return ContactsReported(question=question.question, contacts=contacts)

    def _is_heard_by(self, link: QuorumConnection) -> bool:
        """Return whether that node leads and accepts this broker's reports, which it does once this broker is
        registered."""
        return link is self._leader and self.broker_epoch >= 0
