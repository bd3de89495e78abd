"""Events of the cluster: the comparison of two snapshots, and the lines of events with one cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ottla.client.admin import ClusterDescription, OngoingReassignment, QuorumDescription
from ottla.client.connections.metadata import TopicInfo
from ottla.client.records import TopicPartition
from ottla.console.live.event_lines import FOLD_S, event_lines
from ottla.console.live.events import BAD, GOOD, JOINED, LEFT, NEWS, Cause, Event, events_between
from ottla.console.live.snapshots import ClusterSnapshot
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, fenced, partition, seen, snapshot_of, topic


def without_broker_1(
    *topics: TopicInfo, fenced_ids: Sequence[int] = (), at_s: float = 1002.0
) -> ClusterSnapshot:
    brokers = snapshot_of().cluster.brokers[1:]
    return snapshot_of(
        *topics, at_s=at_s, cluster=ClusterDescription("cluster-1", 2, brokers, fenced(*fenced_ids))
    )


def texts(before: ClusterSnapshot, after: ClusterSnapshot) -> list[str]:
    return [event.text for event in events_between(before, after)]


# ------------------------------------------------------------ the comparison


def test_events_of_a_failover_are_in_the_order_of_causes() -> None:
    before = snapshot_of(topic("orders", partition(0, leader=1, isr=(1, 2, 3))))
    after = replace(
        without_broker_1(topic("orders", partition(0, leader=2, isr=(2, 3)))),
        quorum=QuorumDescription(102, 8, {}),
    )
    found = events_between(before, after)
    assert [(event.kind, event.text) for event in found] == [
        (NEWS, "node 102 leads the quorum in term 8"),
        (BAD, "broker 1 left the cluster"),
        (NEWS, "broker 2 leads orders-0"),
        (BAD, "broker 1 left the ISR of orders-0"),
    ]
    assert {event.at_s for event in found} == {1002.0}
    assert [event.cause for event in found[1:]] == [Cause("broker 1", LEFT)] * 3
    assert texts(after, before)[1:] == [
        "broker 1 joined the cluster",
        "broker 1 leads orders-0",
        "broker 1 joined the ISR of orders-0",
    ]
    assert {event.cause for event in events_between(after, before)[1:]} == {Cause("broker 1", JOINED)}


def test_a_broker_is_fenced_and_no_longer_fenced() -> None:
    without = without_broker_1(fenced_ids=(1,))
    assert texts(snapshot_of(), without) == ["broker 1 is fenced"]
    assert texts(without, snapshot_of()) == ["broker 1 is no longer fenced"]


def test_a_partition_goes_offline_and_is_led_again() -> None:
    led, offline = topic("t", partition(0, isr=(1,))), topic("t", partition(0, leader=-1, isr=(1,)))
    assert texts(snapshot_of(led), snapshot_of(offline)) == ["no leader, and broker 1 led before: t-0"]
    assert texts(snapshot_of(offline), snapshot_of(led)) == ["broker 1 leads t-0"]


def test_a_leader_that_stays_in_the_isr_is_not_the_cause_of_another_leader() -> None:
    before, after = snapshot_of(topic("t", partition(0))), snapshot_of(topic("t", partition(0, leader=2)))
    (event,) = events_between(before, after)
    assert (event.cause, event.text) == (Cause("broker 2", JOINED), "broker 2 leads t-0")


def test_unchanged_and_new_partitions_are_no_events() -> None:
    before = snapshot_of(topic("orders", partition(0)))
    assert texts(before, replace(before, at_s=2000.0)) == []
    assert texts(before, snapshot_of(topic("orders", partition(0)), topic("new", partition(0)))) == []


def test_many_partitions_are_counted() -> None:
    before = snapshot_of(topic("t", *(partition(index) for index in range(100))))
    after = snapshot_of(topic("t", *(partition(index, isr=(1, 2)) for index in range(100))))
    (event,) = events_between(before, after)
    names = ", ".join(f"t-{index}" for index in range(8))
    assert event.text == f"broker 3 left the ISR of 100 partitions: {names} and 92 more"
    assert (event.effect, event.partitions) == ("lost an in-sync replica", 100)


def test_users_topics_are_named_before_internal_topics() -> None:
    many = [partition(index) for index in range(50)]
    fewer = [partition(index, isr=(1, 2)) for index in range(50)]
    before = snapshot_of(topic("__offsets", *many, is_internal=True), topic("t", partition()))
    after = snapshot_of(topic("__offsets", *fewer, is_internal=True), topic("t", partition(isr=(1, 2))))
    assert ": t-0, __offsets-0," in texts(before, after)[0]


def test_the_cause_of_an_election_is_named_if_the_voters_show_it() -> None:
    for quorum, text in (
        (QuorumDescription(102, 8, {}), "node 102 leads the quorum in term 8"),
        (
            QuorumDescription(102, 8, {}, silent=(101,)),
            "node 102 leads the quorum in term 8: node 101, which led in term 7, is silent",
        ),
        (QuorumDescription(101, 9, {}), "node 101 leads the quorum in term 9, as in term 7"),
    ):
        assert texts(snapshot_of(), snapshot_of(quorum=quorum)) == [text]


def test_reassignments_and_a_quorum_without_a_leader() -> None:
    reassigning = {TopicPartition("t", 0): OngoingReassignment((1,), (2,), ())}
    after = snapshot_of(reassigning=reassigning, quorum=QuorumDescription(None, 8, {}))
    assert texts(snapshot_of(), after) == [
        "the quorum has no leader; node 101 led it in term 7",
        "the reassignment of 1 partition began",
    ]
    assert texts(after, snapshot_of(quorum=None)) == ["the reassignment of 1 partition ended"]


def test_reassignments_that_are_not_listed_have_neither_begun_nor_ended() -> None:
    under_way = snapshot_of(reassigning={TopicPartition("t", 0): OngoingReassignment((1,), (2,), ())})
    unknown = snapshot_of(reassigning_trouble="no right")
    assert texts(under_way, unknown) == texts(unknown, under_way) == []


def test_a_reassignment_that_begins_is_no_cause_of_an_earlier_end() -> None:
    moves = {TopicPartition("t", index): OngoingReassignment((1,), (2,), ()) for index in range(5)}
    first, none = snapshot_of(reassigning=dict(list(moves.items())[:3]), at_s=100), snapshot_of(at_s=110)
    then = snapshot_of(reassigning=moves, at_s=130)
    lines = event_lines([*events_between(first, none), *events_between(none, then)])
    assert [line.text for line in lines] == [
        "the reassignment of 5 partitions began",
        "the reassignment of 3 partitions ended",
    ]


# ------------------------------------------------------------ lines

GONE, BACK = Cause("broker 1", LEFT), Cause("broker 1", JOINED)


def left(at_s: float) -> Event:
    return Event(at_s, BAD, "broker 1 left the cluster", GONE)


def shrank(at_s: float, partitions: int = 1, cause: Cause = GONE) -> Event:
    return Event(at_s, BAD, "broker 1 left the ISR of t-0", cause, "lost an in-sync replica", partitions)


def lines(*events: Event) -> list[str]:
    return [line.text for line in event_lines(events)]


def test_events_of_one_cause_are_one_line() -> None:
    takeover = Event(10, NEWS, "broker 2 leads t-0", GONE, "got another leader", 1)
    (line,) = event_lines([left(10), takeover, shrank(10, 4), shrank(12, 20)])
    assert line.text == (
        "broker 1 left the cluster: 1 partition got another leader, 24 lost an in-sync replica"
    )
    assert (line.at_s, line.kind, len(line.events)) == (10, BAD, 4)


def test_the_newest_line_comes_first_and_a_single_event_has_its_own_text() -> None:
    quorum = Event(20, NEWS, "node 102 leads the quorum in term 8", Cause("the quorum", "term 8"))
    assert lines(left(10), quorum) == [quorum.text, "broker 1 left the cluster"]


def test_effects_without_a_seen_cause_name_the_broker() -> None:
    grew = [Event(at, GOOD, "", BACK, "gained an in-sync replica", 2) for at in (10, 12, 14)]
    assert lines(*grew) == ["broker 1: 6 partitions gained an in-sync replica"]


def test_an_effect_may_be_seen_before_its_cause() -> None:
    assert lines(shrank(10), left(12)) == ["broker 1 left the cluster: 1 partition lost an in-sync replica"]


def test_later_effects_and_repeated_causes_have_lines_of_their_own() -> None:
    assert len(lines(left(10), shrank(10 + FOLD_S))) == 1
    assert len(lines(left(10), shrank(10.1 + FOLD_S))) == 2
    assert len(lines(left(10), left(12), shrank(13))) == 2
    assert len(lines(left(10), shrank(11, cause=BACK))) == 2


def test_a_line_keeps_its_id_while_it_grows() -> None:
    (first,), (grown,) = event_lines([left(10)]), event_lines([left(10), shrank(12)])
    assert first.key == grown.key
    assert " " not in first.key


# ------------------------------------------------------------ pages


def test_the_overview_has_the_newest_lines_and_a_link_to_all() -> None:
    browser = Browser(FakeAdmin()).enter()
    assert "No events since the console started" in seen(browser.read("/overview"))
    assert "No events since the console started" in seen(browser.read("/overview/events"))
    browser.session.sampler.events += [left(10), shrank(11, 24)]
    page = browser.read("/overview")
    assert "broker 1 left the cluster: 24 partitions lost an in-sync replica" in seen(page)
    assert '<details id="event-10.000-broker-1-left"><summary>' in page
    assert "All 1" not in page
    browser.session.sampler.events += [left(100 + 100 * number) for number in range(60)]
    assert '<a href="/overview/events">All 61 events</a>' in browser.read("/overview")
    page = seen(browser.read("/overview/events"))
    assert page.count("broker 1 left the cluster") == 50
    assert "page 1 of 2, 61 rows" in page
    assert "24 partitions" in seen(browser.read("/overview/events?page=2"))


def test_an_event_is_text() -> None:
    browser = Browser(FakeAdmin()).enter()
    browser.session.sampler.events.append(Event(10, NEWS, HOSTILE, Cause(HOSTILE, "")))
    browser.session.sampler.events.append(Event(10, NEWS, HOSTILE, Cause(HOSTILE, ""), HOSTILE, 1))
    for address in ("/overview", "/overview/events"):
        assert "<script>alert" not in browser.read(address)
