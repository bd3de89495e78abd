"""Problems of partitions: their sums by topic, and their order."""

from __future__ import annotations

from ottla.client.records import TopicPartition
from ottla.console.live.partition_problems import missing_replicas, problems_by_topic
from tests.console.fakes import partition, topic


def test_problems_are_summed_up_by_topic() -> None:
    healthy = topic("healthy", partition(0), partition(1))
    orders = topic("orders", partition(0), partition(1, isr=(1, 2)), partition(2, leader=-1, isr=(1,)))
    (problems,) = problems_by_topic([healthy, orders], {})
    assert (problems.topic, problems.partitions) == ("orders", 3)
    assert (problems.offline, problems.under_replicated, problems.missing) == (1, 2, (2, 3))


def test_users_topics_and_the_worst_come_first() -> None:
    found = problems_by_topic(
        [
            topic("__offsets", partition(0, leader=-1, isr=(1,)), is_internal=True),
            topic("a", partition(0, isr=(1,))),
            topic("b", partition(0, isr=(1,)), partition(1, isr=(1,))),
            topic("c", partition(0, leader=-1, isr=(1,))),
        ],
        {},
    )
    assert [problems.topic for problems in found] == ["c", "b", "a", "__offsets"]


def test_a_replica_that_is_being_added_is_not_missing() -> None:
    copied = partition(0, isr=(1, 2))
    assert missing_replicas(copied) == [3]
    assert missing_replicas(copied, adding=(3,)) == []
    name = TopicPartition("t", 0)
    assert problems_by_topic([topic("t", copied)], {name: (3,)}) == []
    (problems,) = problems_by_topic([topic("t", copied)], {name: (4,)})
    assert problems.missing == (3,)
