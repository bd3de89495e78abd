"""SharedAnswer readings: one request for all pages, rarely repeated, within bounds; the lag of groups by topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast
from unittest.mock import patch

import pytest

from ottla.client.admin import Admin, GroupDescription, GroupListing, ShareGroupOffset
from ottla.client.records import TopicPartition
from ottla.console.live import group_lags
from ottla.console.live.group_lags import TopicLag, lag_by_topic, read_lags
from ottla.console.live.shared_answer import AGE_S, CPU_SHARE, SharedAnswer
from ottla.console.live.shared_readings import SharedReadings, TopicSize, sizes_by_topic
from ottla.protocol.errors import ErrorCode, KafkaError

NO_LEADER = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")


class Slow:
    """A request whose answer counts up, and takes as long as a test wants."""

    def __init__(self) -> None:
        self.asked = 0
        self.now_s = self.cpu_s = 100.0
        self.takes_cpu_s = 0.0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.failure: Exception | None = None

    async def __call__(self) -> int:
        self.asked += 1
        await self.may_answer.wait()
        self.cpu_s += self.takes_cpu_s
        if self.failure is not None:
            raise self.failure
        return self.asked

    def costly(self) -> SharedAnswer[int]:
        return SharedAnswer(self, now=lambda: self.now_s, cpu=lambda: self.cpu_s)


async def test_all_pages_share_one_request() -> None:
    slow = Slow()
    costly = slow.costly()
    assert await asyncio.gather(*(costly.get(patience_s=9) for _ in range(20))) == [1] * 20
    slow.now_s += AGE_S - 0.1
    assert await costly.get(patience_s=9) == 1
    slow.now_s += 0.2
    assert await costly.get(patience_s=9) == 2
    await costly.stop()


async def test_an_answer_that_has_changed_is_asked_for_at_once() -> None:
    slow = Slow()
    costly = slow.costly()
    assert await costly.get(patience_s=9) == 1
    costly.expire()
    assert await costly.get(patience_s=9) == 2
    await costly.stop()


async def test_an_answer_that_changes_while_it_is_under_way_is_asked_for_again() -> None:
    slow = Slow()
    costly = slow.costly()
    slow.may_answer.clear()
    assert await costly.get(patience_s=0.01) is None
    costly.expire()
    slow.may_answer.set()
    assert await costly.get(patience_s=9) == 1
    assert await costly.get(patience_s=9) == 2
    await costly.stop()


async def test_an_expensive_request_is_repeated_less_often() -> None:
    slow = Slow()
    slow.takes_cpu_s = 2.0
    costly = slow.costly()
    await costly.get(patience_s=9)
    slow.now_s += 2.0 / CPU_SHARE - 1
    assert await costly.get(patience_s=9) == 1
    slow.now_s += 2
    assert await costly.get(patience_s=9) == 2
    await costly.stop()


async def test_a_page_does_not_wait_for_a_slow_answer() -> None:
    slow = Slow()
    costly = slow.costly()
    slow.may_answer.clear()
    assert await costly.get(patience_s=0.01) is None
    slow.may_answer.set()
    assert await costly.get(patience_s=9) == 1
    slow.now_s += 1000
    slow.may_answer.clear()
    assert await costly.get(patience_s=0.01) == 1  # the old answer
    assert slow.asked == 2
    await costly.stop()


async def test_a_failure_is_raised_and_the_next_page_asks_again() -> None:
    slow = Slow()
    costly = slow.costly()
    slow.failure = NO_LEADER
    with pytest.raises(KafkaError):
        await costly.get(patience_s=9)
    slow.failure = None
    assert await costly.get(patience_s=9) == 2
    await costly.stop()


# ------------------------------------------------------------ lag


def places(topic: str, *values: int | KafkaError) -> dict[TopicPartition, Any]:
    return {TopicPartition(topic, index): value for index, value in enumerate(values)}


def test_the_lag_of_a_group_by_topic() -> None:
    offsets = places("orders", 5, 10, 3) | places("gone", 4)
    ends = places("orders", 8, 9, NO_LEADER)  # the end of partition 1 was read before its offset
    found = lag_by_topic(offsets, ends)
    assert found == {"orders": TopicLag(3, 3, 1), "gone": TopicLag(1, None, 1)}
    assert group_lags.GroupLags({"g": found}).total("g") == TopicLag(4, 3, 2)
    assert group_lags.GroupLags().total("g") is None


class Groups:
    """A cluster whose group `gN` has committed offset 0 in topic `t` partition N, where each partition ends at 7."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.described: list[str] = []
        self.ends_read = 0

    def listing(self) -> list[GroupListing]:
        return [
            GroupListing(f"g{number:04}", "consumer", "Stable", "classic", 1) for number in range(self.count)
        ]

    async def list_groups_by_broker(self) -> dict[int, list[GroupListing] | KafkaError]:
        return {1: self.listing(), 2: NO_LEADER}

    async def committed_offsets_of_groups(
        self, groups: Iterable[GroupListing]
    ) -> dict[str, dict[TopicPartition, int] | KafkaError]:
        found: dict[str, dict[TopicPartition, int] | KafkaError] = {
            group.group_id: {TopicPartition("t", int(group.group_id[1:])): 0} for group in groups
        }
        if "g0003" in found:
            found["g0003"] = NO_LEADER
        return found

    async def share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        if group_id != "s":
            raise NO_LEADER
        places = {0: ShareGroupOffset(5, 2), 1: ShareGroupOffset(5, 4), 2: ShareGroupOffset(None, None)}
        return {TopicPartition("t", index): place for index, place in places.items()}

    async def list_offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.ends_read += len(asked)
        return dict.fromkeys(asked, 7)

    async def describe_groups(self, names: Iterable[str]) -> list[GroupDescription]:
        self.described += names
        if "gone" in self.described[-1:]:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "gone")
        return [cast(GroupDescription, name) for name in self.described[-1:]]


async def test_the_lag_of_many_groups_is_read_within_bounds() -> None:
    cluster = Groups(1_300)
    admin = cast(Admin, cluster)
    share = GroupListing("s", "share", "Stable", "share", 1)
    with (
        patch.object(group_lags, "GROUPS_READ_MAX", 1_200),
        patch.object(group_lags, "PARTITIONS_READ_MAX", 900),
    ):
        lags = await read_lags(admin, [share, *cluster.listing()])
    assert len(lags.groups) == 1_199, "one of them the share group"
    assert lags.total("s") == TopicLag(3, 6, 1)
    assert lags.refused == {"g0003": "no leader"}
    assert (lags.left_out, lags.unread) == (101, 298)
    assert cluster.ends_read == 900
    assert lags.total("g0000") == TopicLag(1, 7, 0)
    assert lags.total("g1198") == TopicLag(1, None, 1)


async def test_a_share_group_whose_coordinator_refuses_hides_no_other() -> None:
    cluster = Groups(1)
    other = GroupListing("other", "share", "Stable", "share", 1)
    lags = await read_lags(cast(Admin, cluster), [other, *cluster.listing()])
    assert (lags.refused, list(lags.groups)) == ({"other": "no leader"}, ["g0000"])


async def test_ends_of_shared_partitions_are_read_once() -> None:
    cluster = Groups(4)
    lags = await read_lags(cast(Admin, cluster), cluster.listing() * 300)
    assert cluster.ends_read == 3
    assert len(lags.groups) == 3


async def test_all_groups_are_listed_beside_the_errors_of_brokers() -> None:
    cluster = Groups(3)
    now = [50.0]
    readings = SharedReadings(cast(Admin, cluster), cast(Any, None), now=lambda: now[0])
    found = await readings.groups()
    assert found is not None
    assert (found.at_s, list(found.listed)) == (50, ["g0000", "g0001", "g0002"])
    assert list(found.silent) == [2]
    assert found.lags.total("g0002") == TopicLag(1, 7, 0)
    await readings.stop()


async def test_descriptions_are_kept_for_some_seconds() -> None:
    cluster = Groups(0)
    now = [50.0]
    readings = SharedReadings(cast(Admin, cluster), cast(Any, None), now=lambda: now[0])
    for _ in range(2):
        assert list(await readings.describe(["a", "gone", "b"])) == ["a", "b"]
    assert cluster.described == ["a", "gone", "b", "gone"]
    now[0] += AGE_S
    await readings.describe(["a"])
    assert cluster.described[-1] == "a"
    with patch("ottla.console.live.shared_readings.GROUPS_DESCRIBED_MAX", 2):
        await readings.describe(["c", "d"])
    assert len(readings._described) == 2


def test_the_size_of_a_topic_is_that_of_its_partitions() -> None:
    sizes = places("a", 5, 6) | places("b", 1)
    assert sizes_by_topic(sizes) == {"a": TopicSize(11, 2), "b": TopicSize(1, 1)}
