"""The image as a fold of records: every record rebuilds, deltas name the changes, contradictory records are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.cluster.cluster_image import (
    BrokerState,
    ClusterImage,
    ImageInconsistent,
    PartitionState,
    broker_record,
    partition_record,
)
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.messages.metadata_records import (
    BrokerListener,
    BrokerRemovedRecord,
    ClusterRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    TopicRecord,
    TopicRemovedRecord,
    decode_record,
    encode_record,
)
from ottla.protocol.wire.codec import MalformedMessage

TOPICS = {bytes([number]) * 16: f"t{number}" for number in range(1, 4)}
TOPIC_IDS = st.sampled_from(sorted(TOPICS))
IDS = st.lists(st.integers(0, 9), max_size=3, unique=True).map(tuple)
BROKER_STATES = st.builds(
    BrokerState,
    broker_id=st.integers(0, 5),
    broker_epoch=st.integers(1, 2**40),
    incarnation=st.binary(min_size=16, max_size=16),
    listeners=st.lists(
        st.builds(BrokerListener, name=st.text(max_size=5), port=st.integers(0, 65535)), max_size=2
    ).map(tuple),
    rack=st.none() | st.text(max_size=3),
    host=st.none() | st.text(max_size=3),
    fenced=st.booleans(),
    shutting_down=st.booleans(),
    log_dirs=st.lists(st.binary(min_size=16, max_size=16), max_size=2).map(tuple),
)
PARTITION_STATES = st.builds(
    PartitionState,
    replicas=IDS,
    isr=IDS,
    elr=IDS,
    last_known_elr=IDS,
    leader=st.integers(-1, 9),
    leader_epoch=st.integers(0, 2**31 - 1),
    partition_epoch=st.integers(0, 2**31 - 1),
    unclean=st.booleans(),
    offline_replicas=IDS,
)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    BROKER_STATES.map(broker_record),
    st.builds(BrokerRemovedRecord, broker_id=st.integers(0, 5)),
    TOPIC_IDS.map(lambda topic_id: TopicRecord(topic_id=topic_id, name=TOPICS[topic_id])),
    TOPIC_IDS.map(lambda topic_id: TopicRemovedRecord(topic_id=topic_id)),
    st.builds(partition_record, TOPIC_IDS, st.integers(0, 3), PARTITION_STATES),
    st.builds(
        ConfigRecord,
        resource_type=st.sampled_from([2, 4]),
        resource_name=st.sampled_from(["", "1", "t1"]),
        config_name=st.sampled_from(["a", "b"]),
        value=st.none() | st.text(max_size=3),
    ),
    st.builds(ProducerIdsRecord, next_producer_id=st.integers(1, 2**60)),
    st.builds(ClusterRecord, cluster_id=st.text(min_size=1, max_size=5)),
)


def fold(image: ClusterImage, records: list[Record]) -> list[Record]:
    """Apply the fitting records, and return them."""
    fitting: list[Record] = []
    for record in records:
        if isinstance(record, TopicRecord) and record.topic_id in image.topics_by_id:
            continue
        try:
            image.apply(record)
        except ImageInconsistent:
            assert isinstance(record, PartitionRecord | TopicRemovedRecord)
            assert record.topic_id not in image.topics_by_id
        else:
            fitting.append(record)
    return fitting


def parts(image: ClusterImage) -> tuple[object, ...]:
    return (
        image.cluster_id,
        image.brokers,
        image.topics,
        image.topics_by_id,
        image.configs,
        image.next_producer_id,
    )


@given(RECORDS)
def test_a_record_survives_its_encoding(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@given(st.lists(RECORDS, max_size=40))
def test_an_image_is_rebuilt_by_its_own_records(records: list[Record]) -> None:
    image = ClusterImage()
    fitting = fold(image, records)
    assert image.offset == len(fitting)
    again = ClusterImage()
    assert fold(again, [*image.records()]) == [*image.records()]
    assert parts(again) == parts(image)
    assert image.topics.keys() == {topic.name for topic in image.topics_by_id.values()}
    assert all(values for values in image.configs.values())


@given(st.lists(RECORDS, max_size=25), st.lists(RECORDS, max_size=25))
def test_deltas_name_what_changed(first: list[Record], then: list[Record]) -> None:
    before, after, noted = ClusterImage(), ClusterImage(), ImageDelta()
    fitting = fold(before, first)
    fold(after, fitting)
    for record in fold(after, then):
        noted.note(record)
    between = ImageDelta.between(before, after)
    assert between.brokers == {
        broker for broker in before.brokers.keys() | after.brokers.keys()
        if before.brokers.get(broker) != after.brokers.get(broker)
    }  # fmt: skip
    assert between.brokers <= noted.brokers
    assert between.configs <= noted.configs
    assert between.topics - noted.topics == set()
    assert between.removed_topics <= noted.removed_topics
    known = {(topic.id, index) for topic in after.topics_by_id.values() for index in topic.partitions}
    assert between.partitions & known <= noted.partitions | {
        key for key in known if key[0] in noted.removed_topics
    }
    assert ImageDelta.between(after, after) == ImageDelta()


def test_setting_a_state_is_applying_its_record() -> None:
    topic_id, state = next(iter(TOPICS)), PartitionState((1, 2), (1,), leader=1)
    first, other = ClusterImage(), ClusterImage()
    for image in (first, other):
        image.apply(TopicRecord(topic_id=topic_id, name="t"))
    first.set_partition(topic_id, 0, state)
    other.apply(partition_record(topic_id, 0, state))
    assert (first.offset, parts(first)) == (other.offset, parts(other))
    with pytest.raises(ImageInconsistent, match="does not exist"):
        first.set_partition(bytes(16), 0, state)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (PartitionState((), ()), "replicas are missing or repeat"),
        (PartitionState((1, 1), (1,)), "replicas are missing or repeat"),
        (PartitionState((1,), (1, 2)), "not among the replicas"),
        (PartitionState((1, 2), (1,), (1,)), "overlaps the ELR"),
        (PartitionState((1, 2), (1,), (2,), (2,)), "ISR or ELR and the last known ELR overlap"),
        (PartitionState((1, 2), (1,), (), (1,)), "ISR or ELR and the last known ELR overlap"),
        (PartitionState((1, 2), (), (), (1, 1)), "the last known ELR repeats"),
        (PartitionState((1, 2), (1,), leader_epoch=2, partition_epoch=1), "above the partition epoch"),
        (PartitionState((1, 2), (1,), leader=2), "the leader is not in the ISR"),
        (PartitionState((1, 2), (1, 2), leader=2), "the leader is fenced or shutting down"),
        (PartitionState((1, 3), (1, 3), leader=3), "the leader is fenced or shutting down"),
        (PartitionState((1, 4), (1, 4), leader=4), "the leader is fenced or shutting down"),
        (PartitionState((1, 2), (1, 2), leader=1), ""),
        (PartitionState((2,), (2,), leader=-1), ""),
    ],
)
def test_broken_invariants_are_found(state: PartitionState, said: str) -> None:
    image = ClusterImage()
    image.apply(broker_record(BrokerState(1, 1, bytes(16), fenced=False)))
    image.apply(broker_record(BrokerState(2, 2, bytes(16), fenced=True)))
    image.apply(broker_record(BrokerState(3, 3, bytes(16), fenced=False, shutting_down=True)))
    topic_id = next(iter(TOPICS))
    image.apply(TopicRecord(topic_id=topic_id, name="t"))
    image.apply(partition_record(topic_id, 0, state))
    if not said:
        image.check()
        return
    with pytest.raises(ImageInconsistent, match=said):
        image.check()


def test_brokers_and_topics_filed_wrongly_are_found() -> None:
    image, (topic, other) = ClusterImage(), list(TOPICS)[:2]
    image.apply(broker_record(BrokerState(1, 1, bytes(16))))
    image.apply(TopicRecord(topic_id=topic, name="t"))
    image.check()
    image.topics_by_id[other] = image.topics_by_id.pop(topic)
    with pytest.raises(ImageInconsistent, match="is filed under t"):
        image.check()
    image.apply(broker_record(BrokerState(1, 77, bytes(16))))
    with pytest.raises(ImageInconsistent, match="broker 1, at offset 3"):
        image.check()


def test_a_gap_in_the_partitions_is_found() -> None:
    image, topic_id = ClusterImage(), next(iter(TOPICS))
    image.apply(TopicRecord(topic_id=topic_id, name="t"))
    image.apply(partition_record(topic_id, 1, PartitionState((1,), (1,))))
    with pytest.raises(ImageInconsistent, match="have gaps"):
        image.check()


@given(st.binary(max_size=40))
def test_bytes_that_are_no_record_are_refused(junk: bytes) -> None:
    try:
        record = decode_record(junk)
    except MalformedMessage:
        return
    assert decode_record(encode_record(record)) == record


def test_a_frozen_image_shares_no_table_with_the_one_that_moves_on() -> None:
    image = ClusterImage()
    frozen = vars(image.frozen())
    shared = [
        name
        for name, value in vars(image).items()
        if not isinstance(value, int | str) and frozen[name] is value
    ]
    assert not shared, "copy these in `frozen`"
