"""What a broker and a quorum node say to each other over their authenticated channel.

A payload is `u8 type | message`, the message at version 0; fields may be added with tags. Commands, their
results and metadata records travel as bytes, in the encodings of `quorum_commands` and `metadata_records`.
"""

from enum import IntEnum

from ..codec import MalformedMessage, decode, encode_into
from ..schema import Message, array, boolean, bytes_, data, int8, int32, int64, string, uuid
from .app_version_questions import AppVersionsTold, AskAppVersions
from .transaction_questions import (
    AskCut,
    AskTransactionIds,
    AskTransactions,
    CutTold,
    TransactionIdsTold,
    TransactionsTold,
)


class CommandStatus(IntEnum):
    """What became of a submitted command."""

    #: applied, now or earlier; `result` says how
    APPLIED = 0
    #: not proposed: this node is not the active Raft leader
    NOT_LEADER = 1
    #: proposed, and leadership was lost before the outcome was known: ask again under the same sequence
    UNKNOWN = 2
    #: not applied: a command with a lower sequence is missing
    OUT_OF_ORDER = 3
    #: refused for ever: the session's broker epoch is not the registered one
    STALE_SESSION = 4
    #: refused for ever: it does not parse, or speaks for another broker
    INVALID = 5
    #: refused: the quorum lacks metadata that the broker has followed. Said to whoever told how much that is
    HISTORY_LOST = 6


@data()
class Subscribe(Message):
    """Broker: push me all records from here on, and a snapshot first if the ring does not reach back that
    far.
    """

    metadata_offset: int = int64(about="Where the broker's image stands.")
    hears_of_settled: bool = boolean(
        "0+",
        tag=0,
        about="Whether this broker takes TransactionsSettled; others would end the session at it.",
    )
    history: int = int64(
        "0+",
        tag=1,
        default=-1,
        about="Mark of the history that the image was made by, 0 unknown. -1 from a broker that does not take "
        "HistoryCompared; others would end the session at it.",
    )
    asks: bool = boolean(
        "0+", tag=2, about="Answer with HistoryCompared in any case, not only when this node lacks something."
    )


@data()
class Unsubscribe(Message):
    """Broker: push nothing more; I follow another node."""


@data()
class FeedSnapshotChunk(Message):
    """Quorum: a part of the records that rebuild the image as it was at the end offset."""

    end_offset: int = int64(about="Metadata offset of the image that all chunks together make.")
    first: bool = boolean(about="Whether the snapshot begins with this chunk.")
    last: bool = boolean(about="Whether it is complete with this chunk.")
    records: list[bytes] = array(bytes_, about="Encoded metadata records.")
    history: int = int64("0+", tag=0, about="Mark of the history up to the end offset; 0 unknown.")


@data()
class FeedRecords(Message):
    """Quorum: what follows the first offset. Records for other brokers are left out and still counted."""

    first_offset: int = int64(about="Where the broker's image has to stand.")
    end_offset: int = int64(about="Where it stands afterwards.")
    term: int = int64(about="Raft term of the leader as this node knows it.")
    records: list[bytes] = array(bytes_, about="Encoded metadata records.")
    first_history: int = int64(
        "0+",
        tag=0,
        about="Mark of the history up to the first offset, 0 unknown: an image of another must not be continued.",
    )
    end_history: int = int64("0+", tag=1, about="Mark of the history up to the end offset; 0 unknown.")


@data()
class LeaderChanged(Message):
    """Quorum: who leads. A node names itself only once it is active, that is, may take commands."""

    term: int = int64(about="Raft term.")
    leader_id: int = int32(default=-1, about="Node id, or -1 while unknown.")
    knows_transactions: bool = boolean(
        "0+",
        tag=0,
        about="Whether this node takes a TransactionQuestion. One that does not say so would end the session at it.",
    )
    knows_app_versions: bool = boolean(
        "0+", tag=1, about="Whether it takes AskAppVersions, too, which came later."
    )
    takes_pieces: bool = boolean(
        "0+",
        tag=2,
        about="Whether a broker may tell the ends of its logs in several heartbeats. One that does not say so would "
        "take the first of them for all.",
    )


@data()
class SubmitCommand(Message):
    """Broker: put this command into the log."""

    sequence: int = int64(about="Rises by one per command of a session; 0 for one outside of any session.")
    acknowledged_sequence: int = int64(about="The results up to here have arrived and need not be kept.")
    command: bytes = bytes_(about="The encoded command.")
    reached_offset: int = int64(
        "0+",
        tag=0,
        default=-1,
        about="With a registration: how far the broker, in this process or an earlier one, has followed the metadata; "
        "-1 does not tell.",
    )
    reached_history: int = int64("0+", tag=1, about="Mark of the history up to there; 0 unknown.")
    principal: str = string("0+", tag=2, about="Who asked for it, like User:ann; empty if nobody did.")
    host: str = string("0+", tag=3, about="The address that this principal came from.")


@data()
class HistoryCompared(Message):
    """Quorum: whether what the broker has followed is in this node's history. Said by a node that a majority has
    confirmed as leader after it was asked."""

    term: int = int64(about="Its Raft term.")
    end_offset: int = int64(about="Where its metadata ends.")
    stands: bool = boolean(about="False: the quorum has lost what the broker has followed.")


@data()
class CommandReply(Message):
    """Quorum: what became of a command."""

    sequence: int = int64(about="As submitted.")
    status: int = int8(about="A CommandStatus.")
    leader_id: int = int32(default=-1, about="Who leads, if known.")
    metadata_offset: int = int64(default=-1, about="The image has the command's effects at this offset.")
    result: bytes = bytes_(about="The command's encoded result, if applied.")


@data()
class PartitionProgress(Message):
    """How far the broker's log of one partition reaches."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="Leader epoch of the last record.")
    log_end_offset: int = int64(about="Next offset to be written.")


@data()
class SessionHeartbeat(Message):
    """Broker: a sign of life, over TCP."""

    broker_epoch: int = int64(default=-1, about="-1 before registration.")
    metadata_offset: int = int64(about="Where the broker's image stands.")
    loop_age_ms: int = int32(about="How long ago the event loop last turned.")
    heartbeat_port: int = int32(about="UDP port that answers probes.")
    wants_unfence: bool = boolean(about="The broker is ready to serve.")
    wants_shutdown: bool = boolean(about="The broker waits for its leaderships to be moved.")
    progress: list[PartitionProgress] = array(
        PartitionProgress, about="Logs that grew since the last heartbeat; sent to the leader only."
    )
    question: int = int64(
        "0+",
        tag=0,
        default=0,
        about="Not zero: answer with a QuorumStatus of this number. A tag, so that a node that does not know it "
        "passes it over.",
    )
    number: int = int64(
        "0+",
        tag=1,
        default=0,
        about="Not zero: an active leader answers with a HeartbeatAnswer of this number. It shares its numbers with "
        "the heartbeats over UDP.",
    )
    answered: int = int64(
        "0+",
        tag=2,
        default=-1,
        about="The highest number that this node was heard to answer, over TCP or UDP, 0 for none; -1 from a broker "
        "that does not tell.",
    )
    told_offset: int = int64(
        "0+",
        tag=3,
        default=-1,
        about="With this heartbeat the broker has told where all its logs end, as of its image at this offset; 0 if it "
        "has never told all. -1 from a broker that tells all at once: as of metadata_offset.",
    )
    wall_ms: int = int64(
        "0+",
        tag=4,
        default=-1,
        about="The broker's time of day when it sent this, in ms since 1970; -1 from a broker that does not tell.",
    )


@data()
class HeartbeatAnswer(Message):
    """Quorum: the active leader has heard the registered broker's heartbeat of this number."""

    number: int = int64(about="As in the heartbeat.")


@data()
class ShutdownAllowed(Message):
    """Quorum: the broker leads nothing any more, and the other brokers know it."""


@data()
class SettledTransaction(Message):
    """One transaction of a transactional id."""

    transactional_id: str = string(about="Whose.")
    number: int = int32(about="Which.")


@data()
class TransactionsSettled(Message):
    """Quorum: these are decided, and have all their markers, below high watermarks. The leader has it from the
    partitions' leaders; the records that say so follow."""

    transactions: list[SettledTransaction] = array(
        SettledTransaction, about="Those whose client spoke through this broker last."
    )


@data()
class ReplicaStanding(Message):
    """How far one node has come, as the leader knows it; for a voter since it leads."""

    node_id: int = int32(about="Quorum node or broker.")
    log_end_offset: int = int64(default=-1, about="Raft index behind the last entry that it has; -1 unknown.")
    heard_at: int = int64(default=-1, about="When the leader last heard from it, in ms since 1970; -1 never.")
    caught_up_at: int = int64(
        default=-1, about="When it last had all that the leader had, in ms since 1970; -1 unknown."
    )
    abstains: bool = boolean(
        "0+", tag=0, about="A voter that does not vote before it has all that is committed."
    )


@data()
class QuorumStatus(Message):
    """Quorum: how far everybody has come. Only the active leader says it, and only when asked."""

    question: int = int64(about="As in the heartbeat that asked.")
    leader_id: int = int32(about="The node that says it.")
    term: int = int64(about="Its Raft term.")
    high_watermark: int = int64(about="Raft index behind the last committed entry.")
    voters: list[ReplicaStanding] = array(ReplicaStanding, about="All quorum nodes, the leader too.")
    observers: list[ReplicaStanding] = array(ReplicaStanding, about="Brokers heard of lately.")


SessionMessage = (
    Subscribe
    | Unsubscribe
    | FeedSnapshotChunk
    | FeedRecords
    | LeaderChanged
    | SubmitCommand
    | CommandReply
    | SessionHeartbeat
    | HeartbeatAnswer
    | ShutdownAllowed
    | QuorumStatus
    | AskCut
    | CutTold
    | AskTransactions
    | TransactionsTold
    | AskTransactionIds
    | TransactionIdsTold
    | AskAppVersions
    | AppVersionsTold
    | TransactionsSettled
    | HistoryCompared
)

_TYPES: dict[int, type[SessionMessage]] = {
    1: Subscribe,
    2: Unsubscribe,
    3: FeedSnapshotChunk,
    4: FeedRecords,
    5: LeaderChanged,
    6: SubmitCommand,
    7: CommandReply,
    8: SessionHeartbeat,
    9: ShutdownAllowed,
    10: QuorumStatus,
    11: HeartbeatAnswer,
    12: AskCut,
    13: CutTold,
    14: AskTransactions,
    15: TransactionsTold,
    16: AskTransactionIds,
    17: TransactionIdsTold,
    18: TransactionsSettled,
    19: HistoryCompared,
    20: AskAppVersions,
    21: AppVersionsTold,
}
_NUMBERS = {cls: number for number, cls in _TYPES.items()}


def encode_session_message(message: SessionMessage) -> bytes:
    """One payload for the channel."""
    out = bytearray((_NUMBERS[type(message)],))
    encode_into(message, 0, out)
    return bytes(out)


def decode_session_message(payload: bytes) -> SessionMessage:
    """Raises MalformedMessage for anything that is not one whole session message."""
    cls = _TYPES.get(payload[0]) if payload else None
    if cls is None:
        raise MalformedMessage(f"unknown session message type {payload[:1].hex() or 'of an empty payload'}")
    return decode(cls, payload, 0, 1)
