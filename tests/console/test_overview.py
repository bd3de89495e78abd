"""The overview: the display of a snapshot, of rates, and of changes between two snapshots."""

from __future__ import annotations

from dataclasses import replace

from ottla.client.admin import ClusterDescription, OngoingReassignment, QuorumDescription
from ottla.client.failures import NoBrokerReachable
from ottla.client.records import TopicPartition
from ottla.console.charts import Series
from ottla.console.live.counters import CounterReading, Rates, TopicTraffic, counters_of, rates_between
from ottla.console.live.events import events_between
from ottla.console.pages.overview.page import charts_of, overview
from tests.console.fakes import Browser, FakeAdmin, partition, seen, snapshot_of, topic


def test_partitions_in_need_stand_out() -> None:
    snapshot = snapshot_of(
        topic("b", partition(0, isr=(1, 2)), partition(1)), topic("a", partition(0, leader=-1, isr=()))
    )
    model = overview(snapshot, Rates(), [], [])
    assert [(one.name, one.state, one.leader) for one in model.needy] == [
        ("a-0", "without a leader", "\u2013"),
        ("b-0", "under-replicated", "1"),
    ]
    assert (model.topics, model.partitions, model.under_replicated_total, model.leaderless_total) == (
        2,
        3,
        2,
        1,
    )


def test_brokers_with_what_they_hold() -> None:
    rows = overview(
        snapshot_of(topic("a", partition(0), partition(1, leader=2, isr=(2, 3)))), Rates(), [], []
    ).brokers
    assert [(one.id, one.leads, one.replicas, one.in_sync, one.is_controller) for one in rows] == [
        (1, 1, 2, 1, False),
        (2, 1, 2, 2, True),
        (3, 0, 2, 2, False),
    ]


def test_the_quorum_and_what_there_is_without_one() -> None:
    voters = {101: ("h", 1), 102: None, 103: None, 104: None}
    quorum = QuorumDescription(101, 7, voters, abstaining=(103,), silent=(104,))
    rows = overview(snapshot_of(quorum=quorum), Rates(), [], []).voters
    assert [(one.id, one.state, one.term) for one in rows] == [
        (101, "leader", 7),
        (102, "voter", 7),
        (103, "catching up, does not vote", 7),
        (104, "silent", 7),
    ]
    model = overview(snapshot_of(quorum=None, quorum_trouble="not allowed"), Rates(), [], [])
    assert (model.voters, model.quorum_trouble) == ([], "not allowed")


def test_reassignments_under_way() -> None:
    reassigning = {TopicPartition("t", 1): OngoingReassignment((2, 3, 1), (3,), (1,))}
    (row,) = overview(snapshot_of(reassigning=reassigning), Rates(), [], []).reassignments
    assert (row.name, row.replicas, row.adding, row.removing) == ("t-1", "2, 3, 1", "3", "1")


def test_only_what_is_counted_has_a_chart() -> None:
    counted = {TopicTraffic.RECORDS_IN: Series("records in", [(1.0, 5.0)])}
    charts = charts_of(lambda name: counted.get(name, Series(name, [(1.0, None)])), 1.0)
    assert [one.title for one in charts] == ["records per second"]
    assert "5.0/s" in charts[0].legend


# ------------------------------------------------------------ rates


def test_rates_are_sums_of_what_each_source_counted() -> None:
    before = CounterReading(
        10, {("a", TopicTraffic.BYTES_IN, "t"): 100, ("b", TopicTraffic.BYTES_IN, "t"): 0}
    )
    after = CounterReading(
        12, {("a", TopicTraffic.BYTES_IN, "t"): 300, ("b", TopicTraffic.BYTES_IN, "t"): 50}
    )
    rates = rates_between(before, after)
    assert rates.totals == {TopicTraffic.BYTES_IN: 125}
    assert rates.of_topic("t", TopicTraffic.BYTES_IN) == 125
    assert rates.of_topic("other", TopicTraffic.BYTES_IN) == 0
    assert rates.of_topic("t", TopicTraffic.BYTES_OUT) is None


def test_a_restarted_broker_and_a_new_one_make_no_jump() -> None:
    before = CounterReading(0, {("a", TopicTraffic.RECORDS_IN, "t"): 1_000_000})
    after = CounterReading(
        1,
        {
            ("a", TopicTraffic.RECORDS_IN, "t"): 10,  # restarted
            ("a", TopicTraffic.RECORDS_IN, "young"): 5,  # a topic of a known broker
            ("b", TopicTraffic.RECORDS_IN, "t"): 2_000_000,  # a broker that did not answer before
        },
    )
    assert rates_between(before, after).totals == {TopicTraffic.RECORDS_IN: 15}
    assert rates_between(after, after) == Rates()


def test_what_endpoints_say() -> None:
    text = (
        "# TYPE kafka_server_brokertopicmetrics_messagesinpersec counter\n"
        'kafka_server_brokertopicmetrics_messagesinpersec{topic="a"} 5\n'
        'kafka_server_brokertopicmetrics_bytesinpersec{topic="b\\"c",x="y"} 7.5\n'
        'kafka_server_brokertopicmetrics_bytesinpersec{topic="d"} none\n'
        "kafka_server_brokertopicmetrics_bytesoutpersec 5\n"
        'kafka_brokers{topic="a"} 3\n'
    )
    assert counters_of("s", text) == {
        ("s", TopicTraffic.RECORDS_IN, "a"): 5,
        ("s", TopicTraffic.BYTES_IN, 'b"c'): 7.5,
    }


def test_a_groups_name_is_no_line_of_what_endpoints_say() -> None:
    """A client that commits offsets chooses the name: with a name like this an offset was counted
    as bytes of a topic.
    """
    forged = "g\u2028kafka_server_brokertopicmetrics_bytesinpersec{"
    text = f'kafka_consumergroup_current_offset{{consumergroup="{forged}",topic="t",partition="0"}} 1000000\n'
    assert counters_of("s", text) == {}


# ------------------------------------------------------------ changes


def test_a_failover_is_told_in_the_order_of_causes() -> None:
    before = snapshot_of(topic("orders", partition(0, leader=1, isr=(1, 2, 3))))
    after = snapshot_of(
        topic("orders", partition(0, leader=2, isr=(2, 3))),
        at_s=1002.0,
        cluster=ClusterDescription("cluster-1", 2, before.cluster.brokers[1:]),
        quorum=QuorumDescription(102, 8, {}),
    )
    told = events_between(before, after)
    assert [(one.kind, one.text) for one in told] == [
        ("news", "node 102 leads the quorum in term 8"),
        ("bad", "broker 1 left the cluster"),
        ("news", "orders-0: broker 2 leads, leader epoch 5"),
        ("bad", "orders-0: broker 1 left the ISR"),
    ]
    assert {one.at_s for one in told} == {1002.0}
    assert [one.text for one in events_between(after, before)][1:] == [
        "broker 1 joined the cluster",
        "orders-0: broker 1 leads, leader epoch 5",
        "orders-0: broker 1 joined the ISR",
    ]


def test_what_stays_and_what_is_new_is_not_told() -> None:
    before = snapshot_of(topic("orders", partition(0)))
    assert events_between(before, replace(before, at_s=2000.0)) == []
    assert (
        events_between(before, snapshot_of(topic("orders", partition(0)), topic("new", partition(0)))) == []
    )


def test_many_partitions_are_counted() -> None:
    before = snapshot_of(topic("t", *(partition(index) for index in range(100))))
    after = snapshot_of(topic("t", *(partition(index, isr=(1, 2)) for index in range(100))))
    told = [one.text for one in events_between(before, after)]
    assert len(told) == 9
    assert told[-1] == "the ISR shrank in 92 more partitions"


def test_topics_of_people_are_named_before_those_of_the_cluster() -> None:
    many = [partition(index) for index in range(50)]
    fewer = [partition(index, isr=(1, 2)) for index in range(50)]
    before = snapshot_of(topic("__offsets", *many, is_internal=True), topic("t", partition()))
    after = snapshot_of(topic("__offsets", *fewer, is_internal=True), topic("t", partition(isr=(1, 2))))
    assert events_between(before, after)[0].text == "t-0: broker 3 left the ISR"


def test_reassignments_and_a_quorum_without_a_leader() -> None:
    reassigning = {TopicPartition("t", 0): OngoingReassignment((1,), (2,), ())}
    after = snapshot_of(reassigning=reassigning, quorum=QuorumDescription(None, 8, {}))
    assert [one.text for one in events_between(snapshot_of(), after)] == [
        "the quorum has no leader; node 101 led it in term 7",
        "1 partitions began to be reassigned",
    ]
    assert [one.text for one in events_between(after, snapshot_of(quorum=None))] == [
        "1 partitions are no longer reassigned"
    ]


# ------------------------------------------------------------ the page


def test_the_page() -> None:
    browser = Browser(FakeAdmin(topic("orders", partition(0, isr=(1, 2))))).enter()
    page = browser.read("/overview")
    assert "orders-0 under-replicated 1 1, 2, 3 1, 2" in seen(page)
    assert "102 voter 7" in seen(page)
    assert 'data-events="/events/overview"' in page
    assert browser.client.get("/").headers["location"] == "/overview"


def test_a_cluster_that_does_not_answer_is_said() -> None:
    admin = FakeAdmin()
    admin.failure = NoBrokerReachable("no broker answers at host:9092")
    browser = Browser(admin).enter()
    assert "The cluster does not answer" in seen(browser.read("/overview", 503))
    admin.failure = ZeroDivisionError("a fault")
    page = seen(browser.read("/overview", 500))
    assert "The console failed" in page
    assert "a fault" not in page
    admin.failure = None
    assert "Metadata quorum" in browser.read("/overview")
