"""States of partitions: their counts by topic, and their order."""

from __future__ import annotations

from ottla.client.admin.partition_states import missing_replicas, states_of, topic_states, worst_first
from ottla.client.records import TopicPartition
from tests.console.fakes import partition, topic


def test_states_are_counted_by_topic() -> None:
    assert topic_states(topic("healthy", partition(0), partition(1)), {}).is_healthy
    orders = topic("orders", partition(0), partition(1, isr=(1, 2)), partition(2, leader=-1, isr=(1,)))
    found = topic_states(orders, {TopicPartition("orders", 0): ()})
    assert (found.topic, found.partitions, found.is_healthy) == ("orders", 3, False)
    assert (found.offline, found.under_replicated, found.reassigning, found.missing) == (1, 2, 1, (2, 3))
    assert found.text == "1 offline, 2 under-replicated"


def test_users_topics_and_the_worst_come_first() -> None:
    topics = (
        topic("__offsets", partition(0, leader=-1, isr=(1,)), is_internal=True),
        topic("a", partition(0, isr=(1,))),
        topic("b", partition(0, isr=(1,)), partition(1, isr=(1,))),
        topic("c", partition(0, leader=-1, isr=(1,))),
    )
    found = worst_first(topic_states(each, {}) for each in topics)
    assert [states.topic for states in found] == ["c", "b", "a", "__offsets"]


def test_a_replica_that_is_being_added_is_not_missing() -> None:
    copied, name = partition(0, isr=(1, 2)), TopicPartition("t", 0)
    assert missing_replicas(copied) == [3]
    assert missing_replicas(copied, adding=(3,)) == []
    assert states_of("t", copied, {name: (3,)}) == ["reassigning"]
    assert states_of("t", partition(0, leader=-1, isr=(1, 2)), {name: (4,)}) == [
        "offline",
        "under-replicated",
        "reassigning",
    ]
    assert topic_states(topic("t", copied), {name: (3,)}).is_healthy
    assert topic_states(topic("t", copied), {name: (4,)}).missing == (3,)
