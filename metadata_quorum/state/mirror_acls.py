"""ACLs copied by a mirror: it adds missing ACLs, and removes only ACLs that it has added itself."""

from __future__ import annotations

from typing import Final

from ...protocol.cluster.acls import Acl, checked_acl
from ...protocol.cluster.mirror_table import MirrorPhase
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import MIRROR, MIRROR_WITH_ACLS, finalized
from ...protocol.messages.command import PlainResult
from ...protocol.messages.metadata_records import AclRecord, AclRemovedRecord
from ...protocol.messages.mirror_commands import FollowAcls
from ...protocol.messages.mirror_records import MirrorAclRecord
from .features import check_security
from .known_mirrors import known_mirror, refused_for_mirror
from .workspace import Workspace

ACLS_MAX: Final = 10_000
"""Limit for the ACLs of one mirror."""


def checked(work: Workspace, copies_acls: bool) -> bool:
    """Return `copies_acls`, the option of a new mirror, after a check that all nodes support mirrors that copy ACLs.
    Raises KafkaError."""
    if copies_acls:
        check_security(work, "mirrors that copy ACLs need")
        if finalized(work.image.features)[MIRROR] < MIRROR_WITH_ACLS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"mirrors that copy ACLs need the feature {MIRROR} at level {MIRROR_WITH_ACLS}",
            )
    return copies_acls


def follow(work: Workspace, command: FollowAcls) -> PlainResult:
    """Create and remove a mirror's copied ACLs so that they equal the source's current ACLs. ACLs that this cluster
    cannot have are left out. Raises KafkaError."""
    mirror = known_mirror(work, command.mirror)
    check_security(work, "ACLs need")
    if mirror.phase is not MirrorPhase.ACTIVE or not mirror.copies_acls:
        raise refused_for_mirror(f"mirror {mirror.name!r} copies no ACLs now")
    if len(command.acls) > ACLS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the source has {len(command.acls)} ACLs, a mirror copies {ACLS_MAX} at most",
        )
    wanted = {acl for entry in command.acls if (acl := _checked(Acl.of(entry))) is not None}
    own = set(work.image.mirrors.acls.get(mirror.name, ()))
    for acl in sorted(own - wanted):
        if acl in work.image.acls:
            work.emit(AclRemovedRecord(**acl._asdict()))
        work.emit(MirrorAclRecord(mirror=mirror.name, is_copied=False, **acl._asdict()))
    for acl in sorted(wanted - work.image.acls):
        work.emit(AclRecord(**acl._asdict()))
        work.emit(MirrorAclRecord(mirror=mirror.name, is_copied=True, **acl._asdict()))
    return PlainResult()


def _checked(acl: Acl) -> Acl | None:
    try:
        return checked_acl(acl)
    except KafkaError:
        return None
