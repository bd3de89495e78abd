"""Copying of a source's ACLs of topics and groups. An ACL is copied only if it applies to copies of the mirror
alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from ...protocol.cluster.acls import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    checked_acl,
)
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.acl_commands import AclEntry
from ...protocol.messages.acls import DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse
from ...protocol.messages.mirror_commands import FollowAcls
from ..patterns import Pattern
from ..quorum.access import Quorum
from ..runtime.matching import matching
from .acl_reach import Reach, within
from .source import SourceCluster

logger = logging.getLogger(__name__)

_NAMED_MAX: Final = 20


class AclList:
    """The ACLs of the source that one mirror copies to this cluster."""

    def __init__(
        self, mirror: str, source: SourceCluster, quorum: Quorum, topics: Pattern, groups: Pattern | None
    ) -> None:
        self._mirror = mirror
        self._source = source
        self._quorum = quorum
        self._patterns: dict[int, Pattern] = {AclResourceType.TOPIC: topics}
        if groups is not None:
            self._patterns[AclResourceType.GROUP] = groups
        self._beyond: set[Acl] = set()

    async def bring_up_to_date(self, broker_id: int) -> None:
        """Fetch the source's ACLs from its broker `broker_id`, and submit the changed list of copied ACLs to the
        quorum. Raises KafkaError.
        """
        request = DescribeAclsRequest(
            resource_type_filter=AclResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=AclPermission.ANY,
        )
        answer = await self._source.ask(broker_id, request)
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            raise KafkaError(code, f"ACLs are not copied: {answer.error_message or code.name}")
        reaches = {kind: await self._reach(kind, answer) for kind in self._patterns}
        wanted, beyond = within(self._readable(answer), reaches)
        self._tell(beyond)
        image = self._quorum.image
        own = image.mirrors.acls.get(self._mirror, frozenset())
        if wanted - image.acls or own - wanted:
            entries = [AclEntry(**acl._asdict()) for acl in sorted(wanted)]
            await self._quorum.submit(FollowAcls(mirror=self._mirror, acls=entries))

    async def _reach(self, kind: int, answer: DescribeAclsResponse) -> Reach:
        pattern = self._patterns[kind]
        names = [resource.resource_name for resource in answer.resources if resource.resource_type == kind]
        return Reach(pattern.regex, set(await matching(pattern, names)))

    def _readable(self, answer: DescribeAclsResponse) -> Iterator[Acl]:
        for resource in answer.resources:
            if resource.resource_type not in self._patterns or self._is_of_this_cluster(resource):
                continue
            for described in resource.acls:
                acl = Acl(
                    resource.resource_type,
                    resource.resource_name,
                    resource.pattern_type,
                    described.principal,
                    described.host,
                    described.operation,
                    described.permission_type,
                )
                # A source of a later version may have ACLs that this cluster cannot represent.
                with suppress(KafkaError):
                    yield checked_acl(acl)

    def _is_of_this_cluster(self, resource: DescribeAclsResource) -> bool:
        """Return whether the ACL resource is a topic of this cluster that this mirror does not copy."""
        if resource.resource_type != AclResourceType.TOPIC or resource.pattern_type != PatternType.LITERAL:
            return False
        image = self._quorum.image
        topic = image.topics.get(resource.resource_name)
        if topic is None:
            return False
        copied = image.mirrors.topics.get(topic.id)
        return copied is None or copied.mirror != self._mirror

    def _tell(self, beyond: set[Acl]) -> None:
        """Log each ACL of the source that applies to more than the mirror's copies, once."""
        new = sorted(beyond - self._beyond)
        self._beyond = beyond
        if new:
            more = f" and {len(new) - _NAMED_MAX} more" if len(new) > _NAMED_MAX else ""
            logger.warning(
                "mirror %s: ACLs of the source reach beyond its copies, and are not copied as they are: %s%s",
                self._mirror, "; ".join(map(str, new[:_NAMED_MAX])), more,
            )  # fmt: skip
