"""Which ACLs a mirror copies: the source's ACLs of topics and groups whose names match, as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ...protocol.acls import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    checked_acl,
)
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.acl_commands import AclEntry
from ...protocol.messages.acls import DescribeAclsRequest, DescribeAclsResponse
from ...protocol.messages.mirror_commands import FollowAcls
from ..patterns import Pattern
from ..quorum.access import Quorum
from .source import SourceCluster


class AclList:
    """Of one mirror."""

    def __init__(
        self, mirror: str, source: SourceCluster, quorum: Quorum, topics: Pattern, groups: Pattern | None
    ) -> None:
        self._mirror = mirror
        self._source = source
        self._quorum = quorum
        self._patterns = {AclResourceType.TOPIC: topics, AclResourceType.GROUP: groups}

    async def bring_up_to_date(self, broker_id: int) -> None:
        """Have those that the source has now, as this broker of it tells. Raises KafkaError."""
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
        wanted = set(self._matching(answer))
        image = self._quorum.image
        own = image.mirrors.acls.get(self._mirror, frozenset())
        if wanted - image.acls or own - wanted:
            entries = [AclEntry(**acl._asdict()) for acl in sorted(wanted)]
            await self._quorum.submit(FollowAcls(mirror=self._mirror, acls=entries))

    def _matching(self, answer: DescribeAclsResponse) -> Iterator[Acl]:
        for resource in answer.resources:
            kind = resource.resource_type
            pattern = self._patterns[AclResourceType(kind)] if kind in self._patterns else None
            if pattern is None or pattern.fullmatch(resource.resource_name) is None:
                continue
            for one in resource.acls:
                acl = Acl(
                    resource.resource_type,
                    resource.resource_name,
                    resource.pattern_type,
                    one.principal,
                    one.host,
                    one.operation,
                    one.permission_type,
                )
                with suppress(KafkaError):  # of a later version, perhaps: this cluster cannot have it
                    yield checked_acl(acl)
