"""Commands to the controller and their results.

An encoded command is `u8 type | envelope | command`; the envelope names the session that it belongs to, or
none (the Raft leader's own commands and registrations). Within a session, (broker id, broker epoch),
sequences rise by one from 1, and each command is applied exactly once.
"""

from __future__ import annotations

from typing import NamedTuple

from ..codec import MalformedMessage, decode, decode_from, encode, encode_into
from ..schema import Message, data, int16, int32, int64, string
from .broker_commands import (
    AllocateProducerIds,
    AllocateProducerIdsResult,
    BeginControlledShutdown,
    ControlledShutdownResult,
    FenceBroker,
    RegisterBroker,
    RegisterBrokerResult,
    UnfenceBroker,
    UnregisterBroker,
)
from .config_commands import AlterConfigs, AlterConfigsResult
from .offline_replica_commands import RenewReplicas, RenewReplicasResult, ReportOfflineReplicas
from .partition_commands import (
    AlterPartition,
    AlterPartitionResult,
    ElectLastKnown,
    ElectLeaders,
    ElectLeadersResult,
)
from .quota_commands import AlterClientQuotas, AlterClientQuotasResult, UpdateFeatures, UpdateFeaturesResult
from .reassignment_commands import AlterPartitionReassignments, AlterPartitionReassignmentsResult
from .topic_commands import (
    CreatePartitions,
    CreatePartitionsResult,
    CreateTopics,
    CreateTopicsResult,
    DeleteTopics,
    DeleteTopicsResult,
)
from .transaction_commands import (
    AbortTransaction,
    AddToTransaction,
    AddToTransactionResult,
    DeleteTransactionalId,
    EndTransaction,
    EndTransactionResult,
    ExpireTransactions,
    FindOrBegin,
    FindOrBeginResult,
    ForgetTransactionalIds,
    InitTransactionalId,
    InitTransactionalIdResult,
    JoinTransaction,
    JoinTransactionResult,
    ReportMarkers,
    VerifyTransaction,
)


@data()
class CommandResult(Message):
    """The result of commands that have nothing to tell but how they went."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class FormCluster(Message):
    """Name the cluster, once."""

    cluster_id: str = string(about="Chosen once, for ever.")


@data()
class DeclareRestored(Message):
    """An operator has put the quorum back from copies: what it has known since they were made is lost."""


Command = (
    RegisterBroker
    | UnfenceBroker
    | FenceBroker
    | BeginControlledShutdown
    | UnregisterBroker
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterPartition
    | AlterConfigs
    | AllocateProducerIds
    | ElectLeaders
    | FormCluster
    | ReportOfflineReplicas
    | AlterClientQuotas
    | UpdateFeatures
    | AlterPartitionReassignments
    | RenewReplicas
    | ElectLastKnown
    | InitTransactionalId
    | AddToTransaction
    | EndTransaction
    | JoinTransaction
    | ReportMarkers
    | ExpireTransactions
    | ForgetTransactionalIds
    | AbortTransaction
    | VerifyTransaction
    | DeleteTransactionalId
    | FindOrBegin
    | DeclareRestored
)

_TYPES: dict[int, tuple[type[Command], type[Message]]] = {
    1: (RegisterBroker, RegisterBrokerResult),
    2: (UnfenceBroker, CommandResult),
    3: (FenceBroker, CommandResult),
    4: (BeginControlledShutdown, ControlledShutdownResult),
    5: (UnregisterBroker, CommandResult),
    6: (CreateTopics, CreateTopicsResult),
    7: (DeleteTopics, DeleteTopicsResult),
    8: (CreatePartitions, CreatePartitionsResult),
    9: (AlterPartition, AlterPartitionResult),
    10: (AlterConfigs, AlterConfigsResult),
    11: (AllocateProducerIds, AllocateProducerIdsResult),
    12: (ElectLeaders, ElectLeadersResult),
    13: (FormCluster, CommandResult),
    14: (AlterPartitionReassignments, AlterPartitionReassignmentsResult),
    18: (ReportOfflineReplicas, CommandResult),
    20: (AlterClientQuotas, AlterClientQuotasResult),
    21: (UpdateFeatures, UpdateFeaturesResult),
    22: (RenewReplicas, RenewReplicasResult),
    23: (ElectLastKnown, CommandResult),
    24: (InitTransactionalId, InitTransactionalIdResult),
    25: (AddToTransaction, AddToTransactionResult),
    26: (EndTransaction, EndTransactionResult),
    27: (JoinTransaction, JoinTransactionResult),
    28: (ReportMarkers, CommandResult),
    29: (ExpireTransactions, CommandResult),
    30: (ForgetTransactionalIds, CommandResult),
    31: (AbortTransaction, CommandResult),
    32: (VerifyTransaction, CommandResult),
    33: (DeleteTransactionalId, CommandResult),
    34: (FindOrBegin, FindOrBeginResult),
    35: (DeclareRestored, CommandResult),
}
_NUMBERS: dict[type[Message], int] = {cls: number for number, (cls, _) in _TYPES.items()}
_RESULTS: dict[type[Message], type[Message]] = dict(_TYPES.values())


class Session(NamedTuple):
    """Whose command it is. `acknowledged`: results up to this sequence have arrived and need not be kept."""

    broker_id: int
    broker_epoch: int
    sequence: int
    acknowledged: int = 0


@data()
class _Envelope(Message):
    broker_id: int = int32(default=-1, about="-1: outside of any session.")
    broker_epoch: int = int64(default=-1, about="The session's registration.")
    sequence: int = int64(about="Rises by one from 1.")
    acknowledged: int = int64(about="Results up to here need not be kept.")


def encode_command(session: Session | tuple[int, int, int] | None, command: Command) -> bytes:
    """One command as it goes into the log."""
    envelope = _Envelope()
    if session is not None:
        whose = Session(*session)
        envelope = _Envelope(**whose._asdict())
    out = bytearray((_NUMBERS[type(command)],))
    encode_into(envelope, 0, out)
    encode_into(command, 0, out)
    return bytes(out)


def decode_command(encoded: bytes) -> tuple[Session | None, Command]:
    """Raises MalformedMessage for anything that is not one whole command."""
    if not encoded or encoded[0] not in _TYPES:
        raise MalformedMessage(f"unknown command type {encoded[:1].hex() or '(empty)'}")
    envelope, position = decode_from(_Envelope, encoded, 0, 1)
    command, end = decode_from(_TYPES[encoded[0]][0], encoded, 0, position)
    if end != len(encoded):
        raise MalformedMessage(f"{len(encoded) - end} bytes follow the {type(command).__name__} command")
    return _session(envelope), command


def _session(envelope: _Envelope) -> Session | None:
    if envelope.broker_id < 0:
        return None
    return Session(envelope.broker_id, envelope.broker_epoch, envelope.sequence, envelope.acknowledged)


def encode_result(result: Message) -> bytes:
    """A result as it travels in a reply."""
    return encode(result, 0)


def result_type(command: Command) -> type[Message]:
    """The class of this command's results; all have an error code and message about the whole command."""
    return _RESULTS[type(command)]


def decode_result(command: Command, encoded: bytes) -> Message:
    """The result of this command. Raises MalformedMessage."""
    return decode(result_type(command), encoded, 0)
