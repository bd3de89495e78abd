"""Reassignments in the console: plans with their checks, the page, cancelling, and limits of copying."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.client.admin import OngoingReassignment
from ottla.client.records import TopicPartition
from ottla.console.area import BadQuestion
from ottla.console.bounds import MOVES_MAX
from ottla.console.live.throttles import CopyLimit
from ottla.console.pages.reassignments.checks import check, names, warnings_of
from ottla.console.pages.reassignments.moving import numbers_of, replicas_of
from ottla.console.pages.reassignments.page import Copies, throttle_rows
from ottla.console.pages.reassignments.placement import PresentPlacement
from ottla.console.pages.reassignments.plans import ReplicaMove, exact, off, resized, spread
from ottla.console.pages.reassignments.preview import LINES_MAX, move_command, move_lines
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.brokers_with_replicas import MIB, REFUSAL, ReplicasAdmin, partition_on
from tests.console.fakes import HOSTILE, Browser, seen, snapshot_of, topic

TOPIC = "/reassignments/topic?name=orders"
LINES = "/reassignments/partitions?name=orders"
ORDERS = TopicPartition("orders", 0)
ALL = {f"broker {broker}": "yes" for broker in (1, 2, 3, 4, 5)}
LAST_THREE = {f"broker {broker}": "yes" for broker in (3, 4, 5)}


def browser_of(admin: ReplicasAdmin) -> Browser:
    return Browser(admin, may_change=True).enter()


@pytest.fixture
async def placement() -> PresentPlacement:
    admin = ReplicasAdmin()
    partitions = [TopicPartition("orders", index) for index in range(3)]
    return PresentPlacement(
        await admin.describe_cluster(),
        admin.topics,
        dict.fromkeys(partitions, MIB),
        dict(admin.free),
        (),
    )


def every(placement: PresentPlacement) -> list[TopicPartition]:
    return [*placement.partitions()]


# ------------------------------------------------------------ plans


def test_replicas_are_spread_over_the_chosen_brokers(placement: PresentPlacement) -> None:
    moves = spread(placement, every(placement), [3, 4, 5], None)
    assert {frozenset(move.after) for move in moves} == {frozenset((3, 4, 5))}
    assert sum(move.copied or 0 for move in moves) == 6 * MIB
    assert len({move.after[0] for move in moves}) == 3
    assert spread(placement, every(placement), [1, 2, 3], None) == []


def test_the_number_of_replicas_grows_and_shrinks(placement: PresentPlacement) -> None:
    more = spread(placement, every(placement), [1, 2, 3, 4, 5], 5)
    assert [len(move.after) for move in more] == [5, 5, 5]
    assert {broker for move in more for broker in move.after} == {1, 2, 3, 4, 5}
    assert all(set(move.before) <= set(move.after) for move in more)
    fewer = spread(placement, every(placement), [1, 2, 3], 1)
    assert sorted(move.after for move in fewer) == [(1,), (2,), (3,)]
    assert all(move.copied == 0 for move in fewer)
    with pytest.raises(BadQuestion, match="orders-0 has 3 replicas, and 2 brokers are left"):
        spread(placement, every(placement), [4, 5], None)


def test_replicas_that_go_are_the_least_useful() -> None:
    info = partition_on(0, 1, 2, 3, 4, isr=(1, 3, 4))
    assert resized(info, [1, 2, 3, 4], 3) == (1, 3, 4)
    assert resized(info, [2, 3, 4], 2) == (3, 4)
    assert resized(info, [2], 1) == (2,)
    assert resized(info, [1, 2, 3, 4, 5], 6) == (1, 2, 3, 4, -1, -2)


def test_a_broker_is_emptied_onto_the_chosen_brokers(placement: PresentPlacement) -> None:
    moves = off(placement, 2, [4], None)
    assert [move.after for move in moves] == [(1, 4, 3), (4, 3, 1), (3, 1, 4)]
    assert off(placement, 5, [1, 4], None) == []
    with pytest.raises(
        BadQuestion, match="each broker that may take orders-0 from broker 2 has a replica of it"
    ):
        off(placement, 2, [1, 3], None)


def test_brokers_that_are_down_keep_their_replicas(placement: PresentPlacement) -> None:
    live = tuple(broker for broker in placement.cluster.brokers if broker.id != 3)
    down = replace(placement, cluster=replace(placement.cluster, brokers=live))
    assert [move.after for move in off(down, 2, [4, 5], ["orders"])] == [(1, 5, 3), (5, 3, 1), (3, 1, 5)]


def test_exact_replicas_of_partitions(placement: PresentPlacement) -> None:
    (move,) = exact(placement, {ORDERS: (5, 1), TopicPartition("orders", 1): (2, 3, 1)})
    assert (move.name, move.added, move.copied) == ("orders-0", (5,), MIB)
    with pytest.raises(BadQuestion, match="orders has the partitions 0 to 2, not 7"):
        exact(placement, {TopicPartition("orders", 7): (1,)})


# ------------------------------------------------------------ checks


def move(
    *after: int, index: int = 0, before: tuple[int, ...] = (1, 2, 3), size: int | None = MIB
) -> ReplicaMove:
    return ReplicaMove(TopicPartition("orders", index), before, after, size)


@pytest.mark.parametrize(
    ("moves", "reason"),
    [
        ([move(1, 2, 9)], "broker 9 is not active; the active brokers are 1, 2, 3, 4, 5"),
        ([move()], "orders-0 would have no replica"),
        ([move(1, 1)], "orders-0 would have two replicas on one broker"),
        ([move(4, 2, 3, size=101 * MIB)], "broker 4 has 100 MiB free, and the moves copy 101 MiB to it"),
        ([move(4, index=7)], "orders-7 has no leader"),
        ([move(9), move(4, 4, index=1)], "broker 9 is not active.*; orders-1 would have two replicas"),
    ],
)
def test_moves_that_cannot_succeed(
    placement: PresentPlacement, moves: list[ReplicaMove], reason: str
) -> None:
    with pytest.raises(BadQuestion, match=reason):
        check(placement, moves)
    check(placement, [move(4, 2, 3), move(4, 3, 1, index=1)])


def test_a_partition_that_moves_already_is_refused(placement: PresentPlacement) -> None:
    with pytest.raises(BadQuestion, match="orders-0 is being reassigned already"):
        check(replace(placement, reassigning=[ORDERS]), [move(4, 2, 3)])


def test_effects_that_may_hurt_are_named(placement: PresentPlacement) -> None:
    assert warnings_of(placement, [move(4, 2, 3)], {}) == ""
    text = warnings_of(placement, [move(1, 4)], {"orders": 3})
    assert "Fewer replicas than now: orders-0." in text
    assert "Fewer replicas than min.insync.replicas: orders-0. Writes with acks=all will fail." in text
    assert "On fewer racks than now: orders-0." in text
    behind = replace(placement, topics={"orders": topic("orders", partition_on(0, 1, 2, 3, isr=(1,)))})
    assert "Under-replicated now: orders-0." in warnings_of(behind, [move(4, 2, 3)], {})


def test_many_partitions_are_counted() -> None:
    assert names(move(index=index) for index in range(7)) == (
        "orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more"
    )


def test_the_preview_of_many_moves_has_a_line_for_each_topic(placement: PresentPlacement) -> None:
    moves = [move(4, 2, 3, index=index) for index in range(LINES_MAX + 1)]
    lines = [(line.what, line.before, line.after) for line in move_lines(placement, moves, 1_000_000)]
    assert lines == [
        ("orders, 301 partitions", "on brokers 1, 2, 3", "on brokers 2, 3, 4 (copies 301 MiB)"),
        ("broker 1: replicas of these partitions", "301", "0"),
        ("broker 4: replicas of these partitions", "0", "301, copies 301 MiB of 100 MiB free"),
        ("bytes to copy", None, "301 MiB"),
        (
            "limit for each broker",
            None,
            "1,000,000 bytes/s, so the copies take 5 min or more. It stays until you lift it",
        ),
    ]
    unknown = move_lines(placement, [move(4, 2, 3, size=None)], None)
    assert unknown[-1].after == "an unknown number of bytes"


def test_commands_of_moves() -> None:
    assert move_command([move(4, 2, 3)], 5) == (
        "ottla cluster reassign --topic orders:0 --replicas 4,2,3 --throttle 5 --no-wait --yes"
    )
    two = move_command([move(4), move(5, index=1)], None)
    assert two.endswith("]}' | ottla cluster reassign /dev/stdin --no-wait --yes")
    assert '{"topic":"orders","partition":1,"replicas":[5]}' in two
    assert move_command([move(4, index=index) for index in range(MOVES_MAX)], None) == ""


def test_numbers_and_lines() -> None:
    assert numbers_of("0, 2-4,3", "partitions") == [0, 2, 3, 4]
    assert replicas_of("0=1,2\n1 = 3") == {"0": (1, 2), "1": (3,)}
    for text in ("", "a", "1-", "-1", "1,,2"):
        with pytest.raises(BadQuestion, match="partitions are numbers and ranges"):
            numbers_of(text, "partitions")
    with pytest.raises(BadQuestion, match="at most"):
        numbers_of("0-999999999", "partitions")
    for text in ("0=", "x=1", "0=1;2", "0=1,x"):
        with pytest.raises(BadQuestion, match="a line is PARTITION=BROKER,BROKER"):
            replicas_of(text)


# ------------------------------------------------------------ changes


def test_a_topic_is_reassigned_after_a_preview() -> None:
    admin = ReplicasAdmin()
    browser = browser_of(admin)
    assert TOPIC in browser.read("/topics/topic?name=orders")
    form = browser.read(TOPIC)
    assert "broker 4: rack a, 0 replicas, 100 MiB free" in seen(form)
    assert form.count(" checked") == 3
    fields = {**LAST_THREE, "partitions": "0-1", "count": "", "limit": "2.5"}
    preview = seen(browser.send(TOPIC, **fields, step="preview"))
    assert "orders-0 1, 2, 3" in preview
    assert "orders-2" not in preview
    assert "bytes to copy nothing 4.0 MiB" in preview
    assert "limit for each broker nothing 2,500,000 bytes/s" in preview
    assert "ottla cluster reassign /dev/stdin --throttle 2500000 --no-wait --yes" in preview
    assert admin.changes() == []
    assert browser.change(TOPIC, **fields).startswith("/reassignments?done=")
    assert admin.calls[0] == ("throttle", ([1, 2, 3, 4, 5], 2_500_000))
    (_, moved) = admin.calls[1]
    assert {name.partition for name in moved} == {0, 1}
    page = seen(browser.read("/reassignments"))
    assert "orders-0" in page
    assert "broker 1, 2, 3, 4, 5: sends 2.4 MiB/s at most, and copies 2.4 MiB/s at most" in page


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "choose a broker"),
        ({"broker 9": "yes"}, "broker 9 is not active any more"),
        ({**LAST_THREE, "count": "4"}, "'count' is 1 to 3, not 4"),
        ({**LAST_THREE, "partitions": "0,9"}, "orders has the partitions 0 to 2, not 9"),
        ({**LAST_THREE, "limit": "fast"}, "'limit' is a number of MB/s above 0, not 'fast'"),
        ({**LAST_THREE, "limit": "0"}, "'limit' is a number of MB/s above 0"),
        ({f"broker {broker}": "yes" for broker in (1, 2, 3)}, "no replica has to move"),
    ],
)
def test_a_reassignment_that_cannot_be(fields: dict[str, str], reason: str) -> None:
    admin = ReplicasAdmin()
    assert reason in seen(browser_of(admin).send(TOPIC, 400, **fields))
    assert admin.changes() == []


def test_partitions_are_moved_to_named_brokers() -> None:
    admin = ReplicasAdmin()
    browser = browser_of(admin)
    form = browser.read(LINES)
    assert "0=1,2,3\n1=2,3,1\n2=3,1,2</textarea>" in form
    preview = seen(browser.send(LINES, replicas="0=4,2,3\n1=2,3,1\n2=3,1,2", step="preview"))
    assert "orders-0 1, 2, 3 4, 2, 3 (copies 1.0 MiB)" in preview
    assert "orders-1" not in preview
    browser.change(LINES, replicas="0=4,2,3")  # lines that are missing move nothing
    assert admin.calls == [("reassign", {ORDERS: (4, 2, 3)})]
    page = seen(browser.send(LINES, 400, replicas="1=9,3,1"))
    assert "broker 9 is not active" in page
    large = topic("large", *(partition_on(index, 1, 2) for index in range(1001)))
    text = seen(browser_of(ReplicasAdmin(large)).read("/reassignments/partitions?name=large", 400))
    assert "large has 1,001 partitions, and the form shows 1,000 at most" in text


def test_a_broker_gives_its_replicas_away() -> None:
    admin = ReplicasAdmin()
    admin.topics["refunds"] = topic("refunds", partition_on(0, 2, 3))
    browser = browser_of(admin)
    address = "/reassignments/broker?id=2"
    assert address in browser.read("/reassignments")
    assert address in browser.read("/brokers/broker?id=2")
    form = browser.read(address)
    assert "<h1>Move replicas off broker 2</h1>" in form
    assert 'name="broker 2"' not in form
    fields = {"broker 4": "yes", "broker 5": "yes", "topics": "refunds"}
    preview = seen(browser.send(address, **fields))
    assert "refunds-0 2, 3 4, 3 (copies 1.0 MiB)" in preview
    assert "--topic refunds:0 --replicas 4,3" in preview
    browser.change(address, **fields)
    assert admin.calls == [("reassign", {TopicPartition("refunds", 0): (4, 3)})]
    assert "there is no topic 'none'" in seen(browser.send(address, 404, **fields | {"topics": "none"}))
    assert "gives its replicas away" in seen(browser.send(address, 400, **{"broker 2": "yes"}))
    assert "broker 5 has no replicas" in seen(browser.read("/reassignments/broker?id=5", 400))
    admin.brokers = [2]
    alone = seen(browser_of(admin).read(address, 400))
    assert "no other broker is active, so the replicas of broker 2 cannot move" in alone


def test_what_others_have_changed_since_is_shown_again() -> None:
    admin = ReplicasAdmin()
    browser = browser_of(admin)
    fields = {**ALL, "partitions": "0", "count": "2"}
    preview = browser.send(TOPIC, **fields)
    admin.topics["orders"] = topic(
        "orders", partition_on(0, 1, 2, 4), partition_on(1, 2, 3), partition_on(2, 3, 1)
    )
    again = browser.do_it(TOPIC, preview, 409)
    assert "orders-0: the preview showed the replicas 1, 2, 3, and they are 1, 2, 4 now" in seen(again)
    fields = {**LAST_THREE, "partitions": "1"}
    preview = browser.send(TOPIC, **fields)
    admin.brokers = [1, 2, 3]
    assert "is not active any more" in seen(browser.do_it(TOPIC, preview, 400))
    admin.brokers = [1, 2, 3, 4, 5]
    preview = browser.send(TOPIC, **fields)
    admin.ongoing[TopicPartition("orders", 1)] = OngoingReassignment((2, 3, 4), (4,), ())
    assert "orders-1 is being reassigned already" in seen(browser.do_it(TOPIC, preview, 400))
    admin.ongoing.clear()
    preview = browser.send(TOPIC, **fields)
    healthy = admin.topics["orders"]
    led = dict(healthy.partitions)
    admin.topics["orders"] = topic("orders", led[0], replace(led[1], leader=-1), led[2])
    lost = seen(browser.do_it(TOPIC, preview, 400))
    assert "orders-1 has no leader" in lost
    admin.topics["orders"] = healthy
    preview = browser.send(TOPIC, **fields)
    admin.topics["orders"] = topic("orders", *admin.topics["orders"].partitions.values(), id_=b"2" * 16)
    assert "another one was created under its name" in seen(browser.do_it(TOPIC, preview, 409))
    assert admin.changes() == []


def test_a_topic_that_grows_meanwhile_is_moved_all_the_same() -> None:
    admin = ReplicasAdmin()
    browser = browser_of(admin)
    preview = browser.send(TOPIC, **LAST_THREE)
    admin.size = 2 * MIB
    browser.do_it(TOPIC, preview)
    assert admin.changes() == ["reassign"]


def test_a_topic_with_too_few_replicas_for_its_writers_is_warned_of() -> None:
    admin = ReplicasAdmin()
    admin.settings["orders"] = {"min.insync.replicas": "2"}
    preview = seen(browser_of(admin).send(TOPIC, **ALL, count="1"))
    assert "Fewer replicas than min.insync.replicas: orders-0, orders-1, orders-2." in preview


def test_partitions_that_the_cluster_refuses_are_named() -> None:
    admin = ReplicasAdmin()
    admin.refused[TopicPartition("orders", 1)] = KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker"
    )
    browser = browser_of(admin)
    page = seen(browser.do_it(TOPIC, browser.send(TOPIC, **LAST_THREE), 502))
    assert "orders-1: no such broker; 2 of 3 partitions were accepted" in page
    admin.refused = dict.fromkeys((TopicPartition("orders", 0), TopicPartition("orders", 1)), REFUSAL)
    admin.ongoing.clear()
    page = seen(browser.do_it(TOPIC, browser.send(TOPIC, **LAST_THREE), 403))
    assert "orders-0: denied: ALTER on cluster, as for 1 more; 1 of 3 partitions were accepted" in page


# ------------------------------------------------------------ the page


def test_the_page_shows_progress_and_leaders() -> None:
    admin = ReplicasAdmin(
        topic("orders", partition_on(0, 1, 2, 4, leader=2, isr=(1, 2)), partition_on(1, 2, 3, 1, leader=-1))
    )
    admin.ongoing[ORDERS] = OngoingReassignment((1, 4, 2), (4,), (2,))
    page = seen(browser_of(admin).read("/reassignments"))
    assert "orders-0 2 1, 4 4 2 1.0 MiB 100% cancel" in page
    assert "1 partition is not led by the preferred leader. 1 has no leader" in page
    assert "broker 1 2 0 1 move off" in page
    reading = seen(Browser(admin).enter().read("/reassignments"))
    assert "cancel" not in reading


def test_progress_is_the_share_of_the_new_replicas() -> None:
    ongoing = OngoingReassignment((1, 4, 5, 2), (4, 5), (2,))
    copies = Copies({(1, ORDERS): 100, (2, ORDERS): 90, (4, ORDERS): 50})
    assert copies.copied(ORDERS, ongoing) == 0.25
    assert Copies({(1, ORDERS): 100, (4, ORDERS): 120, (5, ORDERS): 130}).copied(ORDERS, ongoing) == 1.0
    assert Copies().copied(ORDERS, ongoing) is None
    assert copies.copied(ORDERS, OngoingReassignment((1,), (), (2,))) is None


def test_brokers_with_equal_limits_share_a_line() -> None:
    rows = throttle_rows({1: CopyLimit(1024, 1024), 2: CopyLimit(None, 2048), 3: CopyLimit(1024, 1024)})
    assert [(row.brokers, row.leader) for row in rows] == [("1, 3", "1.0 KiB/s"), ("2", "\u2013")]


def test_a_cluster_that_does_not_list_reassignments_has_no_such_page() -> None:
    assert 'href="/reassignments"' in browser_of(ReplicasAdmin()).read("/overview")
    admin = ReplicasAdmin()
    admin.failure = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "unknown request")
    assert 'href="/reassignments"' not in browser_of(admin).read("/topics")


# ------------------------------------------------------------ cancel, limits


def test_a_reassignment_is_cancelled() -> None:
    admin = ReplicasAdmin()
    other = TopicPartition("orders", 1)
    admin.ongoing = {
        ORDERS: OngoingReassignment((4, 1, 2, 3), (4,), (1,)),
        other: OngoingReassignment((2, 3, 1, 5), (5,), ()),
    }
    browser = browser_of(admin)
    address = "/reassignments/cancel?topic=orders&partition=0"
    assert address.replace("&", "&amp;") in browser.read("/reassignments")
    preview = seen(browser.send(address))
    assert "Cancel 1 reassignment " in preview
    assert "orders-0 4, 1, 2, 3 (adding 4, removing 1) 1, 2, 3" in preview
    assert "ottla cluster reassign --cancel --topic orders:0" in preview
    browser.change(address)
    assert admin.calls == [("reassign", {ORDERS: None})]
    preview = browser.send("/reassignments/cancel")
    assert "ottla cluster reassign --cancel Do it" in seen(preview)
    admin.ongoing[other] = OngoingReassignment((2, 3, 1, 4), (4,), ())
    again = browser.do_it("/reassignments/cancel", preview, 409)
    assert "orders-1: the preview showed" in seen(again)
    admin.ongoing.clear()
    assert "no such partition is being reassigned" in seen(browser.do_it("/reassignments/cancel", again, 400))


def test_limits_that_were_left_behind_are_lifted() -> None:
    admin = ReplicasAdmin()
    admin.limit(1, 1_000_000)
    admin.settings["orders"] = {"leader.replication.throttled.replicas": "0:1"}
    browser = browser_of(admin)
    page = browser.read("/reassignments")
    assert "No replica moves, and limits of copying remain." in seen(page)
    address = "/reassignments/unthrottle"
    preview = seen(browser.send(address))
    assert (
        "limits of broker 1 sends 977 KiB/s, copies 977 KiB/s nothing limited replicas of orders set"
        in preview
    )
    assert "ottla cluster reassign --unthrottle" in preview
    browser.change(address)
    assert admin.calls == [("lift", (["orders"], [1]))]
    assert "limits of copying" not in seen(browser.read("/reassignments"))
    assert "no broker has a limit of copying" in seen(browser.send(address, 400))


def test_names_that_strangers_choose_are_text() -> None:
    admin = ReplicasAdmin(topic(HOSTILE, partition_on(0, 1, 2, 3)))
    admin.ongoing[TopicPartition(HOSTILE, 0)] = OngoingReassignment((4, 1, 2), (4,), (3,))
    browser = browser_of(admin)
    for page in (
        "/reassignments",
        "/reassignments/topic",
        "/reassignments/partitions",
        "/reassignments/cancel",
    ):
        text = browser.client.get(page, params={"name": HOSTILE}).text
        assert "<script>alert" not in text
        assert "<img" not in text


def test_a_snapshot_names_its_reassignments() -> None:
    ongoing = {ORDERS: OngoingReassignment((1, 2, 4), (4,), ())}
    assert snapshot_of(reassigning=ongoing).adding == {ORDERS: (4,)}
