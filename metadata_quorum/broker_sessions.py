"""The brokers' TCP sessions on this node: each follows the feed at its own pace.

A session sends missing records whenever commands were applied and whenever its send buffer has drained. Unsent records
wait in the ring, never in a separate buffer. Every node serves the feed. Commands are passed to `SessionEvents` on
every node; a node that does not lead answers NOT_LEADER.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.cluster.transaction_table import TransactionMetadata
from ..protocol.messages.app_version_questions import AskAppVersions
from ..protocol.messages.metadata_records import encode_record
from ..protocol.messages.quorum_session import (
    AskContacts,
    CommandReply,
    ContactsReported,
    FeedRecords,
    FeedSnapshotChunk,
    LeaderChanged,
    SessionHeartbeat,
    SessionMessage,
    SettledTransaction,
    SubmitCommand,
    Subscribe,
    TransactionsSettled,
    Unsubscribe,
    decode_session_message,
    encode_session_message,
)
from ..protocol.messages.transaction_questions import (
    AskCut,
    AskTransactionIds,
    AskTransactions,
    TransactionQuestion,
)
from .feed import FeedSlice, FeedSnapshot, MetadataFeed, SnapshotBuilder
from .node_connection import NodeConnection

logger = logging.getLogger(__name__)

PUSH_RECORDS_MAX = 500
"""Limit for the records in a push. A broker processes a push in one turn of its loop: about 9 microseconds for each
record. This node encodes a push in one turn, too: about 0.5 microseconds for each record. The new partitions of a topic
are always in one push, however many they are."""
PUSH_BYTES_MAX = 512 * 1024
_PUSHES_KEPT = 8
#: Encoding this many records takes about a millisecond, after which the loop continues.
SNAPSHOT_RECORDS_PER_TURN = 200
COMMANDS_IN_FLIGHT_MAX = 1024
#: A broker has one session per incarnation; the old one's may linger while the new one opens.
SESSIONS_PER_BROKER_MAX = 4


@dataclass(frozen=True, slots=True)
class SessionEvents:
    """Callbacks of the quorum node for the messages that a broker sends over its session: heartbeats, questions,
    subscriptions and commands."""

    heartbeat: Callable[["BrokerSession", SessionHeartbeat], None]
    """A heartbeat."""
    asked: Callable[["BrokerSession", int], None]
    """A numbered question about the progress of all nodes."""
    asked_about_transactions: Callable[["BrokerSession", TransactionQuestion], None]
    """A question about transactions that the broker's own image does not answer."""
    asked_about_app_versions: Callable[["BrokerSession", AskAppVersions], None]
    """A question about application versions at a cut."""
    reported_contacts: Callable[["BrokerSession", ContactsReported], None]
    """An answer to `BrokerSession.ask_contacts`."""
    subscribed: Callable[["BrokerSession", Subscribe], None]
    """A subscription from the offset of the broker's image. If the broker asks, it learns whether that offset is in
    this node's history."""
    submitted: Callable[["BrokerSession", SubmitCommand], None]
    """A submitted command. The answer goes to `BrokerSession.reply`."""
    ended: Callable[["BrokerSession"], None]
    """The end of the connection."""


class SnapshotSource:
    """A source of snapshots of the cluster image for brokers that the feed cannot serve. Each is built over several
    turns of the event loop, once for all sessions that wait for it.

    A finished snapshot also serves later sessions, as long as the ring continues from it.
    """

    def __init__(
        self, feed: MetadataFeed, image: Callable[[], ClusterImage], history: Callable[[], int] = lambda: 0
    ) -> None:
        """`history` returns the history mark, which identifies the commands that made the image."""
        self._feed = feed
        self._image = image
        self._history = history
        self._build: asyncio.Task[FeedSnapshot] | None = None

    async def get(self) -> FeedSnapshot:
        """Return a snapshot of the cluster image whose offset the feed's ring still covers; a new one is built if
        necessary."""
        while True:
            build = self._build
            if build is None:
                build = self._build = asyncio.create_task(self._make(), name="feed snapshot")
            snapshot = await asyncio.shield(build)
            if self._feed.covers(snapshot.end_offset):
                return snapshot
            if self._build is build:
                self._build = None

    async def _make(self) -> FeedSnapshot:
        image = self._image().frozen()
        records = map(encode_record, image.records())
        builder = SnapshotBuilder(image.offset, records, history=self._history())
        while (snapshot := builder.work(SNAPSHOT_RECORDS_PER_TURN)) is None:  # noqa: ASYNC110 - no wait: others' turn
            await asyncio.sleep(0)
        return snapshot


class BrokerSession:
    """One broker's connection to this node: it receives the broker's messages, and sends it the metadata feed and
    replies. It is the handler of the link."""

    def __init__(self, link: NodeConnection, sessions: "BrokerSessions") -> None:
        self.link = link
        self.broker_id = link.peer.node_id
        self.incarnation = link.peer.directory_id
        #: the broker's IP address
        self.host = link.remote_host
        #: port at which the broker answers probes; 0 until its first heartbeat
        self.heartbeat_port = 0
        self.reports_contacts = False
        self.commands_in_flight = 0
        self.hears_of_settled = False
        self._sessions = sessions
        self._offset: int | None = None
        self._push_is_due = False
        self._snapshot: asyncio.Task[None] | None = None
        self._chunks: Iterator[FeedSnapshotChunk] | None = None

    def send(self, message: SessionMessage) -> None:
        """Send one message to the broker; it is lost if the connection is gone."""
        self.link.send(encode_session_message(message))

    def ask_contacts(self, number: int, broker_ids: Iterable[int]) -> None:
        """Ask the broker, in a question of this number, when it last received something from these brokers.

        A broker that does not understand the question is not asked.
        """
        if self.reports_contacts:
            self.send(AskContacts(question=number, broker_ids=list(broker_ids)))

    def payload_received(self, link: NodeConnection, payload: bytes) -> None:
        message = decode_session_message(payload)
        match message:
            case Subscribe():
                self._stop_snapshot()
                self._offset = message.metadata_offset
                self.hears_of_settled = message.hears_of_settled
                self._sessions.events.subscribed(self, message)
                self.push()
            case Unsubscribe():
                self._stop_snapshot()
                self._offset = None
            case SessionHeartbeat():
                self.heartbeat_port = message.heartbeat_port
                self.reports_contacts = message.reports_contacts
                self._sessions.events.heartbeat(self, message)
                if message.question:
                    self._sessions.events.asked(self, message.question)
            case SubmitCommand():
                if self.commands_in_flight >= COMMANDS_IN_FLIGHT_MAX:
                    link.close(f"more than {COMMANDS_IN_FLIGHT_MAX} commands without an answer", abort=True)
                    return
                self.commands_in_flight += 1
                self._sessions.events.submitted(self, message)
            case AskCut() | AskTransactions() | AskTransactionIds():
                self._sessions.events.asked_about_transactions(self, message)
            case AskAppVersions():
                self._sessions.events.asked_about_app_versions(self, message)
            case ContactsReported():
                self._sessions.events.reported_contacts(self, message)
            case _:
                link.close(f"a broker does not send {type(message).__name__}")

    def reply(self, reply: CommandReply) -> None:
        """Answer one submitted command, in the same write as the records of its effect if they follow at once."""
        self.commands_in_flight -= 1
        self.link.send_along(encode_session_message(reply))

    def link_writable(self, link: NodeConnection) -> None:
        self.push()

    def link_closed(self, link: NodeConnection, reason: str) -> None:
        self._stop_snapshot()
        self._offset = None
        self._sessions.ended(self, reason)

    def push(self) -> None:
        """Send the metadata records that are missing in the broker's image, until the link's send buffer is full. Each
        turn of the event loop sends one slice of the feed."""
        feed = self._sessions.feed
        while self._offset is not None and self.link.writable and not self._push_is_due:
            if self._chunks is not None:
                chunk = next(self._chunks, None)
                if chunk is not None:
                    self.send(chunk)
                    continue
                self._chunks = None
            if not feed.covers(self._offset):
                self._ask_for_snapshot()
                return
            if self._offset >= feed.end_offset:
                return
            self._offset = self._sessions.send_records(self, self._offset)
            if self._offset < feed.end_offset:
                self._push_is_due = True
                asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._push_is_due = False
        self.push()

    def _ask_for_snapshot(self) -> None:
        if self._snapshot is None:
            self._snapshot = asyncio.create_task(self._take_snapshot(), name=f"snapshot for {self.broker_id}")

    async def _take_snapshot(self) -> None:
        snapshot = await self._sessions.snapshots.get()
        self._snapshot = None
        last = len(snapshot.chunks) - 1
        self._offset = snapshot.end_offset
        self._chunks = (
            FeedSnapshotChunk(
                end_offset=snapshot.end_offset,
                first=number == 0,
                last=number == last,
                records=list(records),
                history=snapshot.history,
            )
            for number, records in enumerate(snapshot.chunks)
        )
        self.push()

    def _stop_snapshot(self) -> None:
        self._chunks = None
        if self._snapshot is not None:
            self._snapshot.cancel()
            self._snapshot = None


@dataclass(frozen=True, slots=True)
class _Push:
    """Encoded metadata records for sessions at their first offset; `is_full` if the feed held further records when they
    were read."""

    end_offset: int
    payload: bytes
    is_full: bool


class BrokerSessions:
    """All sessions of brokers with this node, whether it leads or not."""

    def __init__(
        self,
        feed: MetadataFeed,
        snapshots: SnapshotSource,
        events: SessionEvents,
        *,
        unacknowledged_ms_max: int,
    ) -> None:
        """A session ends when the broker's machine has acknowledged nothing for `unacknowledged_ms_max`."""
        self.feed = feed
        self.snapshots = snapshots
        self.events = events
        self._unacknowledged_ms_max = unacknowledged_ms_max
        self._sessions: list[BrokerSession] = []
        self._leader = _leader(term=0, leader_id=-1)
        self._pushes: dict[int, _Push] = {}
        """Latest pushes by first offset, so that records for all brokers are encoded once."""
        self._encoded: tuple[FeedSlice, bytes] | None = None
        """Newest encoded slice of the feed, and its bytes."""

    def accept(self, link: NodeConnection) -> BrokerSession | None:
        """Open a session for an authenticated broker; None if it has too many sessions already."""
        broker_id = link.peer.node_id
        of_broker = [session for session in self._sessions if session.broker_id == broker_id]
        for session in of_broker:
            if session.incarnation == link.peer.directory_id:
                session.link.close("the broker opened another session", abort=True)
        if len(of_broker) >= SESSIONS_PER_BROKER_MAX:
            logger.warning("broker %d already has %d sessions: refused", broker_id, len(of_broker))
            return None
        link.set_tcp_timeout(self._unacknowledged_ms_max)
        session = BrokerSession(link, self)
        self._sessions.append(session)
        session.send(self._leader)
        return session

    def of(self, broker_id: int, incarnation: bytes) -> BrokerSession | None:
        """Return the open session of this incarnation (start) of a broker's process, or None."""
        for session in self._sessions:
            if session.broker_id == broker_id and session.incarnation == incarnation:
                return session
        return None

    def ended(self, session: BrokerSession, reason: str) -> None:
        """Remove a session whose connection is gone, and report its end to `SessionEvents`."""
        self._sessions.remove(session)
        logger.info("session of broker %d ended: %s", session.broker_id, reason)
        self.events.ended(session)

    def tell_settled(self, transactions: Iterable[TransactionMetadata], image: ClusterImage) -> None:
        """Notify brokers that these decided transactions have all their markers in the partitions. Each transaction's
        notice goes to the broker of its client, which need not wait longer."""
        by_broker: dict[int, list[SettledTransaction]] = {}
        for transaction in transactions:
            entry = SettledTransaction(
                transactional_id=transaction.transactional_id, number=transaction.number
            )
            by_broker.setdefault(transaction.session[0], []).append(entry)
        for broker_id, settled in by_broker.items():
            broker = image.brokers.get(broker_id)
            session = None if broker is None else self.of(broker_id, broker.incarnation)
            if session is not None and session.hears_of_settled:
                session.send(TransactionsSettled(transactions=settled))

    def announce(self, term: int, leader_id: int) -> None:
        """Announce the leader to every broker (-1 if unknown); this node only once it is active."""
        if (term, leader_id) != (self._leader.term, self._leader.leader_id):
            self._pushes.clear()  # they contain the term
            self._leader = _leader(term, leader_id)
            self._encoded = None
            for session in list(self._sessions):
                session.send(self._leader)

    def push(self, first: frozenset[int] = frozenset()) -> None:
        """Send applied records to all sessions.

        The brokers in `first` come first, then brokers with a waiting reply: both have callers that wait, and a process
        that receives data may get the processor at once.
        """
        for session in sorted(
            self._sessions,
            key=lambda session: (session.broker_id not in first, not session.link.holds_something),
        ):
            session.push()

    def send_records(self, session: BrokerSession, offset: int) -> int:
        """Send the next slice of the feed from `offset` to a session, and return the offset after it. Sessions at the
        same offset share the encoding."""
        known = self._pushes.get(offset)
        if known is not None and (known.is_full or known.end_offset == self.feed.end_offset):
            session.link.send(known.payload)
            return known.end_offset
        piece = self.feed.read(
            offset, session.broker_id, max_records=PUSH_RECORDS_MAX, max_bytes=PUSH_BYTES_MAX
        )
        payload = self._encoding_of(piece)
        if not piece.scoped:
            self._pushes.pop(offset, None)
            while len(self._pushes) >= _PUSHES_KEPT:
                del self._pushes[next(iter(self._pushes))]
            self._pushes[offset] = _Push(piece.end_offset, payload, piece.end_offset < self.feed.end_offset)
        session.link.send(payload)
        return piece.end_offset

    def _encoding_of(self, piece: FeedSlice) -> bytes:
        """Encode a slice, reusing the last encoding: brokers with restricted records often get the same ones in
        succession."""
        if self._encoded is None or self._encoded[0] != piece:
            message = FeedRecords(
                first_offset=piece.first_offset,
                end_offset=piece.end_offset,
                term=self._leader.term,
                records=piece.records,
                first_history=piece.first_history,
                end_history=piece.end_history,
            )
            self._encoded = piece, encode_session_message(message)
        return self._encoded[1]

    def close_all(self, reason: str) -> None:
        """Close all sessions, because this node stops."""
        for session in list(self._sessions):
            session.link.close(reason)


def _leader(term: int, leader_id: int) -> LeaderChanged:
    return LeaderChanged(
        term=term, leader_id=leader_id, knows_transactions=True, knows_app_versions=True, takes_pieces=True
    )
