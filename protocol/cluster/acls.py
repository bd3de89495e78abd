"""ACLs, which allow or deny principals operations on resources, and filters that find ACLs.

An ACL has no id: two equal ACLs are the same ACL. Quorum and brokers check ACLs by the rules in this module.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from ..errors import ErrorCode, KafkaError

CLUSTER_NAME = "kafka-cluster"
"""Name of the one resource of type CLUSTER."""
ANYTHING = "*"
"""Every host and, as the name of a LITERAL pattern, every resource of the type."""
TEXT_BYTES_MAX = 4096
"""Highest length of a resource name and of a principal, in bytes; principals from certificates may be that long."""
ANYBODY = "User:*"
"""Every principal, of whatever type."""


class AclResourceType(IntEnum):
    """Types of resources that ACLs protect, with the numbers of Kafka's protocol."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kinds of resource patterns, with the numbers of Kafka's protocol: how an ACL's resource name is compared. ANY and
    MATCH occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operations that an ACL allows or denies, with the numbers of Kafka's protocol. ALL stands for every operation;
    ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


IMPLYING: Final[Mapping[AclOperation, tuple[AclOperation, ...]]] = {
    AclOperation.DESCRIBE: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""Operations that imply others: an ALLOW of any operation in a tuple also allows the operation before it. A DENY
implies nothing."""


class AclPermission(IntEnum):
    """Verdicts of an ACL, allow or deny, with the numbers of Kafka's protocol. ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class _TellsAcl(Protocol):
    """A message with the fields of an ACL."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class Acl(NamedTuple):
    """An ACL: one rule that allows or denies an operation.

        Acl(AclResourceType.GROUP, "copiers-", PatternType.PREFIXED, "User:ann", "10.0.0.0/8", AclOperation.READ,
            AclPermission.ALLOW)

    The order of the fields is the sort order of listings.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    @classmethod
    def of(cls, told: _TellsAcl) -> Acl:
        """Return the ACL that a command, a result or a metadata record describes."""
        return cls(*(getattr(told, name) for name in cls._fields))

    def __str__(self) -> str:
        """Return the text for logs and messages: permission, principal, host, operation and resource."""
        return (
            f"{name_of(AclPermission, self.permission)} {self.principal} from {self.host} "
            f"{name_of(AclOperation, self.operation)} on {resource_text(*self[:3])}"
        )


class AclFilter(NamedTuple):
    """A filter that selects ACLs.

        AclFilter(resource_type=AclResourceType.TOPIC, principal="User:ann")

    None, or ANY in a numeric field, matches all values of the field.
    """

    resource_type: int = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = AclPermission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter selects the ACL."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_pattern(acl)
        )

    @property
    def exact(self) -> Acl | None:
        """The only ACL that can match, if every field is given; otherwise None."""
        if self.resource_name is None or self.principal is None or self.host is None:
            return None
        # ANY has the number 1 in all these enumerations.
        if 1 in (self.resource_type, self.operation, self.permission) or self.pattern_type not in (
            PatternType.LITERAL,
            PatternType.PREFIXED,
        ):
            return None
        return Acl(
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission,
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        name = self.resource_name
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            # A name that is given for MATCH is the name of a resource, which a PREFIXED pattern of this name covers,
            # too.
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name == ANYTHING
        return name.startswith(acl.resource_name)


def name_of(kind: type[IntEnum], code: int) -> str:
    """Return the name of a numeric code of an enumeration; for an unknown code, a text with its number."""
    try:
        return kind(code).name
    except ValueError:
        return f"UNKNOWN({code})"


def resource_text(resource_type: int, name: str, pattern_type: int = PatternType.LITERAL) -> str:
    """Return a resource or pattern in the form of Kafka's authorizer logs: `Topic:LITERAL:orders`."""
    kind = name_of(AclResourceType, resource_type).title().replace("_", "")
    return f"{kind}:{name_of(PatternType, pattern_type)}:{name}"


def checked_acl(acl: Acl) -> Acl:
    """Return the ACL to store, with its host in the one form in which addresses are compared. Raises KafkaError for an
    ACL that is not valid."""
    if acl.resource_type not in _KINDS:
        raise _invalid(f"Invalid resourceType {name_of(AclResourceType, acl.resource_type)}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {name_of(PatternType, acl.pattern_type)}")
    if acl.operation not in _OPERATIONS:
        raise _invalid(f"Invalid operation {name_of(AclOperation, acl.operation)}")
    if acl.permission not in (AclPermission.DENY, AclPermission.ALLOW):
        raise _invalid(f"Invalid permissionType {name_of(AclPermission, acl.permission)}")
    if not acl.resource_name:
        raise _invalid("Resource name should not be empty")
    if acl.resource_type == AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    check_principal(acl.principal)
    for what, text in (("Resource name", acl.resource_name), ("Principal", acl.principal)):
        if len(text.encode()) > TEXT_BYTES_MAX:
            raise _invalid(f"{what} is too long: at most {TEXT_BYTES_MAX} bytes are allowed")
    return acl._replace(host=canonical_host(acl.host))


def checked_filter(wanted: AclFilter) -> AclFilter:
    """Return the filter, with its host in the form that ACLs have. Raises KafkaError for values that no ACL can
    have."""
    for kind, code in (
        (AclResourceType, wanted.resource_type),
        (PatternType, wanted.pattern_type),
        (AclOperation, wanted.operation),
        (AclPermission, wanted.permission),
    ):
        if code == 0 or code not in tuple(kind):
            raise _invalid(f"Invalid filter: {kind.__name__} {name_of(kind, code)}")
    if wanted.host is None:
        return wanted
    try:
        return wanted._replace(host=canonical_host(wanted.host))
    except KafkaError:
        return wanted  # no ACL has such a host, so the filter finds nothing


def check_principal(text: str) -> None:
    """Check that a principal consists of a type, a colon and a name. Raises KafkaError."""
    kind, colon, _ = text.partition(":")
    if not (kind and colon):
        raise _invalid(
            f"Could not parse principal from `{text}` (no colon is present separating the principal type "
            "from the principal name)"
        )


def canonical_address(text: str) -> str:
    """Return an address in the form in which ACLs and sessions compare it: short, without a scope, and as IPv4 if it is
    an IPv4 address mapped into IPv6. Raises ValueError."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address if mapped is None else mapped)


def canonical_host(text: str) -> str:
    """Return the host of an ACL in its one form: `*`, an address, or a network in CIDR notation. Raises KafkaError."""
    if text == ANYTHING:
        return text
    if not text:
        raise _invalid("Host should not be empty")
    if "/" in text:
        try:
            return str(ipaddress.ip_network(text, strict=False))
        except ValueError:
            raise _invalid(f"Invalid CIDR notation: {text}") from None
    try:
        return canonical_address(text)
    except ValueError:
        raise _invalid(
            f"Invalid host {text}: it has to be *, an IP address, or a network in CIDR notation"
        ) from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


_KINDS = frozenset(AclResourceType) - {AclResourceType.UNKNOWN, AclResourceType.ANY}
_OPERATIONS = frozenset(AclOperation) - {AclOperation.UNKNOWN, AclOperation.ANY}
