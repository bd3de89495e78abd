"""Copies of a new mirror wait for a cut, or do not, depending on the source's answers to the creator."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC
from ottla.dataplane.mirroring.first_cut import is_to_come
from ottla.dataplane.mirroring.source_versions import IDS_MAX
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.cuts import (
    AppVersion,
    FindCutRequest,
    FindCutResponse,
    ListAppVersionsRequest,
    ListAppVersionsResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

BROKER, CUT = 3, 5
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Source:
    """A source that answers everything, or refuses some kinds of requests."""

    def __init__(self, *, ids: int = 1, offsets: ErrorCode = ErrorCode.NONE, **refused: ErrorCode) -> None:
        self.ids, self.offsets, self.refused = ids, offsets, refused

    async def ask(self, broker_id: int, message: Any, **_: Any) -> Any:
        assert broker_id == BROKER
        match message:
            case FindCutRequest():
                return FindCutResponse(error_code=self.refused.get("cut", 0), cut=CUT)
            case ListAppVersionsRequest():
                assert message.cut == CUT
                versions = [
                    AppVersion(transactional_id=str(number), app_version=1) for number in range(self.ids)
                ]
                return ListAppVersionsResponse(error_code=self.refused.get("versions", 0), versions=versions)

    async def metadata(self, topics: list[str]) -> MetadataResponse:
        assert topics == [OFFSETS_TOPIC]
        return MetadataResponse(topics=[MetadataResponseTopic(name=OFFSETS_TOPIC, error_code=self.offsets)])


class WithoutTheQuestion(Source):
    """A source without the API, like Apache Kafka."""

    async def ask(self, broker_id: int, message: Any, **_: Any) -> Any:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


async def asked(source: Source, *, with_offsets: bool) -> bool:
    metadata = MetadataResponse(brokers=[MetadataResponseBroker(node_id=BROKER)])
    return await is_to_come(cast(Any, source), metadata, with_offsets=with_offsets)


@pytest.mark.parametrize("with_offsets", [False, True])
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(Source(), True, id="tells-all"),
        pytest.param(Source(ids=IDS_MAX + 1), False, id="too-many-ids-for-any-round"),
        pytest.param(WithoutTheQuestion(), False, id="apache-kafka"),
        pytest.param(Source(cut=TOPIC), False, id="no-topic-may-be-described"),
        pytest.param(Source(versions=CLUSTER), False, id="the-cluster-may-not-be-described"),
        pytest.param(Source(cut=ErrorCode.REQUEST_TIMED_OUT), True, id="has-no-quorum-just-now"),
        pytest.param(Source(versions=ErrorCode.OFFSET_NOT_AVAILABLE), True, id="decides-very-fast"),
    ],
)
async def test_a_source_that_can_tell_cuts_is_waited_for(
    source: Source, expected: bool, with_offsets: bool
) -> None:
    assert await asked(source, with_offsets=with_offsets) is expected


@pytest.mark.parametrize(("with_offsets", "expected"), [(False, True), (True, False)])
async def test_committed_offsets_that_may_not_be_read_keep_rounds_away(
    with_offsets: bool, expected: bool
) -> None:
    assert await asked(Source(offsets=TOPIC), with_offsets=with_offsets) is expected


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
async def test_a_source_without_committed_offsets_may_have_some_later(code: ErrorCode) -> None:
    assert await asked(Source(offsets=code), with_offsets=True)
