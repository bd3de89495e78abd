"""A quorum node, put together from its parts."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..protocol.codec import MalformedMessage, prepare
from ..protocol.exposition import Family
from ..protocol.handshake import Role
from ..protocol.liveness_datagrams import DatagramHeartbeat, DatagramSeal
from ..protocol.messages.broker_commands import (
    BeginControlledShutdown,
    FenceBroker,
    RegisterBroker,
    UnfenceBroker,
)
from ..protocol.messages.cluster_commands import DeclareRestored
from ..protocol.messages.command import Command
from ..protocol.messages.metadata_records import BrokerRecord, PartitionRecord, Record, encode_record
from ..protocol.messages.partition_commands import ElectionType, ElectLeaders
from ..protocol.messages.quorum_commands import (
    Session,
    decode_command,
    encode_command,
)
from ..protocol.messages.quorum_session import (
    CommandReply,
    CommandStatus,
    FeedRecords,
    HeartbeatAnswer,
    HistoryCompared,
    LeaderChanged,
    SessionHeartbeat,
    SettledTransaction,
    ShutdownAllowed,
    SubmitCommand,
    Subscribe,
    TransactionsSettled,
)
from ..protocol.messages.transaction_commands import ReportMarkers
from ..protocol.messages.transaction_questions import TransactionQuestion
from ..protocol.messages.transaction_records import TransactionSettledRecord
from ..protocol.transaction_table import Transaction
from .broker_sessions import BrokerSession, BrokerSessions, SnapshotSource
from .config import QuorumNodeConfig
from .feed import FeedEntry, MetadataFeed
from .leader_duties import LeaderCommand, LeaderDuties, Wish
from .liveness import Heartbeat, ReplicaProgress, SessionTracker
from .marker_reports import MarkerReports, ToldMarkers
from .metrics import quorum_families
from .probe import ProbeResult, is_refused, probe
from .quorum_status import OffsetMarks, status
from .raft.effects import Done, NotLeader, OutcomeUnknown, Overloaded, RoleChange
from .raft.node import RaftConfig, RaftNode
from .raft.settings import Settings
from .server import QuorumServer
from .state.controller import Applied
from .state.machine import ControllerMachine
from .state.workspace import Scope
from .transaction_questions import TransactionAnswers

logger = logging.getLogger(__name__)

MACHINE_FACTORY = "ottla.metadata_quorum.state.machine:new_machine"
_TICKS_PER_TIMEOUT = 20
_UNACKNOWLEDGED_MS_LEAST = 1000
"""TCP sends a lost segment again after 200 ms or more: it has to have a few attempts."""
_LEADER_SILENCE_MAX_S = 3.0
"""A node that hears no leader for so long is not ready; elections take a small part of it."""
_NEEDED_AT_ONCE = (FenceBroker, BrokerRecord, PartitionRecord, FeedRecords, LeaderChanged, CommandReply)
"""What a failover takes: generating a codec at its first use would cost it a millisecond each."""


class QuorumNode:
    """One node of the metadata quorum: Raft, the controller, the feed, liveness, and the port they share.

    Raises on construction `raft.formation.WrongFolder` for the folder of another node or cluster and
    `raft.disk.CorruptFile`; on `start` `server.AddressInUse`.
    """

    def __init__(self, config: QuorumNodeConfig) -> None:
        self.config = config
        self.machine = ControllerMachine(self._note_records)
        self.raft = RaftNode(
            RaftConfig(
                node_id=config.node_id,
                peers=config.voters,
                directory=config.directory,
                secret=config.secret,
                cluster_id=config.cluster_id,
                machine_factory=MACHINE_FACTORY,
                replace_empty=config.replace_empty,
                restored=config.restored,
                settings=Settings.with_snapshots_every(config.snapshot_bytes),
            ),
            self.machine,
            on_role=self._role_changed,
            on_applied=self._applied,
        )
        self.feed = MetadataFeed(capacity_records=config.feed_records_max)
        #: records on their way to the feed, which end at `_noted_end`
        self._noted: list[FeedEntry] = []
        self._noted_end = 0
        self._marks = OffsetMarks()
        self._answers = TransactionAnswers()
        self._told_markers = ToldMarkers(lambda: self.machine.image)
        self._reports = MarkerReports(self._told_markers, self.raft.submit)
        self.sessions = BrokerSessions(
            self.feed,
            SnapshotSource(self.feed, lambda: self.machine.image, lambda: self.machine.history),
            self,
            unacknowledged_ms_max=max(config.broker_session_timeout_ms, _UNACKNOWLEDGED_MS_LEAST),
        )
        self.tracker = SessionTracker(config.broker_session_timeout_ms / 1000)
        self.duties = LeaderDuties(
            lambda: self.machine.image,
            self.tracker,
            self._propose_own,
            cluster_id=config.cluster_id,
            imbalance_check_interval_s=config.leader_imbalance_check_interval_seconds
            if config.auto_leader_rebalance_enable
            else float("inf"),
            imbalance_percentage=config.leader_imbalance_per_broker_percentage,
            defaults=config.cluster_defaults,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            unused_ids_check_interval_s=config.transactional_id_cleanup_interval_ms / 1000,
        )
        self.server = QuorumServer(
            config.listen_host,
            config.listen_port,
            config.secret,
            self.raft.identity,
            {Role.RAFT: self.raft.adopt, Role.BROKER: self.sessions.accept},
            self._datagram,
        )
        self._seal = DatagramSeal(config.secret, config.cluster_id)
        self._started = False
        #: an operator says that the quorum was put back from copies, and nobody has put that into the log yet
        self._declares_restored = config.restored
        self._ticker: asyncio.Task[None] | None = None
        self._probes: dict[asyncio.Task[None], None] = {}
        #: the last session of each broker that was ended by the broker's side
        self._ended: dict[int, BrokerSession] = {}

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active Raft leader; advisory until a barrier."""
        return self.raft.is_leader

    def families(self) -> Iterator[Family]:
        """Its metrics; none before `start`."""
        return quorum_families(self.raft, self.machine.image) if self._started else iter(())

    def unready(self) -> str:
        """Why it does not take part now; empty when it does."""
        if not self._started or not self.raft.formed:
            return f"quorum node {self.config.node_id} waits for its peers"
        if self.raft.catching_up:
            return (
                f"quorum node {self.config.node_id} does not vote: it was replaced, or came back with less than it had "
                "acknowledged, and has not caught up with a leader yet"
            )
        if self.raft.leader_silence_s < _LEADER_SILENCE_MAX_S:
            return ""
        return f"quorum node {self.config.node_id} hears of no leader"

    async def start(self) -> None:
        """Recovers, listens and takes part. The other nodes may start in any order, and later."""
        self._started = True
        for message in _NEEDED_AT_ONCE:
            prepare(message, 0)
        await self.raft.start()
        self._applied()
        await self.server.start()
        logger.info("quorum node %d listens on port %d", self.config.node_id, self.server.port)

    async def stop(self) -> None:
        """Leaves in order: another node leads at once. To be called after a `start` that failed, too."""
        if not self._started:
            return
        self._started = False
        self.duties.follow()
        for task in [*self._probes, *([self._ticker] if self._ticker else [])]:
            task.cancel()
        self.sessions.close_all("this quorum node is stopping")
        await self.server.stop()
        self._reports.flush()
        await self.raft.stop()

    # ------------------------------------------------------------ what Raft says

    def _role_changed(self, change: RoleChange) -> None:
        if change.leads:
            self._applied()
            self.duties.lead(_now())
            if self._ticker is None:
                self._ticker = asyncio.create_task(self._tick(), name="leader duties")
            for session in self._ended.values():
                self._suspect(session)
            if self._declares_restored:
                self._declare_restored()
        else:
            self.duties.follow()
            if self._ticker is not None:
                self._ticker.cancel()
                self._ticker = None
            self._reports.flush()
            self._told_markers.clear()
        hint = change.leader_id
        if hint is None or (hint == self.config.node_id and not change.leads):
            hint = -1
        self.sessions.announce(change.term, hint)

    def _declare_restored(self) -> None:
        """As the first leader after an operator has put the quorum back from copies."""

        def known(_: object, error: Exception | None) -> None:
            if error is None:
                self._declares_restored = False
                logger.warning("the quorum was put back from copies: every partition begins a new leadership")

        self._propose(encode_command(None, DeclareRestored()), known)

    def _note_records(self, records: Sequence[tuple[Scope, Record]], history: int) -> None:
        """A command has put these into the image."""
        end = self.machine.image.offset
        if end - len(records) != self._noted_end:
            self._noted.clear()
        self._noted += [FeedEntry(scope, encode_record(record), history) for scope, record in records]
        self._noted_end = end
        self.duties.noted((record for _, record in records), _now())
        self._told_markers.changed(
            record.transactional_id for _, record in records if isinstance(record, TransactionSettledRecord)
        )

    def _applied(self) -> None:
        """The image moved on, or jumped: a snapshot of the Raft log was restored."""
        offset = self.machine.image.offset
        self._marks.note(offset, self.raft.applied_index)
        if self._noted_end != offset:
            self._noted.clear()
            self._noted_end = offset
        if offset == self.feed.end_offset:
            return
        start = offset - len(self._noted)
        if start != self.feed.end_offset:
            self.feed.restart_at(start, 0 if self._noted else self.machine.history)
        self.feed.append(self._noted)
        self._noted.clear()
        self.duties.image_changed(_now())
        self.sessions.push()

    # ------------------------------------------------------------ what brokers say

    def _datagram(self, datagram: DatagramHeartbeat) -> bool:
        """A sign of life over UDP; whether it is to be answered."""
        now = _now()
        heartbeat = Heartbeat(
            datagram.broker_id,
            datagram.broker_epoch,
            datagram.incarnation,
            datagram.metadata_offset,
            datagram.loop_age_ms / 1000,
            datagram.counter,
            datagram.answered,
        )
        return self.duties.heard(heartbeat, now) and self.duties.answers(
            datagram.broker_id, datagram.counter, now
        )

    def heartbeat(self, session: BrokerSession, message: SessionHeartbeat) -> None:
        """A sign of life over TCP, with the broker's wishes."""
        now = _now()
        heartbeat = Heartbeat(
            session.broker_id,
            message.broker_epoch,
            session.incarnation,
            message.metadata_offset,
            message.loop_age_ms / 1000,
            answered=None if message.answered < 0 else message.answered,
        )
        if not self.duties.heard(heartbeat, now):
            return
        if message.number and self.duties.answers(session.broker_id, message.number, now):
            session.send(HeartbeatAnswer(number=message.number))
        for entry in message.progress:
            self.duties.progress.note(
                ReplicaProgress(
                    entry.topic_id,
                    entry.partition,
                    session.broker_id,
                    entry.leader_epoch,
                    entry.log_end_offset,
                    message.broker_epoch,
                )
            )
        self.duties.progress.told(session.broker_id, message.broker_epoch, message.metadata_offset)
        if self.duties.wishes(heartbeat, Wish(message.wants_unfence, message.wants_shutdown), now):
            session.send(ShutdownAllowed())

    def asked(self, session: BrokerSession, question: int) -> None:
        """Answered by the active leader alone; the others know nothing about each other."""
        replication = self.raft.replication
        if replication is not None:
            session.send(
                status(
                    question,
                    self.config.node_id,
                    self.raft.term,
                    self.config.voters,
                    replication,
                    self.raft.abstaining,
                    self.tracker.sightings(_now()),
                    self._marks,
                    round(time.time() * 1000),
                )
            )

    def asked_about_transactions(self, session: BrokerSession, question: TransactionQuestion) -> None:
        """Answered by the active leader alone, which a majority has heard of lately, and with all of which a client may
        have been told."""
        if self.raft.is_leader:
            self._reports.once_applied(lambda: self._answer(session, question))

    def _answer(self, session: BrokerSession, question: TransactionQuestion) -> None:
        if self.raft.is_leader:
            image = self.machine.image
            session.send(self._answers.answer(session.broker_id, question, image.transactions, image.offset))

    def subscribed(self, session: BrokerSession, message: Subscribe) -> None:
        """Answered by the leader alone, if the broker asks or this node seems to lack what the broker has."""
        if message.history < 0 or not self.raft.is_leader:
            return

        def compared(lacks: bool | None) -> None:
            if lacks is None:
                return
            session.send(
                HistoryCompared(term=self.raft.term, end_offset=self.feed.end_offset, stands=not lacks)
            )

        if message.asks or self.feed.lacks(message.metadata_offset, message.history):
            self._compare(session.broker_id, message.metadata_offset, message.history, compared)

    def _compare(
        self, broker_id: int, offset: int, history: int, compared: Callable[[bool | None], None]
    ) -> None:
        """Whether this history lacks what a broker has followed of one; None if this node does not lead after all.

        A majority confirms first that it leads: it has then all that is committed, and so all that any broker can have.
        """

        def confirmed(_: object, error: Exception | None) -> None:
            if error is not None:
                compared(None)
                return
            self._applied()
            lacks = self.feed.lacks(offset, history)
            if lacks:
                logger.error(
                    "the quorum has lost metadata: broker %d has followed it up to offset %d, and here it ends at %d "
                    'or went on differently. Folders were put back from old copies: see "Restore the quorum from a '
                    'backup" in docs/OPERATIONS.md',
                    broker_id,
                    offset,
                    self.feed.end_offset,
                )
            compared(lacks)

        self.raft.submit(None, confirmed)

    def submitted(self, session: BrokerSession, message: SubmitCommand) -> None:
        """A broker's command: into the log, if it speaks for itself and this node leads."""
        told = _speaks_for_itself(session, message.command)
        if told is None:
            session.reply(CommandReply(sequence=message.sequence, status=CommandStatus.INVALID))
            return
        if not self.raft.is_leader:
            session.reply(self._not_leader(message.sequence))
            return
        encoded = message.command
        sender, command = told
        if isinstance(command, ElectLeaders) and command.election_type == ElectionType.UNCLEAN:
            # Brokers do not know how far the others' logs reach; this node has heard it.
            command.progress = self.duties.leaderless_progress()
            encoded = encode_command(sender, command)

        def done(applied: object, error: Exception | None) -> None:
            session.reply(self._reply(message.sequence, applied, error))

        def compared(lacks: bool | None) -> None:
            if lacks is None:
                session.reply(self._not_leader(message.sequence))
            elif lacks:
                status = CommandStatus.HISTORY_LOST
                session.reply(
                    CommandReply(
                        sequence=message.sequence, status=status, metadata_offset=self.feed.end_offset
                    )
                )
            else:
                self._propose(encoded, done)

        if isinstance(command, ReportMarkers):
            self._settled(self._reports.take(command, encoded, done))
        elif self.feed.lacks(message.reached_offset, message.reached_history):
            self._compare(session.broker_id, message.reached_offset, message.reached_history, compared)
        else:
            self._propose(encoded, done)

    def _propose(self, encoded: bytes, done: Done) -> None:
        self._reports.flush()
        self.raft.submit(encoded, done)

    def _settled(self, transactions: Iterable[Transaction]) -> None:
        """Their clients need not wait any longer."""
        by_broker: dict[int, list[SettledTransaction]] = {}
        for one in transactions:
            told = SettledTransaction(transactional_id=one.transactional_id, number=one.number)
            by_broker.setdefault(one.session[0], []).append(told)
        for broker_id, settled in by_broker.items():
            broker = self.machine.image.brokers.get(broker_id)
            session = None if broker is None else self.sessions.of(broker_id, broker.incarnation)
            if session is not None and session.hears_of_settled:
                session.send(TransactionsSettled(transactions=settled))

    def _reply(self, sequence: int, applied: object, error: Exception | None) -> CommandReply:
        if isinstance(error, OutcomeUnknown):
            return CommandReply(sequence=sequence, status=CommandStatus.UNKNOWN)
        if isinstance(error, NotLeader | Overloaded):
            return self._not_leader(sequence)
        if error is not None:
            raise error
        assert isinstance(applied, Applied)
        return CommandReply(
            sequence=sequence,
            status=applied.status,
            leader_id=self.config.node_id,
            metadata_offset=applied.metadata_offset,
            result=applied.result,
        )

    def _not_leader(self, sequence: int) -> CommandReply:
        leader_id = self.raft.leader_id
        return CommandReply(
            sequence=sequence,
            status=CommandStatus.NOT_LEADER,
            leader_id=-1 if leader_id is None else leader_id,
        )

    def session_ended(self, session: BrokerSession, closed_by_peer: bool) -> None:
        """A session is gone; if the broker ended it, its heartbeat port knows whether the process lives.

        Remembered while another node leads: broker and leader may have died together.
        """
        self._answers.forget(session.broker_id)
        if closed_by_peer and session.heartbeat_port:
            self._ended[session.broker_id] = session
            self._suspect(session)

    def _suspect(self, session: BrokerSession) -> None:
        """Looks after a broker whose session has ended, if that is this node's business."""
        broker = self.machine.image.brokers.get(session.broker_id)
        if not (self.duties.active and session.host):
            return
        if broker is None or broker.fenced or broker.incarnation != session.incarnation:
            return
        if is_refused(self._seal, session.host, session.heartbeat_port):
            logger.info("broker %d ended its session, and its port is refused", session.broker_id)
            self.duties.fence(session.broker_id, broker.broker_epoch)
            return
        task = asyncio.create_task(self._probe(session, broker.broker_epoch), name="probe of a broker")
        self._probes[task] = None
        task.add_done_callback(self._probes.pop)

    async def _probe(self, session: BrokerSession, broker_epoch: int) -> None:
        result = await probe(self._seal, session.host, session.heartbeat_port, session.incarnation)
        logger.info("broker %d ended its session: %s", session.broker_id, result.value)
        if result is ProbeResult.GONE:
            self.duties.fence(session.broker_id, broker_epoch)

    # ------------------------------------------------------------ the leader's own commands

    def _propose_own(self, command: LeaderCommand, done: Callable[[], None]) -> None:
        encoded = encode_command(None, command)
        logger.info("%s, %d bytes", _named(command), len(encoded))

        def known(_: object, error: Exception | None) -> None:
            if error is not None:
                logger.info("%s: %s", _named(command), error)
            done()

        self._propose(encoded, known)

    async def _tick(self) -> None:
        pause = self.config.broker_session_timeout_ms / 1000 / _TICKS_PER_TIMEOUT
        while True:
            await asyncio.sleep(pause)
            self.duties.tick(_now(), round(time.time() * 1000))


def _named(command: LeaderCommand) -> str:
    """Its kind, and which broker it is about; it may be long."""
    kind = type(command).__name__
    if isinstance(command, FenceBroker | UnfenceBroker | BeginControlledShutdown):
        return f"{kind} of broker {command.broker_id}"
    return kind


def _speaks_for_itself(session: BrokerSession, encoded: bytes) -> tuple[Session | None, Command[Any]] | None:
    """The command, if it may be taken: a broker submits in its own name; outside of any session only its
    registration."""
    try:
        sender, command = decode_command(encoded)
    except MalformedMessage:
        return None
    if sender is not None:
        own = sender.broker_id == session.broker_id
    else:
        own = (
            isinstance(command, RegisterBroker)
            and command.broker_id == session.broker_id
            and command.incarnation == session.incarnation
        )
    return (sender, command) if own else None


def _now() -> float:
    return asyncio.get_running_loop().time()
