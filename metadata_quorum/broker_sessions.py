"""The brokers' TCP sessions on this node: each follows the feed at its own pace.

A session is pushed what it lacks whenever something was applied and whenever its send buffer has drained;
what it is owed waits in the ring, never in a buffer of its own. Every node serves the feed; commands are
passed to `SessionEvents` whoever leads, which answers NOT_LEADER where that is the case.
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
    CommandReply,
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
"""A broker folds a push, and acts upon it, in one turn of its loop: some 9 microseconds for each record. This node
encodes one in a turn, too: some 0.5 microseconds for each. New partitions of one topic are all in one, however many."""
PUSH_BYTES_MAX = 512 * 1024
_PUSHES_KEPT = 8
#: Encoding this many records takes around a millisecond, after which the loop gets its turn.
SNAPSHOT_RECORDS_PER_TURN = 200
COMMANDS_IN_FLIGHT_MAX = 1024
#: A broker has one session per incarnation; the old one's may linger while the new one opens.
SESSIONS_PER_BROKER_MAX = 4


@dataclass(frozen=True, slots=True)
class SessionEvents:
    """Who hears what brokers say."""

    heartbeat: Callable[["BrokerSession", SessionHeartbeat], None]
    """A sign of life."""
    asked: Callable[["BrokerSession", int], None]
    """The broker asks, by number, how far everybody has come."""
    asked_about_transactions: Callable[["BrokerSession", TransactionQuestion], None]
    """The broker asks what its own image does not tell."""
    asked_about_app_versions: Callable[["BrokerSession", AskAppVersions], None]
    """The same of application versions at a cut."""
    subscribed: Callable[["BrokerSession", Subscribe], None]
    """The broker goes on from where its image stands. It is told whether that is in this node's history if it asks."""
    submitted: Callable[["BrokerSession", SubmitCommand], None]
    """The broker submits a command. The answer goes to `BrokerSession.reply`."""
    ended: Callable[["BrokerSession"], None]
    """The connection is gone."""


class SnapshotSource:
    """Builds a snapshot of the image in slices, once for all who need one.

    A finished snapshot serves later comers too, as long as the ring continues from it.
    """

    def __init__(
        self, feed: MetadataFeed, image: Callable[[], ClusterImage], history: Callable[[], int] = lambda: 0
    ) -> None:
        """`history`: the mark of what has made the image."""
        self._feed = feed
        self._image = image
        self._history = history
        self._build: asyncio.Task[FeedSnapshot] | None = None

    async def get(self) -> FeedSnapshot:
        """A snapshot that the feed continues."""
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
    """One broker's session (the handler of its link)."""

    def __init__(self, link: NodeConnection, sessions: "BrokerSessions") -> None:
        self.link = link
        self.broker_id = link.peer.node_id
        self.incarnation = link.peer.directory_id
        #: the broker's IP address
        self.host = link.remote_host
        #: where the broker answers probes; 0 until its first heartbeat has told
        self.heartbeat_port = 0
        self.commands_in_flight = 0
        self.hears_of_settled = False
        self._sessions = sessions
        self._offset: int | None = None
        self._push_is_due = False
        self._snapshot: asyncio.Task[None] | None = None
        self._chunks: Iterator[FeedSnapshotChunk] | None = None

    def send(self, message: SessionMessage) -> None:
        """Sends one message; a link that is gone swallows it."""
        self.link.send(encode_session_message(message))

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
            case _:
                link.close(f"a broker does not send {type(message).__name__}")

    def reply(self, reply: CommandReply) -> None:
        """Answers one submitted command: along with the records of what it did, if they follow at once."""
        self.commands_in_flight -= 1
        self.link.send_along(encode_session_message(reply))

    def link_writable(self, link: NodeConnection) -> None:
        self.push()

    def link_closed(self, link: NodeConnection, reason: str) -> None:
        self._stop_snapshot()
        self._offset = None
        self._sessions.ended(self, reason)

    def push(self) -> None:
        """Sends what the broker lacks, as far as the link takes it, and one piece of the feed in each turn."""
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
    """Records for whoever stands where they begin; `is_full` if more followed when they were taken."""

    end_offset: int
    payload: bytes
    is_full: bool


class BrokerSessions:
    """All broker sessions of this node."""

    def __init__(
        self,
        feed: MetadataFeed,
        snapshots: SnapshotSource,
        events: SessionEvents,
        *,
        unacknowledged_ms_max: int,
    ) -> None:
        """`unacknowledged_ms_max`: a session ends when the broker's machine has acknowledged nothing for so long."""
        self.feed = feed
        self.snapshots = snapshots
        self.events = events
        self._unacknowledged_ms_max = unacknowledged_ms_max
        self._sessions: list[BrokerSession] = []
        self._leader = _leader(term=0, leader_id=-1)
        self._pushes: dict[int, _Push] = {}
        """The last ones, by the offset that they begin at: what all brokers are told is encoded once."""
        self._encoded: tuple[FeedSlice, bytes] | None = None
        """The newest slice of the feed that was encoded, and its bytes."""

    def accept(self, link: NodeConnection) -> BrokerSession | None:
        """A broker has proved itself on this link; None if it holds too many sessions already."""
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
        """The open session of this incarnation."""
        for session in self._sessions:
            if session.broker_id == broker_id and session.incarnation == incarnation:
                return session
        return None

    def ended(self, session: BrokerSession, reason: str) -> None:
        """Called by the session whose link is gone."""
        self._sessions.remove(session)
        logger.info("session of broker %d ended: %s", session.broker_id, reason)
        self.events.ended(session)

    def tell_settled(self, transactions: Iterable[TransactionMetadata], image: ClusterImage) -> None:
        """These have all their markers: their clients, and so the brokers they speak to, need not wait any longer."""
        by_broker: dict[int, list[SettledTransaction]] = {}
        for one in transactions:
            told = SettledTransaction(transactional_id=one.transactional_id, number=one.number)
            by_broker.setdefault(one.session[0], []).append(told)
        for broker_id, settled in by_broker.items():
            broker = image.brokers.get(broker_id)
            session = None if broker is None else self.of(broker_id, broker.incarnation)
            if session is not None and session.hears_of_settled:
                session.send(TransactionsSettled(transactions=settled))

    def announce(self, term: int, leader_id: int) -> None:
        """Tells every broker who leads (-1: nobody known); leadership of this node only once it is active."""
        if (term, leader_id) != (self._leader.term, self._leader.leader_id):
            self._pushes.clear()  # They name the term.
            self._leader = _leader(term, leader_id)
            self._encoded = None
            for session in list(self._sessions):
                session.send(self._leader)

    def push(self, first: frozenset[int] = frozenset()) -> None:
        """Something was applied. It goes to these brokers first, then to those that are told of an outcome with it:
        somebody waits there, and who is sent something may get the processor for it at once."""
        for session in sorted(
            self._sessions, key=lambda one: (one.broker_id not in first, not one.link.holds_something)
        ):
            session.push()

    def send_records(self, session: BrokerSession, offset: int) -> int:
        """One push to one session; the offset it has then. Sessions at the same offset share the encoding."""
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
        """Brokers that are told less than all are often told the same, one after the other."""
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
        """This node stops."""
        for session in list(self._sessions):
            session.link.close(reason)


def _leader(term: int, leader_id: int) -> LeaderChanged:
    return LeaderChanged(
        term=term, leader_id=leader_id, knows_transactions=True, knows_app_versions=True, takes_pieces=True
    )
