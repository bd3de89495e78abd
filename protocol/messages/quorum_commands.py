"""Numbers and encoding of the commands to the controller, and of their results.

An encoded command is `u8 type | envelope | command`. The envelope names the session that the command belongs to, or
none (commands of the Raft leader itself, and registrations). Within a session, (broker id, broker epoch), sequences
rise by one from 1, and each command is applied exactly once.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ..errors import ErrorCode
from ..wire.codec import MalformedMessage, decode, decode_from, encode, encode_into
from ..wire.schema import Message, data, int32, int64
from .acl_commands import CreateAcls, DeleteAcls
from .broker_commands import (
    AllocateProducerIds,
    BeginControlledShutdown,
    FenceBroker,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from .cluster_commands import DeclareRestored, FormCluster
from .command import Command, CommandResult, ResultT, result_type
from .config_commands import AlterConfigs
from .failback_commands import FailBackMirror
from .mirror_commands import (
    AcceptMirrorFaults,
    AlterMirror,
    AnnounceMirrorCut,
    CreateMirror,
    DeleteMirror,
    FollowAcls,
    FollowTopics,
    LimitMirror,
    PromoteMirrorAtCut,
    ReconnectMirror,
    ReportMirrorCuts,
    ReportMirrorPartitions,
    ReportOffsetsTaken,
    TellMirrorOffsets,
)
from .offline_replica_commands import RenewReplicas, ReportOfflineReplicas, ReportWritability
from .partition_commands import (
    AlterPartition,
    ElectLastKnown,
    ElectLeaders,
)
from .quota_commands import AlterClientQuotas, UpdateFeatures
from .reassignment_commands import AlterPartitionReassignments
from .token_commands import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RemoveExpiredTokens,
    RenewDelegationToken,
)
from .topic_commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
)
from .transaction_commands import (
    AbortTransaction,
    AddToTransaction,
    DeleteTransactionalId,
    EndTransaction,
    ExpireTransactions,
    FindOrBegin,
    ForgetTransactionalIds,
    InitTransactionalId,
    JoinTransaction,
    ReportMarkers,
    VerifyTransaction,
)
from .user_commands import AlterScramCredentials

COMMANDS: Final[dict[int, type[Command[Any]]]] = {
    1: RegisterBroker,
    2: UnfenceBroker,
    3: FenceBroker,
    4: BeginControlledShutdown,
    5: UnregisterBroker,
    6: CreateTopics,
    7: DeleteTopics,
    8: CreatePartitions,
    9: AlterPartition,
    10: AlterConfigs,
    11: AllocateProducerIds,
    12: ElectLeaders,
    13: FormCluster,
    14: AlterPartitionReassignments,
    18: ReportOfflineReplicas,
    20: AlterClientQuotas,
    21: UpdateFeatures,
    22: RenewReplicas,
    23: ElectLastKnown,
    24: InitTransactionalId,
    25: AddToTransaction,
    26: EndTransaction,
    27: JoinTransaction,
    28: ReportMarkers,
    29: ExpireTransactions,
    30: ForgetTransactionalIds,
    31: AbortTransaction,
    32: VerifyTransaction,
    33: DeleteTransactionalId,
    34: FindOrBegin,
    35: DeclareRestored,
    36: CreateAcls,
    37: DeleteAcls,
    38: AlterScramCredentials,
    39: CreateDelegationToken,
    40: RenewDelegationToken,
    41: ExpireDelegationToken,
    42: RemoveExpiredTokens,
    43: CreateMirror,
    44: AlterMirror,
    45: DeleteMirror,
    46: FollowTopics,
    47: ReportMirrorPartitions,
    48: AcceptMirrorFaults,
    49: ReconnectMirror,
    50: AnnounceMirrorCut,
    51: ReportMirrorCuts,
    52: PromoteMirrorAtCut,
    56: FailBackMirror,
    57: LimitMirror,
    58: FollowAcls,
    59: TellMirrorOffsets,
    60: ReportOffsetsTaken,
    61: ReportWritability,
}
"""Every command by the number that begins its encoding.

Journals and snapshots contain these numbers. So a command keeps its number for ever, and the number of a removed
command is never given to another one (15-17 and 19).
"""
_NUMBERS: Final = {command: number for number, command in COMMANDS.items()}
_RESULTS: Final = {command: result_type(command) for command in COMMANDS.values()}


class Session(NamedTuple):
    """The command session of a broker's registration that a command belongs to, and the command's sequence number in
    it. `acknowledged`: results up to this sequence have arrived and need not be kept."""

    broker_id: int
    broker_epoch: int
    sequence: int
    acknowledged: int = 0


@data()
class _Envelope(Message):
    broker_id: int = int32(default=-1, about="Broker id; -1: outside of any session.")
    broker_epoch: int = int64(default=-1, about="Epoch of the session's registration.")
    sequence: int = int64(about="Sequence of the command in its session; rises by one from 1.")
    acknowledged: int = int64(about="Sequence up to which results need not be kept.")


def encode_command(session: Session | tuple[int, int, int] | None, command: Command[Any]) -> bytes:
    """Encode one command for the quorum's log, with the command session that it belongs to; None for a command without
    one."""
    envelope = _Envelope()
    if session is not None:
        whose = Session(*session)
        envelope.broker_id, envelope.broker_epoch = whose.broker_id, whose.broker_epoch
        envelope.sequence, envelope.acknowledged = whose.sequence, whose.acknowledged
    out = bytearray((_NUMBERS[type(command)],))
    encode_into(envelope, 0, out)
    encode_into(command, 0, out)
    return bytes(out)


def decode_command(encoded: bytes) -> tuple[Session | None, Command[Any]]:
    """Decode one command. Raises MalformedMessage for anything that is not one whole command."""
    if not encoded or encoded[0] not in COMMANDS:
        raise MalformedMessage(f"unknown command type {encoded[:1].hex() or '(empty)'}")
    envelope, position = decode_from(_Envelope, encoded, 0, 1)
    command, end = decode_from(COMMANDS[encoded[0]], encoded, 0, position)
    if end != len(encoded):
        raise MalformedMessage(f"{len(encoded) - end} bytes follow the {type(command).__name__} command")
    return _session(envelope), command


def _session(envelope: _Envelope) -> Session | None:
    if envelope.broker_id < 0:
        return None
    return Session(envelope.broker_id, envelope.broker_epoch, envelope.sequence, envelope.acknowledged)


def encode_result(result: CommandResult) -> bytes:
    """Encode a command's result for the reply to its broker."""
    return encode(result, 0)


def decode_result(command: Command[ResultT], encoded: bytes) -> ResultT:
    """Decode the result of this command, which may be a refusal. Raises MalformedMessage."""
    expected: type[ResultT] = _RESULTS[type(command)]
    return decode(expected, encoded, 0)


def refused(command: Command[ResultT], code: ErrorCode, message: str) -> ResultT:
    """Return the result by which the quorum refuses the whole command."""
    result: ResultT = _RESULTS[type(command)](error_code=code, error_message=message)
    return result
