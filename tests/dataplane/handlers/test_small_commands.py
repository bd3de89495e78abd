"""No single command occupies the quorum for long, however much a request changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.handlers.client_quotas import ClientQuotaHandlers
from ottla.dataplane.handlers.elect_leaders import ElectLeadersHandlers
from ottla.dataplane.handlers.partition_reassignments import PartitionReassignmentHandlers
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.server import ClientRequest
from ottla.protocol.cluster.cluster_image import NO_LEADER, ClusterImage, PartitionState, TopicState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import partition_commands, quota_commands, reassignment_commands
from ottla.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from ottla.protocol.messages.leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.protocol.messages.partition_commands import ElectionType
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

REQUEST = cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=1, session=None))


class Quorum:
    """A quorum that notes the sizes of commands, and refuses all from the `fails_from`th on."""

    def __init__(self, fails_from: int = 1000) -> None:
        self.image = ClusterImage()
        self.sizes: list[int] = []
        self.elections: dict[int, ErrorCode] = {}
        """Errors of failing elections, by partition."""
        self._fails_from = fails_from

    async def submit(self, command: Any, timeout_ms: int | None = None, *, author: object = None) -> Any:
        if len(self.sizes) >= self._fails_from:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        if isinstance(command, quota_commands.AlterClientQuotas):
            self.sizes.append(len(command.entries))
            return quota_commands.AlterClientQuotasResult(
                entries=[quota_commands.AlteredQuota() for _ in command.entries]
            )
        if isinstance(command, partition_commands.ElectLeaders):
            assert command.partitions is not None
            self.sizes.append(len(command.partitions))
            return partition_commands.ElectLeadersResult(
                partitions=[
                    partition_commands.ElectedPartition(
                        topic_id=partition.topic_id,
                        partition=partition.partition,
                        error_code=self.elections.get(partition.partition, 0),
                    )
                    for partition in command.partitions
                ]
            )
        self.sizes.append(sum(len(topic.partitions) for topic in command.topics))
        return reassignment_commands.AlterPartitionReassignmentsResult(
            partitions=[
                reassignment_commands.ReassignedPartition(error_message=f"{topic.name}-{wanted.partition}")
                for topic in command.topics
                for wanted in topic.partitions
            ]
        )


def quotas_of(count: int) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[EntityData(entity_type="client-id", entity_name=f"client-{number}")],
                ops=[OpData(key="producer_byte_rate", value=1e6)],
            )
            for number in range(count)
        ]
    )


def moves_of(topics: int, partitions: int) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=f"topic-{number}",
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=[1]) for index in range(partitions)
                ],
            )
            for number in range(topics)
        ]
    )


async def test_quotas_of_many_entities_are_altered_in_pieces() -> None:
    quorum = Quorum()
    answer = await ClientQuotaHandlers(quorum).alter_client_quotas(REQUEST, quotas_of(600))
    assert sum(quorum.sizes) == 600
    assert max(quorum.sizes) <= 250
    assert [entry.error_code for entry in answer.entries] == [0] * 600


async def test_quotas_that_come_after_a_failure_have_its_error() -> None:
    answer = await ClientQuotaHandlers(Quorum(fails_from=1)).alter_client_quotas(REQUEST, quotas_of(600))
    codes = [entry.error_code for entry in answer.entries]
    assert codes == [ErrorCode.NONE] * 250 + [ErrorCode.REQUEST_TIMED_OUT] * 350


async def test_many_partitions_are_moved_in_pieces_and_answered_in_order() -> None:
    quorum = Quorum()
    answer = await PartitionReassignmentHandlers(quorum).alter(REQUEST, moves_of(4, 700))
    assert sum(quorum.sizes) == 2800
    assert max(quorum.sizes) <= 1000
    messages = [partition.error_message for topic in answer.responses for partition in topic.partitions]
    assert messages == [f"topic-{number}-{index}" for number in range(4) for index in range(700)]


async def test_moves_that_come_after_a_failure_have_its_error() -> None:
    answer = await PartitionReassignmentHandlers(Quorum(fails_from=2)).alter(REQUEST, moves_of(4, 700))
    codes = [partition.error_code for topic in answer.responses for partition in topic.partitions]
    assert codes == [ErrorCode.NONE] * 2000 + [ErrorCode.REQUEST_TIMED_OUT] * 800


def led(leader: int) -> PartitionState:
    return PartitionState(replicas=(1, 2), isr=(2,), leader=leader, leader_epoch=1, partition_epoch=1)


def quorum_of(leaders: list[int], fails_from: int = 1000) -> Quorum:
    """Return a quorum with one topic, whose partitions have the given leaders."""
    quorum = Quorum(fails_from)
    topic = TopicState(b"t" * 16, "t", dict(enumerate(map(led, leaders))))
    quorum.image = cast(ClusterImage, SimpleNamespace(topics={"t": topic}))
    return quorum


def told(answer: ElectLeadersResponse) -> dict[int, int]:
    return {
        result.partition_id: result.error_code
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }


@pytest.mark.parametrize(
    ("election", "in_need"), [(ElectionType.UNCLEAN, NO_LEADER), (ElectionType.PREFERRED, 2)]
)
async def test_leaders_of_all_partitions_are_elected_in_pieces(election: ElectionType, in_need: int) -> None:
    """One unclean election of more than 119,000 partitions exceeded the quorum's log, and was repeated for ever."""
    quorum = quorum_of([*[in_need] * 2500, *[1] * 50])
    quorum.elections = {
        7: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        8: ErrorCode.ELECTION_NOT_NEEDED,  # The partition has a leader meanwhile.
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # The partition was deleted meanwhile.
    }
    answer = await ElectLeadersHandlers(quorum).elect(
        REQUEST, ElectLeadersRequest(election_type=election, topic_partitions=None)
    )
    assert quorum.sizes == [1000, 1000, 500]
    expected = {index: quorum.elections.get(index, ErrorCode.NONE) for index in range(2500)}
    del expected[8], expected[9]
    assert told(answer) == expected


async def test_elections_that_come_after_a_failure_have_its_error() -> None:
    named = ElectLeadersRequest(
        election_type=ElectionType.UNCLEAN,
        topic_partitions=[TopicPartitions(topic="t", partitions=list(range(2500)))],
    )
    answer = await ElectLeadersHandlers(quorum_of([], fails_from=2)).elect(REQUEST, named)
    assert list(told(answer).values()) == [ErrorCode.NONE] * 2000 + [ErrorCode.REQUEST_TIMED_OUT] * 500


async def test_an_election_of_nothing_is_put_to_the_quorum() -> None:
    """The quorum may refuse the election's type."""
    quorum = quorum_of([1])
    answer = await ElectLeadersHandlers(quorum).elect(REQUEST, ElectLeadersRequest(topic_partitions=None))
    assert quorum.sizes == [0]
    assert not answer.replica_election_results
