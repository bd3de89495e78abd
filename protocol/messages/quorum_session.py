"""Session messages: what a broker and a quorum node send each other over their authenticated channel.

A payload is `u8 type | message`, the message at version 0; fields may be added with tags. Commands, their results and
metadata records travel as bytes, in the encodings of `quorum_commands` and `metadata_records`.
"""

from enum import IntEnum

from ..wire.codec import MalformedMessage, decode, encode_into
from ..wire.schema import Message, array, boolean, bytes_, data, int8, int32, int64, string, uuid
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
    """Outcome of a command that a broker has submitted to a quorum node."""

    #: applied, now or earlier; `result` contains the result
    APPLIED = 0
    #: not proposed: this node is not the active Raft leader
    NOT_LEADER = 1
    #: proposed, but leadership was lost before the outcome was known: the broker has to ask again under the same
    #: sequence
    UNKNOWN = 2
    #: not applied: a command with a lower sequence is missing
    OUT_OF_ORDER = 3
    #: refused for ever: the session's broker epoch is not the registered epoch
    STALE_SESSION = 4
    #: refused for ever: the command cannot be decoded, or names another broker
    INVALID = 5
    #: refused: the quorum is missing metadata that the broker has followed; sent only to brokers that report their
    #: position
    HISTORY_LOST = 6


@data()
class Subscribe(Message):
    """Request of a broker to a quorum node for all metadata records after an offset, present and future.

    The quorum node sends a snapshot first if its ring of recent records does not reach back to that offset.
    """

    metadata_offset: int = int64(about="Metadata offset of the broker's image.")
    hears_of_settled: bool = boolean(
        "0+",
        tag=0,
        about="Whether this broker understands TransactionsSettled; other brokers would end the session at that "
        "message.",
    )
    history: int = int64(
        "0+",
        tag=1,
        default=-1,
        about="Mark of the history from which the image was made, 0 unknown; -1 from a broker that does not "
        "understand HistoryCompared and would end the session at that message.",
    )
    asks: bool = boolean(
        "0+",
        tag=2,
        about="Whether to answer with HistoryCompared in any case, not only if this node is missing metadata.",
    )


@data()
class Unsubscribe(Message):
    """Request of a broker to a quorum node to send no further metadata records, since the broker follows another node
    now."""


@data()
class FeedSnapshotChunk(Message):
    """A part of a snapshot of the cluster image, sent by a quorum node: metadata records that rebuild the image as of
    the end offset."""

    end_offset: int = int64(about="Metadata offset of the image that all chunks together make.")
    first: bool = boolean(about="Whether the snapshot begins with this chunk.")
    last: bool = boolean(about="Whether the snapshot ends with this chunk.")
    records: list[bytes] = array(bytes_, about="Encoded metadata records.")
    history: int = int64("0+", tag=0, about="Mark of the history up to the end offset; 0 unknown.")


@data()
class FeedRecords(Message):
    """Metadata records after the first offset, sent by a quorum node. Records for other brokers are left out, but
    counted."""

    first_offset: int = int64(about="Metadata offset that the broker's image must have.")
    end_offset: int = int64(about="Metadata offset of the image after these records.")
    term: int = int64(about="Raft term of the leader that this node knows.")
    records: list[bytes] = array(bytes_, about="Encoded metadata records.")
    first_history: int = int64(
        "0+",
        tag=0,
        about="Mark of the history up to the first offset, 0 unknown. An image with another mark must not be "
        "continued.",
    )
    end_history: int = int64("0+", tag=1, about="Mark of the history up to the end offset; 0 unknown.")


@data()
class LeaderChanged(Message):
    """Notice of a quorum node about the quorum's leader. A node names itself only when it is active, that is, takes
    commands."""

    term: int = int64(about="Raft term.")
    leader_id: int = int32(default=-1, about="Node id of the leader; -1 while unknown.")
    knows_transactions: bool = boolean(
        "0+",
        tag=0,
        about="Whether this node answers a TransactionQuestion. A node without this flag would end the session at "
        "such a question.",
    )
    knows_app_versions: bool = boolean(
        "0+", tag=1, about="Whether this node also answers AskAppVersions, which was added later."
    )
    takes_pieces: bool = boolean(
        "0+",
        tag=2,
        about="Whether a broker may report the ends of its logs in several heartbeats. A node without this flag would"
        " take the first heartbeat for the whole report.",
    )


@data()
class SubmitCommand(Message):
    """Request of a broker to append a command to the quorum's log."""

    sequence: int = int64(
        about="Sequence of the command; rises by one per command of a session; 0 outside of any session."
    )
    acknowledged_sequence: int = int64(
        about="Sequence up to which results have arrived and need not be kept."
    )
    command: bytes = bytes_(about="The encoded command.")
    reached_offset: int = int64(
        "0+",
        tag=0,
        default=-1,
        about="With a registration: metadata offset that the broker has followed, in this process or an earlier one; "
        "-1 if not reported.",
    )
    reached_history: int = int64("0+", tag=1, about="Mark of the history up to that offset; 0 unknown.")
    principal: str = string(
        "0+", tag=2, about="Principal that asked for the command, like User:ann; empty if no client did."
    )
    host: str = string("0+", tag=3, about="Address that the principal connected from.")


@data()
class HistoryCompared(Message):
    """Answer of the quorum whether its history contains the metadata that the broker has followed.

    It comes from a node that a majority confirmed as leader after the question.
    """

    term: int = int64(about="Raft term of the node.")
    end_offset: int = int64(about="Metadata offset at which the node's history ends.")
    stands: bool = boolean(
        about="Whether the history contains it; false: the quorum has lost metadata that the broker has followed."
    )


@data()
class CommandReply(Message):
    """Outcome of a submitted command, sent by a quorum node."""

    sequence: int = int64(about="Sequence of the command, as submitted.")
    status: int = int8(about="Outcome, a CommandStatus.")
    leader_id: int = int32(default=-1, about="Node id of the leader; -1 if unknown.")
    metadata_offset: int = int64(
        default=-1, about="Metadata offset at which an image has the command's effects."
    )
    result: bytes = bytes_(about="Encoded result of the command; empty if it was not applied.")


@data()
class PartitionProgress(Message):
    """End of the sending broker's log of one partition, in a heartbeat."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="Leader epoch of the last record.")
    log_end_offset: int = int64(about="Log end offset: the next offset to be written.")


@data()
class SessionHeartbeat(Message):
    """Heartbeat of a broker over TCP: its metadata offset, the ends of its logs, and its requests to be unfenced or to
    stop."""

    broker_epoch: int = int64(default=-1, about="Epoch of the broker's registration; -1 before registration.")
    metadata_offset: int = int64(about="Metadata offset of the broker's image.")
    loop_age_ms: int = int32(about="Time since the broker's event loop last ran, in ms.")
    heartbeat_port: int = int32(about="UDP port that answers probes.")
    wants_unfence: bool = boolean(about="Whether the broker is ready to serve.")
    wants_shutdown: bool = boolean(about="Whether the broker waits until its leaderships are moved.")
    progress: list[PartitionProgress] = array(
        PartitionProgress,
        about="Ends of the logs that grew since the last heartbeat; sent to the leader only.",
    )
    question: int = int64(
        "0+",
        tag=0,
        default=0,
        about="If not 0, number of a QuorumStatus to answer with. A tagged field, so that a node that does not know "
        "it skips it.",
    )
    number: int = int64(
        "0+",
        tag=1,
        default=0,
        about="If not 0, number of the HeartbeatAnswer that an active leader sends. Heartbeats over UDP count in the "
        "same sequence.",
    )
    answered: int = int64(
        "0+",
        tag=2,
        default=-1,
        about="Highest number that this node has answered, over TCP or UDP, as far as the broker received it; 0 for "
        "none; -1 from a broker that does not report it.",
    )
    told_offset: int = int64(
        "0+",
        tag=3,
        default=-1,
        about="Metadata offset of the image as of which the broker, with this heartbeat, has reported the ends of all"
        " its logs; 0 if it has not reported all yet. -1 from a broker that reports all ends at once, as of "
        "metadata_offset.",
    )
    wall_ms: int = int64(
        "0+",
        tag=4,
        default=-1,
        about="Time of day of the broker when it sent this, in ms since 1970; -1 from a broker that does not report "
        "it.",
    )
    reports_contacts: bool = boolean(
        "0+",
        tag=5,
        about="Whether this broker answers AskContacts; other brokers would end the session at that message.",
    )


@data()
class HeartbeatAnswer(Message):
    """Confirmation of the active leader that it received the registered broker's heartbeat of this number."""

    number: int = int64(about="Number of the heartbeat.")


@data()
class ShutdownAllowed(Message):
    """Permission of the quorum's leader for a broker to stop: the broker no longer leads any partition, and the other
    brokers know it."""


@data()
class SettledTransaction(Message):
    """A transaction of a transactional id, by its number."""

    transactional_id: str = string(about="Transactional id.")
    number: int = int32(about="Number of the transaction.")


@data()
class TransactionsSettled(Message):
    """Notice of the quorum that transactions are decided and have all their markers below high watermarks.

    The quorum's leader knows it from the partitions' leaders; the metadata records of it follow later.
    """

    transactions: list[SettledTransaction] = array(
        SettledTransaction, about="Transactions whose client last spoke through this broker."
    )


@data()
class ReplicaStanding(Message):
    """Position of a quorum node or broker in the metadata log, as the quorum's leader knows it. The leader knows a
    voter's position only since it took over."""

    node_id: int = int32(about="Id of a quorum node or a broker.")
    log_end_offset: int = int64(
        default=-1, about="Raft index after the last entry that the node has; -1 unknown."
    )
    heard_at: int = int64(
        default=-1, about="Time at which the leader last heard from the node, in ms since 1970; -1 never."
    )
    caught_up_at: int = int64(
        default=-1,
        about="Time at which the node last had everything that the leader had, in ms since 1970; -1 unknown.",
    )
    abstains: bool = boolean(
        "0+",
        tag=0,
        about="Whether the node is a voter that does not vote before it has all committed entries.",
    )


@data()
class QuorumStatus(Message):
    """Positions of all nodes, from the quorum. Only the active leader sends it, and only when asked."""

    question: int = int64(about="Number of the question in the heartbeat that asked.")
    leader_id: int = int32(about="Node id of the sender.")
    term: int = int64(about="Raft term of the sender.")
    high_watermark: int = int64(about="Raft index after the last committed entry.")
    voters: list[ReplicaStanding] = array(ReplicaStanding, about="Quorum nodes, the leader included.")
    observers: list[ReplicaStanding] = array(
        ReplicaStanding, about="Brokers that the leader heard from lately."
    )


@data()
class AskContacts(Message):
    """Question of the quorum's leader to a broker when it last received something from brokers whose heartbeats are
    missing."""

    question: int = int64(about="Number of the question.")
    broker_ids: list[int] = array(int32, about="Ids of the silent brokers.")


@data()
class BrokerContact(Message):
    """The time since a broker last received something from another broker."""

    broker_id: int = int32(about="Id of the other broker.")
    age_ms: int = int64(
        default=-1, about="Time since the last bytes from it, in ms; -1 if nothing has arrived from it."
    )


@data()
class ContactsReported(Message):
    """Answer of a broker to AskContacts."""

    question: int = int64(about="Number of the question.")
    contacts: list[BrokerContact] = array(BrokerContact, about="A contact for each broker of the question.")


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
    | AskContacts
    | ContactsReported
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
    22: AskContacts,
    23: ContactsReported,
}
_NUMBERS = {cls: number for number, cls in _TYPES.items()}


def encode_session_message(message: SessionMessage) -> bytes:
    """Encode a session message as one payload for the channel between broker and quorum node."""
    out = bytearray((_NUMBERS[type(message)],))
    encode_into(message, 0, out)
    return bytes(out)


def decode_session_message(payload: bytes) -> SessionMessage:
    """Decode one payload of the channel between broker and quorum node. Raises MalformedMessage for anything that is
    not one whole session message."""
    cls = _TYPES.get(payload[0]) if payload else None
    if cls is None:
        raise MalformedMessage(f"unknown session message type {payload[:1].hex() or 'of an empty payload'}")
    return decode(cls, payload, 0, 1)
