"""ACL commands: creation, each ACL independently, and removal, all at once.

Brokers have checked their requests against their own images. This module checks them against the authoritative state.
"""

from __future__ import annotations

from ...protocol.cluster.acls import Acl, AclFilter, checked_acl, checked_filter
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.acl_commands import (
    AclEntry,
    AclFilterEntry,
    CreateAcls,
    CreateAclsResult,
    CreatedAcl,
    DeleteAcls,
    DeleteAclsResult,
    DeletedAcls,
)
from ...protocol.messages.metadata_records import AclRecord, AclRemovedRecord
from .features import check_security
from .refusal import check_allowed, message_of
from .workspace import Workspace

CHANGES_MAX = 10_000
"""Largest number of ACLs that a command creates or removes."""

_NAMED_CHARACTERS_MAX = 8 << 20
"""Limit for the total length of the texts of all ACLs in a result, which must fit a frame."""

_COMPARISONS_MAX = 2_000_000
"""Limit for comparisons of filters with ACLs, which delay all other commands. This many take about a second."""


def create_acls(work: Workspace, command: CreateAcls) -> CreateAclsResult:
    """Create each ACL of the command independently. An ACL that exists already counts as created and makes no
    record."""
    check_allowed(command)
    check_security(work, "ACLs need")
    if len(command.acls) > CHANGES_MAX:
        raise _too_many(f"{len(command.acls)} ACLs are to be created")
    results: list[CreatedAcl] = []
    for entry in command.acls:
        result = CreatedAcl()
        try:
            acl = checked_acl(Acl.of(entry))
            if acl not in work.image.acls:
                work.emit(AclRecord(**acl._asdict()))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
        results.append(result)
    return CreateAclsResult(results=results)


def delete_acls(work: Workspace, command: DeleteAcls) -> DeleteAclsResult:
    """Delete all ACLs that any filter matches, or none. An ACL that several filters match is in the result of each."""
    check_allowed(command)
    check_security(work, "ACLs need")
    results: list[DeletedAcls] = []
    removed: set[Acl] = set()
    comparisons = named_characters = 0
    for entry in command.filters:
        result = DeletedAcls()
        try:
            wanted = checked_filter(_filter_of(entry))
            if wanted.exact is None:
                comparisons += len(work.image.acls)
            if comparisons > _COMPARISONS_MAX:
                raise _too_many(f"{len(command.filters)} filters are to be compared with all ACLs")
            found = _find(work, wanted)
            removed.update(found)
            named_characters += sum(
                len(acl.resource_name) + len(acl.principal) + len(acl.host) for acl in found
            )
            if len(removed) > CHANGES_MAX or named_characters > _NAMED_CHARACTERS_MAX:
                raise _too_many("the filters find more ACLs")
            result.acls = [AclEntry(**acl._asdict()) for acl in found]
        except KafkaError as error:
            if error.code == ErrorCode.POLICY_VIOLATION:
                raise
            result.error_code, result.error_message = error.code, message_of(error)
        results.append(result)
    for acl in sorted(removed):
        work.emit(AclRemovedRecord(**acl._asdict()))
    return DeleteAclsResult(results=results)


def _find(work: Workspace, wanted: AclFilter) -> list[Acl]:
    exact = wanted.exact
    if exact is not None:
        return [exact] if exact in work.image.acls else []
    return sorted(filter(wanted.matches, work.image.acls))


def _filter_of(entry: AclFilterEntry) -> AclFilter:
    return AclFilter(
        entry.resource_type,
        entry.resource_name,
        entry.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )


def _too_many(what: str) -> KafkaError:
    return KafkaError(
        ErrorCode.POLICY_VIOLATION, f"{what}: one request may change {CHANGES_MAX} ACLs. Nothing was changed."
    )
