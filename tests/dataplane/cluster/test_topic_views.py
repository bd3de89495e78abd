"""The data that a broker keeps about topics it described to clients."""

import gc

from ottla.dataplane.cluster.topic_views import TopicViews
from ottla.protocol.cluster.cluster_image import BrokerState, ClusterImage, PartitionState, TopicState
from ottla.protocol.messages.metadata_records import BrokerListener

LISTENER = "PLAINTEXT"
LIVING = 20


def an_image() -> ClusterImage:
    image = ClusterImage()
    listener = BrokerListener(name=LISTENER, host="127.0.0.1", port=9092)
    image.brokers[1] = BrokerState(1, 1, bytes(16), (listener,), fenced=False)
    return image


def create(image: ClusterImage, number: int) -> TopicState:
    topic = TopicState(number.to_bytes(16, "big"), f"t{number}", {0: PartitionState((1,), (1,), leader=1)})
    image.topics[topic.name] = image.topics_by_id[topic.id] = topic
    return topic


def test_topics_that_come_and_go_are_let_go() -> None:
    """Deleted topics were kept, with their states, until 8 MB of answers had gathered."""
    image, views = an_image(), TopicViews()
    for number in range(2_000):
        topic = create(image, number)
        views.of(image, LISTENER, 12).encoded(topic, 0)
        if number >= LIVING:
            gone = image.topics.pop(f"t{number - LIVING}")
            del image.topics_by_id[gone.id]
    del topic, gone
    alive = sum(isinstance(tracked, TopicState) for tracked in gc.get_objects())
    assert LIVING <= alive < 10 * LIVING


def test_a_topic_that_stays_is_told_alike_after_others_have_gone() -> None:
    image, views = an_image(), TopicViews()
    stays = create(image, 0)
    encoded = views.of(image, LISTENER, 12).encoded(stays, 0)
    for number in range(1, 500):
        views.of(image, LISTENER, 12).encoded(create(image, number), 0)
    for number in range(1, 500):
        del image.topics_by_id[image.topics.pop(f"t{number}").id]
    assert views.of(image, LISTENER, 12).encoded(stays, 0) == encoded
