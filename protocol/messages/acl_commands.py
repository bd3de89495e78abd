"""Commands to the controller about ACLs. Numeric codes (resource types, pattern types, operations, permissions) are
listed in `protocol/cluster/acls.py`."""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int8, int16, string
from .command import Command, CommandResult


@data()
class AclEntry(Message):
    """An ACL: the permission of a principal, from a host, for an operation on the resources of a pattern."""

    resource_type: int = int8(about="Type of the protected resources.")
    resource_name: str = string(about="Name of the resource pattern.")
    pattern_type: int = int8(about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Principal that the ACL applies to, like User:ann.")
    host: str = string(
        about="Client host that the ACL applies to: *, an address, or a network in CIDR notation."
    )
    operation: int = int8(about="Operation that is allowed or denied.")
    permission: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class AclFilterEntry(Message):
    """A filter that selects ACLs by resource pattern, principal, host, operation and permission."""

    resource_type: int = int8(about="Resource type; 1 for all.")
    resource_name: str | None = string(
        nullable="0+", default=None, about="Name of the resource pattern; null for all."
    )
    pattern_type: int = int8(
        about="Pattern type; 1 for all, 2 for the patterns that cover a resource of this name."
    )
    principal: str | None = string(nullable="0+", default=None, about="Principal; null for all.")
    host: str | None = string(nullable="0+", default=None, about="Host; null for all.")
    operation: int = int8(about="Operation; 1 for all.")
    permission: int = int8(about="Permission; 1 for all.")


@data()
class CreatedAcl(Message):
    """Result of the creation of one ACL."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")


@data()
class CreateAclsResult(CommandResult):
    """Results of CreateAcls, one for each ACL in the order of the command."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    results: list[CreatedAcl] = array(CreatedAcl, about="Results, in the order of the command.")


@data()
class CreateAcls(Command[CreateAclsResult]):
    """Command to create ACLs, each independently of the others. An ACL that already exists is no error."""

    acls: list[AclEntry] = array(AclEntry, about="ACLs to create.")
    is_denied: bool = boolean(
        "0+",
        tag=0,
        about="Whether the leader has found that the requester lacks the right; the leader then left out the changes.",
    )


@data()
class DeletedAcls(Message):
    """ACLs removed by a filter."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    acls: list[AclEntry] = array(AclEntry, about="Removed ACLs, in the order of listings.")


@data()
class DeleteAclsResult(CommandResult):
    """Results of DeleteAcls, one for each filter in the order of the command."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    results: list[DeletedAcls] = array(DeletedAcls, about="Results, in the order of the command.")


@data()
class DeleteAcls(Command[DeleteAclsResult]):
    """Command to remove the ACLs that any of the filters matches, all at once."""

    filters: list[AclFilterEntry] = array(AclFilterEntry, about="Filters that select the ACLs to remove.")
    is_denied: bool = boolean(
        "0+",
        tag=0,
        about="Whether the leader has found that the requester lacks the right; the leader then left out the changes.",
    )
