"""The controller: a pure, total, deterministic state machine over encoded commands, which Raft replicates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...protocol.cluster.cluster_image import ClusterImage, ImageInconsistent, PartitionState
from ...protocol.cluster.partition_change import Change, PartitionChange, record_of
from ...protocol.cluster.transaction_table import Place
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.acl_commands import CreateAcls, DeleteAcls
from ...protocol.messages.broker_commands import (
    AllocateProducerIds,
    BeginControlledShutdown,
    FenceBroker,
    RegisterBroker,
    RegisterBrokerResult,
    UnfenceBroker,
    UnregisterBroker,
)
from ...protocol.messages.cluster_commands import DeclareRestored, FormCluster
from ...protocol.messages.command import Command, CommandResult, PlainResult
from ...protocol.messages.config_commands import AlterConfigs
from ...protocol.messages.failback_commands import FailBackMirror
from ...protocol.messages.metadata_records import (
    ClusterRecord,
    FeatureLevelRecord,
    Record,
    decode_record,
    encode_record,
)
from ...protocol.messages.mirror_commands import (
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
from ...protocol.messages.offline_replica_commands import (
    RenewReplicas,
    ReportOfflineReplicas,
    ReportWritability,
)
from ...protocol.messages.partition_commands import AlterPartition, ElectLastKnown, ElectLeaders
from ...protocol.messages.quorum_commands import (
    COMMANDS,
    Session,
    decode_command,
    encode_result,
    refused,
)
from ...protocol.messages.quorum_session import CommandStatus
from ...protocol.messages.quota_commands import AlterClientQuotas, UpdateFeatures
from ...protocol.messages.reassignment_commands import AlterPartitionReassignments
from ...protocol.messages.token_commands import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RemoveExpiredTokens,
    RenewDelegationToken,
)
from ...protocol.messages.topic_commands import CreatePartitions, CreateTopics, DeleteTopics
from ...protocol.messages.transaction_commands import (
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
from ...protocol.messages.user_commands import AlterScramCredentials
from ...protocol.wire.codec import MalformedMessage, decode, encode
from ...protocol.wire.schema import Message, bytes_, data, int32, int64
from . import (
    acls,
    brokers,
    configs,
    delegation_tokens,
    features,
    mirror_acls,
    mirror_cuts,
    mirror_failback,
    mirror_offsets,
    mirrors,
    offline_replicas,
    partitions,
    producer_ids,
    quotas,
    restoration,
    topics,
    transaction_decisions,
    transaction_markers,
    transactional_ids,
    users,
)
from .app_version_history import AppVersionHistory
from .history import History
from .refusal import message_of
from .sessions import CommandSession, SessionTable
from .snapshot import cut, joined
from .workspace import Scope, Workspace

SNAPSHOT_VERSION = 1
DECODED_MAX = 4096
"""Number of commands kept in decoded form: as many as a few brokers may have unanswered."""

OnChanges = Callable[[Sequence[tuple[Scope, Change]], int], None]
"""Callback for the changes of a command, with the history mark after that command."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of a command in the state machine. `result` is the encoded result, empty unless the command was
    applied, now or earlier."""

    status: CommandStatus
    metadata_offset: int
    result: bytes
    changes: tuple[tuple[Scope, Change], ...] = ()

    @property
    def records(self) -> tuple[tuple[Scope, Record], ...]:
        """The command's changes of the image as metadata records, which are created on each access."""
        return tuple([(scope, record_of(change)) for scope, change in self.changes])


RECOVERY_COMMANDS = (AlterScramCredentials, CreateAcls, DeleteAcls)
"""Commands that an operator with the cluster secret may send without any broker's session."""


@data()
class _Head(Message):
    version: int = int32(default=SNAPSHOT_VERSION, about="Version of this format.")
    offset: int = int64(about="Metadata offset of the snapshot.")
    history_mark: int = int64("0+", tag=0, about="History mark at the offset; 0 if unknown.")
    history_term: int = int64("0+", tag=1, default=-1, about="Raft term of the last command; -1 if unknown.")
    history_checksum: int = int64(
        "0+", tag=2, default=-1, about="Checksum of the commands of that term so far; -1 if unknown."
    )


@data()
class _KeptResult(Message):
    sequence: int = int64(about="Sequence number of the command.")
    metadata_offset: int = int64(about="Metadata offset after the command.")
    result: bytes = bytes_(about="Result of the command.")


@data()
class _SessionState(Message):
    broker_id: int = int32(about="Broker of the session.")
    broker_epoch: int = int64(about="Broker epoch of the registration.")
    last: int = int64(about="Last sequence applied.")
    kept: int = int32(about="Number of results that follow.")


class Controller:
    """The replicated state machine of the cluster's metadata. `apply` never raises on any bytes; the same commands give
    the same records on every node.

    `on_changes` receives each command's changes, in order, after they are in the image. Read `image` and `app_versions`
    again for each use, since restoring replaces the objects.
    """

    def __init__(
        self, on_changes: OnChanges | None = None, on_recovery: Callable[[Command[Any]], None] | None = None
    ) -> None:
        """`on_recovery` receives each command about users and ACLs that an operator sent without a broker."""
        self.image = ClusterImage()
        self.on_changes = on_changes
        self._on_recovery = on_recovery
        self._history = History()
        self._sessions = SessionTable()
        #: of this process only: it is in no snapshot, and no outcome depends on it
        self.app_versions = AppVersionHistory(self.image.transactions, self.image.offset)
        #: of this process only, too: commands that were decoded before they went into the log
        self._decoded: dict[bytes, tuple[Session | None, Command[Any]]] = {}

    @property
    def history(self) -> int:
        """History mark of the commands that made the image: a number that differs if other commands did."""
        return self._history.mark

    def keep_decoded(self, encoded: bytes, decoded: tuple[Session | None, Command[Any]]) -> None:
        """Keep the decoded form of a command that will be applied soon. The caller must not change it afterwards."""
        if len(self._decoded) >= DECODED_MAX:
            self._decoded.clear()  # they were never applied, because their leader lost its leadership
        self._decoded[encoded] = decoded

    def drop_decoded(self, encoded: bytes) -> None:
        """Drop the decoded form of a command that was not accepted or may never be committed."""
        self._decoded.pop(encoded, None)

    def apply(self, index: int, term: int, command: bytes) -> Applied:
        """Apply one committed command."""
        self._history.applied(term, command)
        applied = self._apply(command)
        if applied.changes:
            self._history.changed()
            for _, change in applied.changes:
                if not isinstance(change, PartitionChange):
                    self.app_versions.apply(change, self.image.offset)
            if self.on_changes is not None:
                self.on_changes(applied.changes, self._history.mark)
        return applied

    def _apply(self, encoded: bytes) -> Applied:
        try:
            decoded = self._decoded.pop(encoded, None)
            session, command = decode_command(encoded) if decoded is None else decoded
        except MalformedMessage:
            return Applied(CommandStatus.INVALID, self.image.offset, b"")
        if session is None:
            if self._on_recovery is not None and isinstance(command, RECOVERY_COMMANDS):
                self._on_recovery(command)
            return self._execute(command)
        found = self._sessions.find(session)
        if found is None:
            return Applied(CommandStatus.STALE_SESSION, self.image.offset, b"")
        if session.sequence <= found.last:
            return self._repeated(found, session)
        if session.sequence != found.last + 1:
            return Applied(CommandStatus.OUT_OF_ORDER, self.image.offset, b"")
        applied = self._execute(command)
        found.last = session.sequence
        found.keep(session.sequence, (applied.metadata_offset, applied.result))
        return applied

    def _repeated(self, found: CommandSession, session: Session) -> Applied:
        kept = found.kept.get(session.sequence)
        if kept is None:
            return Applied(CommandStatus.INVALID, self.image.offset, b"")
        return Applied(CommandStatus.APPLIED, *kept)

    def _execute(self, command: Command[Any]) -> Applied:
        work = Workspace(self.image, _partition_changed)
        try:
            result = _COMMANDS[type(command)](work, command)
        except KafkaError as error:
            result = refused(command, error.code, message_of(error))
        if isinstance(result, RegisterBrokerResult) and result.error_code == ErrorCode.NONE:
            assert isinstance(command, RegisterBroker)
            self._sessions.begin(command.broker_id, result.broker_epoch)
        elif isinstance(command, UnregisterBroker) and command.broker_id not in self.image.brokers:
            self._sessions.end(command.broker_id)
        return Applied(CommandStatus.APPLIED, self.image.offset, encode_result(result), tuple(work.changes))

    def check(self) -> None:
        """Raise AssertionError if image and sessions contradict themselves or each other."""
        self.image.check()
        for broker_id, session in self._sessions.sessions.items():
            broker = self.image.brokers.get(broker_id)
            if broker is None or broker.broker_epoch != session.broker_epoch:
                raise AssertionError(
                    f"broker {broker_id} has a session of epoch {session.broker_epoch}: {broker}"
                )
            session.check(self.image.offset)

    def snapshot(self) -> Iterator[bytes]:
        """Yield the whole state, in chunks of `CHUNK_BYTES`; nothing may be applied until the iterator is exhausted."""
        return cut(self._items())

    def _items(self) -> Iterator[bytes]:
        """Yield the items of a snapshot: a head, the metadata records, an empty item, and each command session followed
        by its kept results."""
        history = self._history
        head = _Head(
            offset=self.image.offset,
            history_mark=history.mark,
            history_term=history.term,
            history_checksum=-1 if history.checksum is None else history.checksum,
        )
        yield encode(head, 0)
        for record in self.image.records():
            yield encode_record(record)
        yield b""
        for broker_id, session in sorted(self._sessions.sessions.items()):
            state = _SessionState(
                broker_id=broker_id,
                broker_epoch=session.broker_epoch,
                last=session.last,
                kept=len(session.kept),
            )
            yield encode(state, 0)
            for sequence, (offset, result) in session.kept.items():
                yield encode(_KeptResult(sequence=sequence, metadata_offset=offset, result=result), 0)

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the state by a state from `snapshot`. Raises MalformedMessage or ImageInconsistent."""
        items = joined(chunks)
        head = decode(_Head, next(items, b""), 0)
        if head.version != SNAPSHOT_VERSION:
            raise ImageInconsistent(f"snapshot version {head.version}: this is version {SNAPSHOT_VERSION}")
        image, table = ClusterImage(), SessionTable()
        for item in items:
            if not item:
                break
            image.apply(decode_record(item))
        else:
            raise ImageInconsistent(f"a snapshot ends within its records, after {image.offset}")
        for item in items:
            state = decode(_SessionState, item, 0)
            session = table.sessions[state.broker_id] = CommandSession(state.broker_epoch, state.last)
            for kept_item in islice(items, state.kept):
                kept = decode(_KeptResult, kept_item, 0)
                session.keep(kept.sequence, (kept.metadata_offset, kept.result))
        image.offset = head.offset
        checksum = None if head.history_checksum < 0 else head.history_checksum
        self._history = History(head.history_term, checksum, head.history_mark)
        self.image, self._sessions = image, table
        self.app_versions = AppVersionHistory(image.transactions, image.offset)

    def adopt(self, other: Controller) -> None:
        """Take over the state of `other`, which is not used afterwards."""
        self.image, self._history, self._sessions = other.image, other._history, other._sessions
        self.app_versions = other.app_versions


def _partition_changed(
    work: Workspace, place: Place, before: PartitionState | None, after: PartitionState
) -> None:
    transaction_markers.partition_changed(work, place, before, after)
    mirror_cuts.partition_changed(work, place, before, after)


def _form(work: Workspace, command: FormCluster) -> PlainResult:
    present = work.image.cluster_id
    if not command.cluster_id or present not in ("", command.cluster_id):
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this cluster is {present!r}")
    if not present:
        work.emit(ClusterRecord(cluster_id=command.cluster_id))
        for initial in command.features:
            work.emit(FeatureLevelRecord(feature=initial.feature, level=initial.level))
        for credential in command.credentials:
            users.set_credential(work, credential)
    return PlainResult()


_COMMANDS: dict[type[Command[Any]], Callable[[Workspace, Any], CommandResult]] = {
    RegisterBroker: brokers.register,
    UnfenceBroker: brokers.unfence,
    FenceBroker: brokers.fence,
    BeginControlledShutdown: brokers.begin_controlled_shutdown,
    UnregisterBroker: brokers.unregister,
    CreateTopics: topics.create_topics,
    DeleteTopics: topics.delete_topics,
    CreatePartitions: topics.create_partitions,
    AlterPartition: partitions.alter_partition,
    AlterConfigs: configs.alter_configs,
    AllocateProducerIds: producer_ids.allocate,
    ElectLeaders: partitions.elect_leaders,
    ElectLastKnown: partitions.elect_last_known,
    FormCluster: _form,
    AlterPartitionReassignments: partitions.alter_reassignments,
    ReportOfflineReplicas: offline_replicas.report,
    RenewReplicas: offline_replicas.renew,
    ReportWritability: offline_replicas.report_writability,
    AlterClientQuotas: quotas.alter_client_quotas,
    UpdateFeatures: features.update_features,
    InitTransactionalId: transaction_decisions.init,
    AddToTransaction: transaction_decisions.add,
    EndTransaction: transaction_decisions.end,
    JoinTransaction: transaction_decisions.join,
    ReportMarkers: transaction_markers.report,
    ExpireTransactions: transaction_decisions.expire,
    ForgetTransactionalIds: transactional_ids.forget,
    AbortTransaction: transaction_decisions.abort,
    VerifyTransaction: transaction_decisions.verify,
    DeleteTransactionalId: transactional_ids.delete,
    FindOrBegin: transaction_decisions.find_or_begin,
    DeclareRestored: restoration.declare,
    CreateAcls: acls.create_acls,
    DeleteAcls: acls.delete_acls,
    AlterScramCredentials: users.alter_scram_credentials,
    CreateDelegationToken: delegation_tokens.create,
    RenewDelegationToken: delegation_tokens.renew,
    ExpireDelegationToken: delegation_tokens.expire,
    RemoveExpiredTokens: delegation_tokens.remove_expired,
    CreateMirror: mirrors.create,
    AlterMirror: mirrors.alter,
    DeleteMirror: mirrors.delete,
    FollowTopics: mirrors.follow,
    ReportMirrorPartitions: mirrors.report,
    AcceptMirrorFaults: mirrors.accept,
    ReconnectMirror: mirrors.reconnect,
    AnnounceMirrorCut: mirror_cuts.announce,
    ReportMirrorCuts: mirror_cuts.report,
    PromoteMirrorAtCut: mirrors.promote_at_cut,
    FailBackMirror: mirror_failback.fail_back,
    LimitMirror: mirrors.limit,
    FollowAcls: mirror_acls.follow,
    TellMirrorOffsets: mirror_offsets.tell,
    ReportOffsetsTaken: mirror_offsets.taken,
}

if left := set(COMMANDS.values()) ^ set(_COMMANDS):
    raise TypeError(f"the controller's table and the list of commands differ: {left}")
