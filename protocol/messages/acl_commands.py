"""Commands to the controller about ACLs. Codes are those of `protocol/acls.py`."""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int8, int16, string
from .command import Command, CommandResult


@data()
class AclEntry(Message):
    """One ACL."""

    resource_type: int = int8(about="What is protected.")
    resource_name: str = string(about="Name of the pattern.")
    pattern_type: int = int8(about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Whom it is about, like User:ann.")
    host: str = string(about="From where: *, an address, or a network in CIDR notation.")
    operation: int = int8(about="What is done.")
    permission: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class AclFilterEntry(Message):
    """Which ACLs are meant."""

    resource_type: int = int8(about="1 for all.")
    resource_name: str | None = string(nullable="0+", default=None, about="Null for all.")
    pattern_type: int = int8(about="1 for all, 2 for those that cover a resource of this name.")
    principal: str | None = string(nullable="0+", default=None, about="Null for all.")
    host: str | None = string(nullable="0+", default=None, about="Null for all.")
    operation: int = int8(about="1 for all.")
    permission: int = int8(about="1 for all.")


@data()
class CreatedAcl(Message):
    """How the creation of one ACL went."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class CreateAclsResult(CommandResult):
    """One result per ACL, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    results: list[CreatedAcl] = array(CreatedAcl, about="In the order of the command.")


@data()
class CreateAcls(Command[CreateAclsResult]):
    """Create ACLs, each on its own. One that is there already is no error."""

    acls: list[AclEntry] = array(AclEntry, about="ACLs.")
    is_denied: bool = boolean(
        "0+",
        tag=0,
        about="The leader has found that whoever asked may not do it, and left out what it would change.",
    )


@data()
class DeletedAcls(Message):
    """What one filter has removed."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    acls: list[AclEntry] = array(AclEntry, about="The ACLs, in the order of listings.")


@data()
class DeleteAclsResult(CommandResult):
    """One result per filter, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    results: list[DeletedAcls] = array(DeletedAcls, about="In the order of the command.")


@data()
class DeleteAcls(Command[DeleteAclsResult]):
    """Remove the ACLs that any of the filters finds, at once."""

    filters: list[AclFilterEntry] = array(AclFilterEntry, about="Filters.")
    is_denied: bool = boolean(
        "0+",
        tag=0,
        about="The leader has found that whoever asked may not do it, and left out what it would change.",
    )
