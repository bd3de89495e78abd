"""The rights of a principal at a host: decisions that are cached until an ACL changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ....protocol.cluster.acls import AclResourceType
from .acl_index import AclIndex
from .pattern_rules import Requester

NAMES_MAX = 10_000
"""The maximum number of cached names for each type of resource, as names come from clients."""


class _Decides(Protocol):
    """The authorizer, which the cache asks for rights that it does not have."""

    @property
    def index(self) -> AclIndex: ...

    def mask(self, resource_type: int, name: str, requester: Requester) -> int: ...

    def in_a_row(self, resource_type: int, requester: Requester) -> Callable[[str], int]: ...

    def allows_for_some_resource(self, resource_type: int, operation: int, requester: Requester) -> bool: ...


class Grants:
    """The cached rights of one principal at one host: for each resource the allowed operations as a bit mask.

    Only resources with a permission are cached, so names that a client invents take no memory.
    """

    __slots__ = ("_decides", "_index", "_masks", "_some", "_version", "requester")

    def __init__(self, decides: _Decides, requester: Requester) -> None:
        self.requester = requester
        self._decides = decides
        self._index = decides.index
        self._version = self._index.version
        #: by type of resource, then by name
        self._masks: list[dict[str, int]] = [{} for _ in AclResourceType]
        self._some: dict[tuple[int, int], bool] = {}

    @property
    def version(self) -> int:
        """The version of the ACLs in force: a number that rises with each change. A caller that caches a decision must
        keep this version with it.
        """
        return self._index.version

    def mask(self, resource_type: int, name: str) -> int:
        """Return the operations that are allowed on a resource: bit n for Kafka's operation with the code n."""
        if self._version != self._index.version:
            self._forget()
        mask = self._masks[resource_type].get(name)
        if mask is None:
            mask = self._decides.mask(resource_type, name, self.requester)
            if mask:
                self._remember(resource_type, name, mask)
        return mask

    def masks(self, resource_type: int, names: Iterable[str]) -> Iterator[int]:
        """Yield the allowed operations of many resources, as `mask` returns them. ACLs may change between two of
        them."""
        decide, decides_for = None, -1
        for name in names:
            if self._version != self._index.version:
                self._forget()
            mask = self._masks[resource_type].get(name)
            if mask is None:
                if decide is None or decides_for != self._version:
                    decide, decides_for = (
                        self._decides.in_a_row(resource_type, self.requester),
                        self._version,
                    )
                mask = decide(name)
                if mask:
                    self._remember(resource_type, name, mask)
            yield mask

    def allows_for_some(self, operation: int, resource_type: int) -> bool:
        """Return whether there may be a resource of this type on which the operation is allowed."""
        if self._version != self._index.version:
            self._forget()
        key = (operation, resource_type)
        found = self._some.get(key)
        if found is None:
            found = self._decides.allows_for_some_resource(resource_type, operation, self.requester)
            self._some[key] = found
        return found

    def _remember(self, resource_type: int, name: str, mask: int) -> None:
        masks = self._masks[resource_type]
        if len(masks) >= NAMES_MAX:
            masks.clear()
        masks[name] = mask

    def _forget(self) -> None:
        self._version = self._index.version
        for masks in self._masks:
            masks.clear()
        self._some.clear()
