"""Partition choice agrees with other clients, and keyless records stick together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as other_murmur2

from ottla.client.producing.appending import TopicBatches
from ottla.client.producing.partitioner import StickyChoice, murmur2, murmur2_partition


@given(st.binary(max_size=300))
def test_the_hash_is_that_of_other_clients(data: bytes) -> None:
    assert murmur2(data) == other_murmur2(data) & 0xFFFFFFFF


def test_known_keys_go_where_the_java_client_puts_them() -> None:
    # From Kafka's own UtilsTest.testMurmur2, as signed 32-bit numbers.
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in known} == {key: value & 0xFFFFFFFF for key, value in known.items()}


@given(st.binary(max_size=50), st.integers(1, 1000))
def test_a_key_always_has_a_partition(key: bytes, partitions: int) -> None:
    assert 0 <= murmur2_partition(key, partitions) < partitions


def test_keyless_records_stick_to_a_partition_until_a_batch_is_full() -> None:
    choice = StickyChoice(1000, draw=lambda count: count - 1)
    topic = TopicBatches(3)
    chosen = [choice.choose(topic, [0, 1, 2], 100) for _ in range(30)]
    assert chosen == [2] * 10 + [1] * 10 + [2] * 10


def test_a_partition_without_leader_is_left_at_once() -> None:
    choice = StickyChoice(1000, draw=lambda count: 0)
    topic = TopicBatches(2)
    assert choice.choose(topic, [0, 1], 100) == 0
    assert choice.choose(topic, [1], 100) == 1


def test_the_only_partition_is_chosen_again_and_again() -> None:
    choice = StickyChoice(10, draw=lambda count: 0)
    topic = TopicBatches(8)
    assert [choice.choose(topic, [7], 100) for _ in range(3)] == [7, 7, 7]
