"""The overview: the display of a snapshot and of rates."""

from __future__ import annotations

from ottla.client.admin import OngoingReassignment, QuorumDescription
from ottla.client.failures import NoBrokerReachable
from ottla.client.records import TopicPartition
from ottla.console.charts import Series
from ottla.console.live.counters import CounterReading, Rates, TopicTraffic, counters_of, rates_between
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
