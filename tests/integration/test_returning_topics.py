"""A topic that was deleted comes back from its promoted copy, under another topic id."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla import Admin, NewTopic, Producer
from tests.cluster import running_cluster
from tests.integration.mirroring import is_level, records_of, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


async def write(bootstrap: str, topic: str, *values: bytes) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)


async def topic_id(admin: Admin, topic: str) -> bytes:
    (info,) = await admin.describe_topics([topic])
    return info.id


async def test_readers_that_were_ahead_of_the_copy_find_another_topic(tmp_path: Path) -> None:
    for name in ("west", "east"):
        (tmp_path / name).mkdir()
    with (
        running_cluster(tmp_path / "west", quorum=1, brokers=1) as west,
        running_cluster(tmp_path / "east", quorum=1, brokers=1) as east,
    ):
        async with Admin(bootstrap_servers=west.bootstrap) as here:
            async with Admin(bootstrap_servers=east.bootstrap) as there:
                await here.create_topics([NewTopic("orders", 1, 1)])
                await write(west.bootstrap, "orders", b"1", b"2")
                former = await topic_id(here, "orders")
                await there.create_mirror("west", source=west.bootstrap, topics="orders")
                await until(lambda: is_level(west.bootstrap, east.bootstrap, "orders"), "a copy")
                await there.promote_mirror("west")
                await there.delete_mirror("west")
                assert await topic_id(there, "orders") == former
                await write(west.bootstrap, "orders", b"never copied")
                await write(east.bootstrap, "orders", b"3", b"4")
            await here.delete_topics(["orders"])
            await here.create_mirror("east", source=east.bootstrap, topics="orders")
            await until(lambda: is_level(east.bootstrap, west.bootstrap, "orders"), "a copy of the copy")
            await here.promote_mirror("east")
            assert await topic_id(here, "orders") != former
        found = await records_of(west.bootstrap, "orders")
        assert [record[3] for record in found[0]] == [b"1", b"2", b"3", b"4"]
