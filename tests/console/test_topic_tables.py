"""Topics and partitions in the order of any column, and the groups that read a topic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import pytest

from ottla.client.admin import GroupListing, GroupMember, OngoingReassignment
from ottla.client.records import TopicPartition
from ottla.console.live.counters import Rates, TopicTraffic
from ottla.console.pages.topics import partitions, readers
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import Browser, partition, seen, target, topic
from tests.console.test_groups import WithGroups

FLIGHTS = [TopicPartition("flights", index) for index in range(3)]


class Busy(WithGroups):
    """A cluster with the topics `flights`, which grows fastest and which two groups read, `orders` and `refunds`."""

    def __init__(self) -> None:
        super().__init__()
        self.topics["flights"] = topic("flights", partition(0), partition(1), partition(2, isr=(1,)))
        self.sizes = {"flights": 100, "orders": 300, "refunds": 200}
        self.starts |= {FLIGHTS[1]: 50}
        self.ends |= {FLIGHTS[0]: 1_000, FLIGHTS[1]: 2_000, FLIGHTS[2]: 10}
        board = GroupMember("board-1", None, "board", "/10.0.0.7", tuple(FLIGHTS), -1)
        self.members |= {"board": (board,), "archive": ()}
        self.committed |= {
            "board": {FLIGHTS[0]: 990, FLIGHTS[1]: 2_000},
            "archive": {FLIGHTS[0]: 100, FLIGHTS[1]: 0},
        }

    async def partition_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {name: self.sizes[name.topic] for name in partitions if name.topic in self.sizes}


@pytest.fixture
def admin() -> Busy:
    return Busy()


@pytest.fixture
def browser(admin: Busy) -> Browser:
    return Browser(admin, may_change=True).enter()


def rates(**records_in: float) -> Rates:
    return Rates({}, {TopicTraffic.RECORDS_IN: records_in})


def names(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/topics/topic\?name=([\w.-]+)"', page)


# ------------------------------------------------------------ the list


def test_topics_are_sorted_by_each_column(admin: Busy, browser: Browser) -> None:
    browser.session.sampler.rates = rates(flights=50.0, refunds=2.0)
    assert names(browser.read("/topics")) == ["flights", "orders", "refunds"]
    assert names(browser.read("/topics?sort=-topic")) == ["refunds", "orders", "flights"]
    assert names(browser.read("/topics?sort=-records-in")) == ["flights", "refunds", "orders"]
    assert names(browser.read("/topics?sort=-state"))[0] == "flights"
    assert names(browser.read("/topics?sort=partitions")) == ["refunds", "orders", "flights"]
    assert names(browser.read("/topics?sort=-size")) == [
        "orders",
        "flights",
        "refunds",
    ]  # all their partitions
    wrong = seen(browser.read("/topics?sort=owner", 400))
    assert "'sort' is one of topic, state, partitions, replicas, size, records-in, with - before it" in wrong


def test_bytes_have_columns_where_brokers_report_them(admin: Busy, browser: Browser) -> None:
    assert "bytes in" not in browser.read("/topics")
    traffic = {TopicTraffic.BYTES_IN: {"orders": 2048.0}, TopicTraffic.BYTES_OUT: {"orders": 4096.0}}
    browser.session.sampler.rates = Rates({}, traffic)
    page = browser.read("/topics?sort=-bytes-out")
    assert names(page)[0] == "orders"
    assert "\u2013 2.0 KiB/s 4.0 KiB/s" in seen(page)


def test_the_order_by_size_tells_why_sizes_are_missing(admin: Busy, browser: Browser) -> None:
    async def refused(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no right")

    admin.partition_sizes = refused  # type: ignore[method-assign]
    page = browser.read("/topics?sort=-size")
    assert "Sizes are unknown: no right" in seen(page)
    assert names(page) == ["flights", "orders", "refunds"]


def test_partitions_that_move_are_counted(admin: Busy, browser: Browser) -> None:
    async def moving() -> dict[TopicPartition, Any]:
        return dict.fromkeys(FLIGHTS[:2], OngoingReassignment((1, 2, 3), (4,), (1,)))

    admin.list_partition_reassignments = moving  # type: ignore[method-assign]
    assert "1 under-replicated 2 reassigning" in seen(browser.read("/topics"))
    assert "state 1 under-replicated 2 reassigning" in seen(browser.read("/topics/topic?name=flights"))


def test_an_empty_list_says_what_to_do_next(admin: Busy, browser: Browser) -> None:
    assert "No topic has this name. Internal topics are not included." in seen(browser.read("/topics?q=none"))
    admin.topics.clear()
    page = Browser(admin, may_change=True).enter().read("/topics")
    assert 'There are no topics yet. <a href="/topics/create">' in page


# ------------------------------------------------------------ partitions


def indexes(page: str) -> list[int]:
    return [
        int(index)
        for index in re.findall(r'<tr><th scope="row" data-label="partition" class="number">(\d+)</th>', page)
    ]


def test_partitions_are_sorted_by_each_column(browser: Browser) -> None:
    address = "/topics/topic?name=flights"
    assert indexes(browser.read(address)) == [0, 1, 2]
    assert indexes(browser.read(f"{address}&sort=-end")) == [1, 0, 2]
    assert indexes(browser.read(f"{address}&sort=records")) == [2, 0, 1]
    assert indexes(browser.read(f"{address}&sort=-isr"))[0] == 2
    assert 'href="/topics/topic?name=flights&amp;sort=-size#partitions">size' in browser.read(address)


def test_each_partition_leads_to_a_sample_of_its_messages(browser: Browser) -> None:
    page = browser.read("/topics/topic?name=flights")
    for index in range(3):
        assert f'href="/messages?topic=flights&amp;partition={index}"' in page


def test_many_partitions_are_not_sorted_by_what_leaders_tell(browser: Browser) -> None:
    with patch.object(partitions, "PARTITIONS_SORTED_MAX", 2):
        page = browser.read("/topics/topic?name=flights")
        assert '<th scope="col" class="number">size</th>' in page
        assert "sort=-leader" in page or "sort=leader" in page
        assert "is one of partition, leader" in seen(
            browser.read("/topics/topic?name=flights&sort=-size", 400)
        )


def test_the_size_of_a_topic_with_many_pages_of_partitions(admin: Busy, browser: Browser) -> None:
    admin.topics["flights"] = topic("flights", *(partition(index) for index in range(120)))
    assert "size 11.7 KiB" in seen(browser.read("/topics/topic?name=flights"))


# ------------------------------------------------------------ readers


def test_a_topic_names_the_groups_that_read_it_with_their_lag(browser: Browser) -> None:
    page = seen(browser.read("/topics/topic?name=flights"))
    assert "groups 2" in page
    assert "archive Empty 0 2,900 board Stable 1 10 Offsets as of" in page
    assert "billing" not in page
    assert "billing Stable 1 10" in seen(browser.read("/topics/topic?name=orders"))
    page = browser.read("/topics/topic?name=flights&readers-sort=group")
    assert page.index("name=archive") < page.index("name=board")
    assert 'href="/topics/topic?name=flights&amp;readers-sort=-group#readers"' in page


def test_a_group_that_has_committed_nothing_yet_is_found_by_its_members(
    admin: Busy, browser: Browser
) -> None:
    admin.committed["board"] = {}
    assert "board Stable 1 \u2013 Offsets as of" in seen(browser.read("/topics/topic?name=flights"))
    assert "board" not in seen(browser.read("/topics/topic?name=refunds"))
    with patch.object(readers, "UNCOMMITTED_MAX", 0):
        page = seen(browser.read("/topics/topic?name=flights"))
    assert "1 more groups have members and no committed offsets. They may read this topic, too." in page


def test_many_readers_have_pages(admin: Busy, browser: Browser) -> None:
    admin.members |= {f"g{number:02}": () for number in range(60)}
    admin.committed |= {f"g{number:02}": {FLIGHTS[0]: number} for number in range(60)}
    page = browser.read("/topics/topic?name=flights&readers=4&readers-sort=-lag")
    assert "page 4 of 4, 62 rows" in seen(page)
    assert "name=board" in page


def test_a_topic_opens_without_its_groups(admin: Busy, browser: Browser) -> None:
    async def refused() -> dict[int, list[GroupListing] | KafkaError]:
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no right")

    admin.list_groups_by_broker = refused  # type: ignore[method-assign]
    page = seen(browser.read("/topics/topic?name=flights"))
    assert "The groups are unknown: no right" in page
    assert "1,950" in page


def test_three_clicks_from_the_overview_tell_which_topic_grows_who_reads_it_and_how_far_behind(
    browser: Browser,
) -> None:
    browser.session.sampler.rates = rates(flights=50.0, orders=20.0, refunds=2.0)
    page = browser.read("/overview")
    page = browser.read(target(page, "Topics"))
    page = browser.read(target(page, "records in"))
    assert names(page)[0] == "flights"
    page = browser.read(target(page, "flights"))
    assert "records in 50/s" in seen(page)
    assert "board Stable 1 10" in seen(page)
    assert 'href="/groups/group?name=board"' in page
