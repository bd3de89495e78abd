"""The audit of administrative changes by way of brokers: a second check of rights, and a log of each change's author.

Brokers check rights against their images, which may lag behind. Here the authoritative state decides about ACLs, users'
passwords, and new delegation tokens. A refused command still goes into the log, without its changes: its broker's
commands are numbered without gaps.

The broker reports the author, so a compromised broker can name any user.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from ..protocol.cluster.acl_rights import is_allowed
from ..protocol.cluster.acls import CLUSTER_NAME, Acl, AclOperation, AclResourceType
from ..protocol.cluster.authorizer_settings import AuthorizerSettings
from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.cluster.mirror_table import MirrorPhase
from ..protocol.cluster.partition_change import Change, record_of
from ..protocol.credentials.scram import SCRAM_MECHANISMS_BY_CODE
from ..protocol.messages.acl_commands import CreateAcls, DeleteAcls
from ..protocol.messages.command import Command
from ..protocol.messages.config_commands import AlterConfigs, ResourceType
from ..protocol.messages.failback_commands import FailBackMirror
from ..protocol.messages.metadata_records import (
    AclRecord,
    AclRemovedRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    DelegationTokenRemovedRecord,
    Record,
    ScramCredentialRecord,
)
from ..protocol.messages.mirror_commands import (
    AcceptMirrorFaults,
    AlterMirror,
    CreateMirror,
    DeleteMirror,
    LimitMirror,
    PromoteMirrorAtCut,
    ReconnectMirror,
)
from ..protocol.messages.mirror_records import MirrorOffsetsToldRecord, MirrorPartitionRecord
from ..protocol.messages.quorum_session import SubmitCommand
from ..protocol.messages.quota_commands import AlterClientQuotas
from ..protocol.messages.token_commands import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from ..protocol.messages.user_commands import AlterScramCredentials

logger = logging.getLogger(__name__)

_OF_ALTERING: Final = (CreateAcls, DeleteAcls, AlterScramCredentials)
_LOGGED: Final = (
    *_OF_ALTERING,
    CreateDelegationToken,
    RenewDelegationToken,
    ExpireDelegationToken,
    AlterConfigs,
    AlterClientQuotas,
    CreateMirror,
    AlterMirror,
    DeleteMirror,
    ReconnectMirror,
    AcceptMirrorFaults,
    PromoteMirrorAtCut,
    FailBackMirror,
    LimitMirror,
)
_DONE_TO_MIRRORS: Final = {
    MirrorPhase.ACTIVE: "resumed",
    MirrorPhase.PAUSED: "paused",
    MirrorPhase.PROMOTED: "promoted",
}
_NAMED_MAX: Final = 20
"""Number of changes of one command that are logged individually."""


class AdminAudit:
    """The leading node's check of the author's rights for each command that changes ACLs, passwords or tokens, and the
    log of administrative changes."""

    def __init__(self, settings: AuthorizerSettings | None, image: Callable[[], ClusterImage]) -> None:
        """Without `settings` there is no authorizer, and every principal may do everything."""
        self._settings = settings
        self._image = image

    def check(self, broker_id: int, message: SubmitCommand, command: Command[Any]) -> bool:
        """Return whether the authoritative ACLs permit the command to its author, the message's principal. If not, all
        changes are removed from the command, which is marked as denied."""
        if self._settings is None or self._may(self._settings, message, command):
            return True
        _take_out(command)
        logger.warning(
            "%s is denied to Principal = %s from host = %s, whom broker %d lets do it: its ACLs, or the super.users of "
            "its file, are not those of the quorum",
            type(command).__name__, message.principal or "(none)", message.host, broker_id,
        )  # fmt: skip
        return False

    def _may(self, settings: AuthorizerSettings, message: SubmitCommand, command: Command[Any]) -> bool:
        def has(operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
            acls = self._image().acls
            return is_allowed(acls, settings, message.principal, message.host, operation, resource_type, name)

        if isinstance(command, CreateDelegationToken):
            return command.requester == message.principal and (
                command.owner == message.principal
                or has(AclOperation.CREATE_TOKENS, AclResourceType.USER, command.owner)
            )
        if not isinstance(command, _OF_ALTERING) or _is_sealed_anew(command):
            return True
        return has(AclOperation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME)

    def applied(
        self,
        broker_id: int,
        message: SubmitCommand,
        command: Command[Any],
        changes: Sequence[tuple[object, Change]],
    ) -> None:
        """Log an applied command's changes of the cluster's metadata, with its author's principal and host and the
        broker that sent it."""
        if not isinstance(command, _LOGGED) or not logger.isEnabledFor(logging.INFO):
            return
        records = [record_of(change) for _, change in changes]
        texts = [*_change_texts(records), *_mirror_texts(command, records, self._image())] if records else []
        if texts:
            more = f" and {len(texts) - _NAMED_MAX} more" if len(texts) > _NAMED_MAX else ""
            logger.info(
                "Principal = %s from host = %s, by way of broker %d: %s%s",
                message.principal or "(none)", message.host, broker_id, "; ".join(texts[:_NAMED_MAX]), more,
            )  # fmt: skip


def _take_out(command: Command[Any]) -> None:
    """Mark the command as denied, and leave nothing in it that a node of any version would apply."""
    match command:
        case CreateAcls():
            command.is_denied, command.acls = True, []
        case DeleteAcls():
            command.is_denied, command.filters = True, []
        case AlterScramCredentials():
            command.is_denied, command.changes = True, []
        case CreateDelegationToken():
            # A token without an id is invalid, so a node that does not know the mark refuses it, too.
            command.is_denied, command.token_id = True, ""


def _is_sealed_anew(command: Command[Any]) -> bool:
    """Return whether a command only re-encrypts secrets with the new cluster secret, which brokers do by themselves."""
    return isinstance(command, AlterScramCredentials) and all(change.replaces for change in command.changes)


def _change_texts(records: Sequence[Record]) -> Iterator[str]:
    """Yield texts for changes, one for each resource. Values are left out, since some are secrets."""
    for record in records:
        match record:
            case AclRecord():
                yield f"created the ACL {Acl.of(record)}"
            case AclRemovedRecord():
                yield f"removed the ACL {Acl.of(record)}"
            case ScramCredentialRecord():
                what = "set" if record.sealed_keys else "deleted"
                mechanism = SCRAM_MECHANISMS_BY_CODE[record.mechanism].name
                yield f"{what} the {mechanism} credential of {record.name}"
            case DelegationTokenRecord():
                yield f"made or renewed the delegation token {record.token_id} of {record.owner}"
            case DelegationTokenRemovedRecord():
                yield f"removed the delegation token {record.token_id}"
            case ClientQuotaRecord():
                entity = ", ".join(
                    f"{part.entity_type} {part.entity_name or '(default)'}" for part in record.entity
                )
                yield f"changed the quotas of {entity}"
    configs = [record for record in records if isinstance(record, ConfigRecord)]
    for (kind, name), some in groupby(
        configs, key=lambda record: (record.resource_type, record.resource_name)
    ):
        yield _configured(kind, name, list(some))


def _mirror_texts(command: Command[Any], records: Sequence[Record], image: ClusterImage) -> Iterator[str]:
    """Yield texts for the effects of a command on a mirror.

    Its options are left out, since some are secrets. The image may already include later commands.
    """
    match command:
        case CreateMirror():
            groups = f" and groups {command.groups}" if command.groups else ""
            groups += ", with their ACLs" if command.acls else ""
            source = f"{command.bootstrap_servers} (cluster {command.source_cluster_id})"
            yield f"created the mirror {command.name} of {source}, topics {command.topics}{groups}"
        case FailBackMirror():
            source = f"{command.bootstrap_servers} (cluster {command.source_cluster_id})"
            names = ", ".join(_names(image, (topic.topic_id for topic in command.copies)))
            what = ", and what the source does not have is discarded" if command.discards else ""
            yield f"failed back to {source} by the mirror {command.name}: {names} are copies from now on{what}"
        case AlterMirror():
            yield f"{_DONE_TO_MIRRORS[MirrorPhase(command.phase)]} the mirror {command.name}"
        case PromoteMirrorAtCut():
            yield f"promoted the mirror {command.name} at a cut"
        case LimitMirror():
            limit = f"to {command.bandwidth} bytes/s for each broker" if command.bandwidth else "no more"
            yield f"limited the mirror {command.name} {limit}"
        case DeleteMirror():
            yield f"deleted the mirror {command.name}"
        case ReconnectMirror() if command.replaces is None:
            where = f" at {command.bootstrap_servers}" if command.bootstrap_servers else ""
            yield f"reconnected the mirror {command.name}: its source is reached{where} with other options"
        case AcceptMirrorFaults():
            for record in records:
                if isinstance(record, MirrorPartitionRecord):
                    (name,) = _names(image, (record.topic_id,))
                    place = f"{name}-{record.partition} goes on at {record.resumed_offset}"
                    yield f"accepted a fault of the mirror {command.mirror}: {place}"
                elif isinstance(record, MirrorOffsetsToldRecord):
                    what = f"partition {record.partition} of its copy of committed offsets is lost"
                    yield f"accepted a fault of the mirror {command.mirror}: {what}"


def _names(image: ClusterImage, topic_ids: Iterable[bytes]) -> Iterator[str]:
    for topic_id in topic_ids:
        topic = image.topics_by_id.get(topic_id)
        yield topic_id.hex() if topic is None else topic.name


def _configured(kind: int, name: str, records: Sequence[ConfigRecord]) -> str:
    resource = ResourceType(kind).name.lower().replace("_", " ")
    set_ = [record.config_name for record in records if record.value is not None]
    removed = [record.config_name for record in records if record.value is None]
    parts = [f"set {', '.join(set_)}"] if set_ else []
    parts += [f"removed {', '.join(removed)}"] if removed else []
    return f"{' and '.join(parts)} of {resource} {name or '(default)'}"
