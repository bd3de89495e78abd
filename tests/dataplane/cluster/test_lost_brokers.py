"""The time for which answers wait for news of a broker whose connection has ended."""

from __future__ import annotations

import asyncio

import pytest

from ottla.dataplane.cluster import lost_brokers
from ottla.dataplane.cluster.lost_brokers import LostBrokers
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.messages.metadata_records import BrokerRecord, BrokerRemovedRecord


class World:
    """Three brokers, and answers that wait for news of them."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.lost = LostBrokers(lambda: self.image)
        for broker_id in (1, 2, 3):
            self.tell(BrokerRecord(broker_id=broker_id, broker_epoch=1, fenced=False))

    def tell(self, record: BrokerRecord | BrokerRemovedRecord) -> None:
        self.image.apply(record)
        self.lost.image_changed(self.image, ImageDelta(brokers={record.broker_id}))


@pytest.mark.parametrize(
    "news",
    [
        BrokerRecord(broker_id=2, broker_epoch=1, fenced=True),
        BrokerRecord(broker_id=2, broker_epoch=1, fenced=False, shutting_down=True),
        BrokerRemovedRecord(broker_id=2),
    ],
    ids=["fenced", "shutting down", "removed"],
)
async def test_news_end_the_wait(news: BrokerRecord | BrokerRemovedRecord) -> None:
    world = World()
    world.lost.lost(2)
    waiting = asyncio.ensure_future(world.lost.settled())
    world.tell(BrokerRecord(broker_id=3, broker_epoch=1, fenced=True))
    world.tell(BrokerRecord(broker_id=2, broker_epoch=1, fenced=False, rack="r"))
    await asyncio.sleep(0)
    assert not waiting.done()
    world.tell(news)
    await asyncio.wait_for(waiting, 60)
    assert not world.lost.ids


async def test_without_news_the_wait_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_brokers, "NEWS_S_MAX", 0.001)
    world = World()
    world.lost.lost(2)
    await asyncio.wait_for(world.lost.settled(), 60)
    assert not world.lost.ids


@pytest.mark.parametrize(
    "known",
    [
        BrokerRecord(broker_id=2, broker_epoch=1, fenced=True),
        BrokerRecord(broker_id=2, broker_epoch=1, fenced=False, shutting_down=True),
        BrokerRemovedRecord(broker_id=2),
    ],
    ids=["fenced", "shutting down", "removed"],
)
async def test_nobody_waits_for_what_is_known(known: BrokerRecord | BrokerRemovedRecord) -> None:
    world = World()
    world.tell(known)
    world.lost.lost(2)
    assert not world.lost.ids


async def test_several_losses_are_each_waited_for_and_a_second_end_changes_nothing() -> None:
    world = World()
    for broker_id in (2, 3, 2):
        world.lost.lost(broker_id)
    waiting = asyncio.ensure_future(world.lost.settled())
    world.tell(BrokerRecord(broker_id=3, broker_epoch=1, fenced=True))
    await asyncio.sleep(0)
    assert not waiting.done()
    world.lost.close()
    await asyncio.wait_for(waiting, 60)
