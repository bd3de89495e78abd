"""ApiVersions lists the APIs of a feature only while the feature is in force."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.handlers.api_versions import ApiVersionsHandlers
from ottla.dataplane.server import ClientRequest, HandlerTable, handles
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.features import MIRROR
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata_records import FeatureLevelRecord


class OfAFeature:
    """The handler of an API that belongs to a feature."""

    @handles(HeartbeatRequest, 0, 4, feature=MIRROR)
    def heartbeat(self, _request: ClientRequest, _message: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse()


@pytest.mark.parametrize(("level", "is_listed"), [(0, False), (1, True), (2, True)])
def test_an_api_is_listed_while_its_feature_is_in_force(level: int, is_listed: bool) -> None:
    quorum = SimpleNamespace(image=ClusterImage())
    quorum.image.apply(FeatureLevelRecord(feature=MIRROR, level=level))
    table = HandlerTable(OfAFeature())
    request = cast(ClientRequest, SimpleNamespace(api_version=4))
    answer = ApiVersionsHandlers(table, cast(Any, quorum), 1).api_versions(
        request, ApiVersionsRequest(client_software_name="c", client_software_version="1")
    )
    assert [entry.api_key for entry in answer.api_keys] == [HeartbeatRequest.api_key] * is_listed
