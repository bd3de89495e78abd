"""The losses that the simulation permits: never an acknowledged record without another copy."""

from __future__ import annotations

from ottla.protocol.cluster.cluster_image import ClusterImage, PartitionState, TopicState
from tests.simulation.cluster.losses import Losses


def _image(*isr: int) -> ClusterImage:
    image = ClusterImage()
    image.topics["orders"] = TopicState(b"", "orders", {0: PartitionState((1, 2, 3), isr)})
    return image


def test_what_was_flushed_outlives_power_and_not_rot() -> None:
    losses = Losses(durable=True, min_in_sync="2")
    assert losses.of_memory([1, 2, 3], _image(1), {1, 2, 3}, set())
    assert not losses.of_disks([1], _image(1), {1, 2, 3}, set())
    assert losses.of_disks([1], _image(1, 2), {1, 2, 3}, set())


def test_where_one_replica_is_enough_none_may_lose_what_it_has() -> None:
    flushed, unflushed = Losses(durable=True, min_in_sync="1"), Losses(durable=False, min_in_sync="1")
    assert not flushed.of_disks([1], _image(1, 2, 3), {1, 2, 3}, set())
    assert not unflushed.of_disks([1], _image(1, 2, 3), {1, 2, 3}, set())
    assert not unflushed.of_memory([1], _image(1, 2, 3), {1, 2, 3}, set())
    assert flushed.of_memory([1], _image(1), {1}, set())


def test_a_replica_that_rots_or_is_away_is_not_counted_on() -> None:
    losses = Losses(durable=False, min_in_sync="2")
    assert losses.of_memory([1], _image(1, 2), {1, 2, 3}, set())
    assert not losses.of_memory([1], _image(1, 2), {1, 3}, set())
    assert losses.of_memory([3], _image(1, 2), {2}, set())
    assert not losses.of_memory([1, 2], _image(1, 2), {1, 2, 3}, set())


def test_nothing_is_lost_while_nobody_knows_who_is_in_sync() -> None:
    assert not Losses(durable=False, min_in_sync="2").of_memory([1], None, set(), set())
    assert not Losses(durable=True, min_in_sync="2").of_disks([1], None, set(), set())
    assert Losses(durable=False, min_in_sync="1").of_memory([], None, set(), set())


def test_only_one_at_a_time_loses_something() -> None:
    """The third replica may leave the ISR while the others are away, or be removed."""
    losses = Losses(durable=False, min_in_sync="2")
    assert losses.of_memory([1], _image(1, 2, 3), {2, 3}, {1})
    assert not losses.of_memory([1], _image(1, 2, 3), {1, 2}, {3})
    assert not losses.of_memory([1, 2], _image(1, 2, 3), {1, 2, 3}, set())
    assert not losses.of_disks([1], _image(1, 2, 3), {1, 2}, {3})
    assert Losses(durable=True, min_in_sync="2").of_memory([1, 2], _image(1, 2, 3), {3}, {3})
