"""Elections of leaders in the console: who leads after, and what stands in the way."""

from __future__ import annotations

import pytest

from ottla.client.connections.metadata import PartitionInfo
from ottla.client.records import TopicPartition
from ottla.console.pages.reassignments.elections import (
    Candidate,
    election_command,
    preferred_candidate,
    preferred_lines,
    unclean_candidate,
    unclean_line,
)
from ottla.console.pages.reassignments.preview import LINES_MAX
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.brokers_with_replicas import REFUSAL, ReplicasAdmin, partition_on
from tests.console.fakes import Browser, seen, topic

ELECT, UNCLEAN = "/reassignments/elect", "/reassignments/unclean"
ORDERS = TopicPartition("orders", 0)
LIVE = {1, 2, 3}


def browser_of(admin: ReplicasAdmin) -> Browser:
    return Browser(admin, may_change=True).enter()


def admin_of(*partitions: PartitionInfo) -> ReplicasAdmin:
    return ReplicasAdmin(topic("orders", *partitions), topic("refunds", partition_on(0, 2, 3, leader=3)))


# ------------------------------------------------------------ candidates


@pytest.mark.parametrize(
    ("info", "obstacle"),
    [
        (partition_on(0, 1, 2, leader=2), ""),
        (partition_on(0, 1, 2, leader=2, isr=(2,)), "broker 1 is not in sync"),
        (partition_on(0, 9, 2, leader=2, isr=(2,)), "broker 9 is not active"),
    ],
)
def test_a_preferred_leader_must_be_in_sync(info: PartitionInfo, obstacle: str) -> None:
    candidate = preferred_candidate(ORDERS, info, LIVE)
    assert candidate is not None
    assert candidate.obstacle == obstacle
    assert preferred_candidate(ORDERS, partition_on(0, 1, 2), LIVE) is None
    assert preferred_candidate(ORDERS, partition_on(0, 1, 2, leader=-1, isr=(2,)), LIVE) is None


def test_only_partitions_without_a_leader_need_an_unclean_election() -> None:
    assert unclean_candidate(ORDERS, partition_on(0, 1, 2), LIVE) is None
    candidate = unclean_candidate(ORDERS, partition_on(0, 9, 2, 3, leader=-1, isr=(9,)), LIVE)
    assert candidate is not None
    line = unclean_line(candidate)
    assert (line.before, line.after) == ("no leader; in sync: 9; not active: 9", "leader one of 2, 3")
    dead = unclean_candidate(ORDERS, partition_on(0, 8, 9, leader=-1, isr=(9,)), LIVE)
    assert dead is not None
    assert unclean_line(dead).after == "still no leader: no replica is on an active broker"


def test_many_elections_have_a_line_for_each_topic() -> None:
    candidates = [
        Candidate(TopicPartition("orders", index), partition_on(index, 1, 2, leader=2), (1, 2))
        for index in range(LINES_MAX + 1)
    ]
    candidates += [
        Candidate(TopicPartition("refunds", 0), partition_on(0, 9, 2, leader=2), (2,), "it is down")
    ]
    lines = [(line.what, line.before, line.after) for line in preferred_lines(candidates)]
    assert lines == [
        ("orders, 301 partitions", "leaders 2", "leaders 1"),
        ("refunds, 0 partitions", "leaders \u2013", "leaders \u2013; 1 partition more cannot change now"),
        ("broker 1: leads of these partitions", "0", "301"),
        ("broker 2: leads of these partitions", "301", "0"),
    ]
    assert election_command(candidates[:300]) == "ottla cluster elect --topic orders:0-299"
    odd = [
        Candidate(TopicPartition("x" * 200, 2 * index), partition_on(0, 1, 2), ()) for index in range(20_000)
    ]
    assert election_command(odd) == ""


# ------------------------------------------------------------ preferred leaders


def test_preferred_leaders_are_elected_after_a_preview() -> None:
    admin = admin_of(
        partition_on(0, 1, 2, leader=2),
        partition_on(1, 2, 3),
        partition_on(2, 1, 3, leader=3, isr=(3,)),
        partition_on(3, 1, 2, leader=2),
    )
    browser = browser_of(admin)
    assert 'href="/reassignments/elect"' in browser.read("/reassignments")
    link = "/reassignments/elect?topic=orders&amp;partitions=0"
    assert link in browser.read("/topics/topic?name=orders")
    preview = seen(browser.send(ELECT, topic="orders", partitions="", step="preview"))
    assert "Elect the preferred leaders of 2 partitions" in preview
    assert "orders-0 leader 2 leader 1 orders-2 leader 3 still leader 3: broker 1 is not in sync" in preview
    assert "broker 1: leads of these partitions 0 2 broker 2: leads of these partitions 2 0" in preview
    assert "refunds" not in preview
    assert "ottla cluster elect --topic orders:0,3" in preview
    assert admin.changes() == []
    browser.change(ELECT, topic="orders", partitions="")
    assert admin.calls == [("elect", [ORDERS, TopicPartition("orders", 3)])]
    page = seen(browser.send(ELECT, 400, topic="orders"))
    assert "no preferred leader can lead now: orders-2: broker 1 is not in sync" in page


def test_all_topics_and_single_partitions() -> None:
    admin = admin_of(partition_on(0, 1, 2, leader=2), partition_on(1, 1, 2, leader=2))
    browser = browser_of(admin)
    assert "--topic orders:0-1 --topic refunds:0" in seen(browser.send(ELECT))
    assert "elect --topic orders:1 Do it" in seen(browser.send(ELECT, topic="orders", partitions="1"))


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"topic": "none"}, 404, "there is no topic 'none'"),
        ({"partitions": "1"}, 400, "partitions need a topic"),
        ({"topic": "orders", "partitions": "7"}, 400, "orders has the partitions 0 to 0, not 7"),
        ({"topic": "orders"}, 400, "the preferred leaders lead already"),
    ],
)
def test_an_election_that_cannot_be(fields: dict[str, str], status: int, reason: str) -> None:
    admin = admin_of(partition_on(0, 1, 2))
    assert reason in seen(browser_of(admin).send(ELECT, status, **fields))


def test_leaders_that_have_changed_since_are_shown_again() -> None:
    admin = admin_of(partition_on(0, 1, 2, 3, leader=2))
    browser = browser_of(admin)
    for now, reason in (
        (partition_on(0, 1, 2, 3, leader=3), "orders-0 has another leader, ISR or replicas by now"),
        (partition_on(0, 1, 2, 3, leader=2, isr=(2,)), "orders-0: broker 1 is not in sync"),
        (partition_on(0, 1, 2, 3), "the preferred leaders lead already"),
    ):
        admin.topics["orders"] = topic("orders", partition_on(0, 1, 2, 3, leader=2))
        preview = browser.send(ELECT, topic="orders")
        admin.topics["orders"] = topic("orders", now)
        status = 409 if "another leader, ISR" in reason else 400
        assert reason in seen(browser.do_it(ELECT, preview, status))
    assert admin.changes() == []


def test_an_election_that_is_not_needed_any_more_is_no_failure() -> None:
    admin = admin_of(partition_on(0, 1, 2, leader=2), partition_on(1, 1, 2, leader=2))
    admin.refused[ORDERS] = KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "it leads")
    browser = browser_of(admin)
    browser.change(ELECT, topic="orders")
    admin.topics["orders"] = topic("orders", partition_on(0, 1, 2, leader=2))
    admin.refused[ORDERS] = REFUSAL
    page = seen(browser.do_it(ELECT, browser.send(ELECT, topic="orders"), 403))
    assert "orders-0: denied: ALTER on cluster; 0 of 1 partitions were accepted" in page


# ------------------------------------------------------------ unclean


def test_an_unclean_election_needs_the_name_and_warns() -> None:
    admin = admin_of(
        partition_on(0, 1, 2, 3, leader=-1, isr=(1,)),
        partition_on(1, 2, 3),
        partition_on(2, 1, leader=-1, isr=(1,)),
    )
    admin.brokers = [2, 3]
    browser = browser_of(admin)
    assert "/reassignments/unclean" in browser.read("/reassignments")
    assert "/reassignments/unclean?topic=orders&amp;partitions=0" in browser.read("/topics/topic?name=orders")
    assert 'name="topic" value="orders"' in browser.read(f"{UNCLEAN}?topic=orders")
    assert "the name is orders, not 'order'" in seen(
        browser.send(UNCLEAN, 400, topic="orders", again="order")
    )
    fields = {"topic": "orders", "again": "orders"}
    preview = seen(browser.send(UNCLEAN, **fields))
    assert "Committed records that only absent replicas have are lost. This cannot be undone." in preview
    assert "orders-0 no leader; in sync: 1; not active: 1 leader one of 2, 3" in preview
    assert "orders-2 no leader; in sync: 1; not active: 1 still no leader" in preview
    assert "ottla cluster elect --unclean --yes --topic orders:0" in preview
    browser.change(UNCLEAN, **fields)
    assert admin.calls == [("unclean", [ORDERS])]
    page = seen(browser.send(UNCLEAN, 400, **fields))
    assert "orders-2 has no leader, and no replica on an active broker" in page
    assert "'topic' is missing" in seen(browser.send(UNCLEAN, 400, again="orders"))


def test_a_partition_whose_leader_came_back_is_left_alone() -> None:
    admin = admin_of(partition_on(0, 1, 2, 3, leader=-1, isr=(1,)))
    browser = browser_of(admin)
    fields = {"topic": "orders", "again": "orders"}
    preview = browser.send(UNCLEAN, **fields)
    admin.topics["orders"] = topic("orders", partition_on(0, 1, 2, 3, isr=(1,)))
    assert "each of these partitions has a leader" in seen(browser.do_it(UNCLEAN, preview, 400))
    assert admin.changes() == []


def test_a_console_that_only_reads_has_no_forms() -> None:
    admin = admin_of(partition_on(0, 1, 2, leader=2), partition_on(1, 1, 2, leader=-1))
    browser = Browser(admin).enter()
    for page in ("/reassignments", "/topics/topic?name=orders"):
        text = browser.read(page)
        assert "/reassignments/elect" not in text
        assert "/reassignments/unclean" not in text


def test_an_isr_that_has_changed_outdates_an_unclean_election() -> None:
    admin = admin_of(partition_on(0, 1, 2, 3, leader=-1, isr=(1,)))
    admin.brokers = [2, 3]
    browser = browser_of(admin)
    fields = {"topic": "orders", "again": "orders"}
    preview = browser.send(UNCLEAN, **fields)
    admin.topics["orders"] = topic("orders", partition_on(0, 1, 2, 3, leader=-1, isr=(3,)))
    assert "orders-0 has another leader, ISR or replicas by now" in seen(browser.do_it(UNCLEAN, preview, 409))
    assert admin.changes() == []
