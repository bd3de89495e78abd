"""Fields that clients compare with Kafka's answers: absent error messages, and orders."""

from __future__ import annotations

import pytest

from ottla.dataplane.handlers.client_quotas import in_kafkas_order
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.messages.topics import CreatableTopicResult

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
CONTROLLER, SHARE = "controller_mutation_rate", "request_percentage"


def test_without_an_error_there_is_no_explanation() -> None:
    """The error message is null, not an empty text."""
    assert CreatableTopicResult().error_message is None
    assert FindCoordinatorResponse().error_message is None
    assert AlterPartitionReassignmentsResponse().error_message is None
    assert ListPartitionReassignmentsResponse().error_message is None


@pytest.mark.parametrize(
    "seen",
    [
        [CONSUMER, PRODUCER],
        [CONTROLLER, PRODUCER],
        [CONSUMER, SHARE, PRODUCER],
        [PRODUCER, CONSUMER, CONTROLLER, SHARE],
    ],
)
def test_quotas_are_listed_as_kafka_lists_them(seen: list[str]) -> None:
    """The order was observed in Kafka 4.4."""
    assert in_kafkas_order(sorted(seen)) == seen
    assert in_kafkas_order(sorted(seen, reverse=True)) == seen
