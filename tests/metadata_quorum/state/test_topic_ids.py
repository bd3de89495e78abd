"""Ids of topics: folders on brokers have them for the topic's lifetime."""

from __future__ import annotations

from ottla.protocol.messages.topic_commands import (
    CreateTopics,
    CreateTopicsResult,
    DeleteTopics,
    DeleteTopicsResult,
)

from .harness import ControllerWithBrokers, assigned


def test_ids_do_not_depend_on_how_many_records_came_before() -> None:
    """A later version may make more records of the same commands; it must find the topics of its journal under the same
    ids.
    """
    short, long = ControllerWithBrokers(brokers=2), ControllerWithBrokers(brokers=3)
    assert short.machine.image.offset != long.machine.image.offset
    command = CreateTopics(topics=[assigned("orders", [1])], seed=7)
    made = [cluster.do(command, CreateTopicsResult).topics for cluster in (short, long)]
    assert made[0] == made[1]


def test_topics_of_one_name_and_of_one_command_differ() -> None:
    cluster = ControllerWithBrokers()

    def made(seed: int, *names: str) -> list[bytes]:
        topics = [assigned(name, [1]) for name in names]
        found = cluster.do(CreateTopics(topics=topics, seed=seed), CreateTopicsResult).topics
        return [topic.topic_id for topic in found]

    ids = made(1, "a", "b")
    cluster.do(DeleteTopics(names=["a"]), DeleteTopicsResult)
    ids += made(2, "a")
    assert len(set(ids)) == 3
