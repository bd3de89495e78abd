"""The time for which clients still see a broker that was fenced."""

from __future__ import annotations

import pytest

from ottla.dataplane.cluster.listed_brokers import ListedBrokers
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.messages.metadata_records import BrokerListener, BrokerRecord, BrokerRemovedRecord

LINGER_MS = 9_000


class World:
    """An image, a clock, and the list of brokers."""

    def __init__(self, linger_ms: int = LINGER_MS) -> None:
        self.now_ms = 1_000_000
        self.image = ClusterImage()
        self._listed = ListedBrokers(linger_ms, lambda: self.now_ms)

    def broker(self, broker_id: int, *, fenced: bool, epoch: int = 1, port: int = 9092) -> None:
        """Change a broker in the image."""
        record = BrokerRecord(
            broker_id=broker_id,
            broker_epoch=epoch,
            listeners=[BrokerListener(name="CLIENTS", host="host", port=port)],
            rack=None,
            fenced=fenced,
        )
        self.image.apply(record)
        self._listed.image_changed(self.image, ImageDelta(brokers={broker_id}))

    def unregister(self, broker_id: int) -> None:
        self.image.apply(BrokerRemovedRecord(broker_id=broker_id))
        self._listed.image_changed(self.image, ImageDelta(brokers={broker_id}))

    @property
    def listed(self) -> list[int]:
        return [broker.broker_id for broker in self._listed.in_order(self.image)]


@pytest.fixture
def world() -> World:
    found = World()
    for broker_id in (3, 1, 2):
        found.broker(broker_id, fenced=False)
    return found


def test_a_fenced_broker_is_listed_for_as_long_as_the_setting_says(world: World) -> None:
    world.now_ms += 60_000
    assert world.listed == [1, 2, 3]
    world.broker(2, fenced=True)
    world.now_ms += LINGER_MS - 1
    assert world.listed == [1, 2, 3]
    world.now_ms += 1
    assert world.listed == [1, 3]


def test_one_that_is_back_stays_listed(world: World) -> None:
    world.broker(2, fenced=True)
    world.now_ms += LINGER_MS - 1
    world.broker(2, fenced=False, epoch=2)
    world.now_ms += 10 * LINGER_MS
    assert world.listed == [1, 2, 3]


def test_the_registration_of_its_next_process_is_news_of_it(world: World) -> None:
    """The next process registers just before the limit, and is unfenced a moment later: it does not
    vanish in between.
    """
    world.broker(2, fenced=True)
    world.now_ms += LINGER_MS - 1
    world.broker(2, fenced=True, epoch=2, port=9999)
    world.now_ms += LINGER_MS - 1
    assert world.listed == [1, 2, 3]
    world.now_ms += 1
    assert world.listed == [1, 3]


def test_one_that_was_unregistered_is_gone_at_once(world: World) -> None:
    world.broker(2, fenced=True)
    world.unregister(2)
    assert world.listed == [1, 3]


def test_what_happened_before_this_process_is_not_known(world: World) -> None:
    """A broker that the first image shows as fenced may have been killed just before."""
    world.broker(4, fenced=True)
    assert world.listed == [1, 2, 3, 4]
    world.now_ms += LINGER_MS
    assert world.listed == [1, 2, 3]


def test_none_is_listed_for_longer_where_the_setting_is_0() -> None:
    world = World(linger_ms=0)
    world.broker(1, fenced=False)
    world.broker(2, fenced=True)
    assert world.listed == [1]
