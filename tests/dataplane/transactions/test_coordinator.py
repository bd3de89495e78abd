"""The broker that coordinates a transactional id."""

from __future__ import annotations

from collections import Counter

from ottla.dataplane.transactions.coordinator import NOBODY, coordinator_of
from ottla.protocol.cluster.cluster_image import BrokerState, ClusterImage

IDS = [f"payments-{number}" for number in range(600)]


def image_of(*usable: int, fenced: tuple[int, ...] = ()) -> ClusterImage:
    image = ClusterImage()
    for broker_id in (*usable, *fenced):
        image.brokers[broker_id] = BrokerState(broker_id, 1, bytes(16), fenced=broker_id in fenced)
    return image


def test_ids_are_spread_over_the_brokers() -> None:
    image = image_of(1, 2, 3)
    counts = Counter(coordinator_of(name, image) for name in IDS)
    assert counts.keys() == {1, 2, 3}
    assert min(counts.values()) > 120


def test_only_ids_of_a_broker_that_goes_move() -> None:
    before, after = image_of(1, 2, 3), image_of(1, 3, fenced=(2,))
    for name in IDS:
        named = coordinator_of(name, before)
        assert coordinator_of(name, after) == named or named == 2


def test_without_brokers_nobody_is_named() -> None:
    assert coordinator_of("payments", image_of(fenced=(1,))) == NOBODY
