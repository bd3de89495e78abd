"""The overview: the display of a snapshot and of rates."""

from __future__ import annotations

from ottla.client.admin import ClusterDescription, OngoingReassignment, QuorumDescription
from ottla.client.failures import NoBrokerReachable
from ottla.client.records import TopicPartition
from ottla.console.charts import Series
from ottla.console.formats import UNKNOWN
from ottla.console.live.counters import CounterReading, Rates, TopicTraffic, counters_of, rates_between
from ottla.console.pages.overview.page import charts_of, overview
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, fenced, partition, seen, snapshot_of, topic


def test_problems_are_summed_up_by_topic() -> None:
    topics = [topic(f"t{number:02}", partition(0, isr=(1, 2)), partition(1)) for number in range(12)]
    offline = topic("z", partition(0, leader=-1, isr=()))
    internal = topic("__offsets", partition(0, leader=-1, isr=()), is_internal=True)
    model = overview(snapshot_of(internal, *topics, offline), Rates(), [], [])
    assert [row.topic for row in model.problems] == ["z", *(f"t{number:02}" for number in range(9))]
    assert (model.problems_total, model.topics, model.partitions) == (14, 14, 26)
    assert (model.under_replicated_total, model.offline_total) == (14, 2)


def test_brokers_are_counted_by_state() -> None:
    assert (overview(snapshot_of(), Rates(), [], []).brokers_text) == "3"
    cluster = ClusterDescription("c", 2, snapshot_of().cluster.brokers[:1], fenced(2))
    model = overview(snapshot_of(topic("a", partition(0)), cluster=cluster), Rates(), [], [])
    assert (model.brokers_text, model.absent_text) == ("1 of 3", "1 fenced, 1 down")


def test_the_quorum_and_what_there_is_without_one() -> None:
    voters = {101: ("h", 1), 102: None, 103: None, 104: None}
    quorum = QuorumDescription(101, 7, voters, abstaining=(103,), silent=(104,))
    rows = overview(snapshot_of(quorum=quorum), Rates(), [], []).voters
    assert [(row.id, row.state, row.term) for row in rows] == [
        (101, "leader", 7),
        (102, "voter", 7),
        (103, "catching up, does not vote", 7),
        (104, "silent", 7),
    ]
    model = overview(snapshot_of(quorum=None, quorum_trouble="not allowed"), Rates(), [], [])
    assert (model.voters, model.quorum_trouble) == ([], "not allowed")


def test_reassignments_under_way() -> None:
    copied = topic("t", *(partition(index, isr=(1, 2)) for index in range(12)))
    reassigning = {
        TopicPartition("t", index): OngoingReassignment((2, 3, 1), (3,), (1,)) for index in range(12)
    }
    gone = {TopicPartition("gone", 0): OngoingReassignment((1,), (2,), ())}
    model = overview(snapshot_of(copied, reassigning=reassigning | gone), Rates(), [], [])
    row = model.reassignments[1]
    assert (row.name, row.isr, row.adding, row.removing) == ("t-1", "1, 2", "3", "1")
    assert (len(model.reassignments), model.reassigning) == (10, 13)
    assert (model.problems, model.under_replicated_total) == ([], 0)  # a replica that is added is not missing


def test_only_what_is_counted_has_a_chart() -> None:
    counted = {TopicTraffic.RECORDS_IN: Series("records in", [(1.0, 5.0)])}
    charts = charts_of(lambda name, _: counted.get(name, Series(name, [(1.0, None)])), 1.0, 600.0)
    assert [chart.title for chart in charts] == ["records per second"]
    assert "5.0/s" in charts[0].legend


def test_the_charts_show_the_span_of_the_address() -> None:
    browser = Browser(FakeAdmin(topic("orders", partition()))).enter()
    page = browser.read("/overview?span=6h")
    assert '<a href="/overview?span=6h" aria-current="true">6h</a>' in page
    assert 'data-events="/events/overview?span=6h"' in page
    assert "'span' is one of 10m, 1h, 6h, 24h" in seen(browser.read("/overview?span=2d", 400))


def test_a_console_without_metrics_says_that_it_needs_them() -> None:
    records = Rates({TopicTraffic.RECORDS_IN: 5.0})
    assert overview(snapshot_of(), records, [], []).bytes_note == "needs --metrics"
    assert overview(snapshot_of(), Rates(), [], []).bytes_note == ""
    both = Rates({TopicTraffic.RECORDS_IN: 5.0, TopicTraffic.BYTES_IN: 9.0})
    assert overview(snapshot_of(), both, [], []).bytes_note == ""


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
    assert "orders 0 1 of 1 3 All partitions with problems" in seen(page)
    assert "102 voter 7" in seen(page)
    assert 'data-events="/events/overview"' in page
    assert browser.client.get("/").headers["location"] == "/overview"


def test_an_absent_broker_is_the_first_row() -> None:
    admin = FakeAdmin(topic("orders", partition(0, isr=(1, 2))))
    cluster = ClusterDescription("c", 2, snapshot_of().cluster.brokers[:2], fenced(3))

    async def describe_cluster() -> ClusterDescription:
        return cluster

    admin.describe_cluster = describe_cluster  # type: ignore[method-assign]
    page = Browser(admin).enter().read("/overview")
    assert "in sync 3 fenced since before the console started host:9094 0 1 0 1 active host:9092" in seen(
        page
    )
    assert "brokers 2 of 3 1 fenced" in seen(page)
    assert '<tr class="bad"><th scope="row" class="short"><a href="/brokers/broker?id=3">' in page


def test_a_healthy_cluster_says_so() -> None:
    page = seen(Browser(FakeAdmin(topic("orders", partition()))).enter().read("/overview"))
    assert "All partitions are healthy: each has a leader, and all replicas are in sync." in page


# ------------------------------------------------------------ the page of partitions


def in_trouble() -> FakeAdmin:
    """Return a cluster in which 60 partitions have problems."""
    orders = [partition(index, isr=(1, 2)) for index in range(58)]
    return FakeAdmin(
        topic("orders", *orders, partition(58)),
        topic("payments", partition(0, leader=-1, isr=(1,))),
        topic("__offsets", partition(0, isr=(1, 2)), is_internal=True),
    )


def test_all_partitions_with_problems() -> None:
    browser = Browser(in_trouble()).enter()
    page = seen(browser.read("/overview/partitions"))
    assert f"payments-0 offline under-replicated {UNKNOWN} 1, 2, 3 1 2, 3 orders-0" in page
    assert "orders-0 under-replicated 1 1, 2, 3 1, 2 3 orders-1" in page
    assert "page 1 of 2, 60 rows" in page
    assert "payments-0" not in seen(browser.read("/overview/partitions?sort=partition"))
    assert "ISR missing adding removing __offsets-0" in seen(browser.read("/overview/partitions?sort=leader"))
    assert "__offsets-0 under-replicated" in seen(browser.read("/overview/partitions?page=2"))
    assert "orders" not in seen(browser.read("/overview/partitions?state=offline"))
    assert "payments-0" not in seen(browser.read("/overview/partitions?topic=orders"))
    assert "No partition of x has this state." in seen(browser.read("/overview/partitions?topic=x"))
    assert "'state' is one of problem, offline, under-replicated, reassigning" in seen(
        browser.read("/overview/partitions?state=well", 400)
    )


def test_partitions_that_are_reassigned() -> None:
    admin = in_trouble()
    browser = Browser(admin).enter()
    address = "/overview/partitions?state=reassigning"
    assert "No partition is being reassigned. Reassignments" in seen(browser.read(address))

    async def list_partition_reassignments() -> dict[TopicPartition, OngoingReassignment]:
        return {TopicPartition("orders", 5): OngoingReassignment((1, 2, 3), (3,), ())}

    admin.list_partition_reassignments = list_partition_reassignments  # type: ignore[method-assign]
    page = seen(Browser(admin).enter().read(address))
    assert f"orders-5 reassigning 1 1, 2, 3 1, 2 {UNKNOWN} 3 {UNKNOWN}" in page


def test_names_of_topics_are_text() -> None:
    admin = FakeAdmin(topic(HOSTILE, partition(0, isr=(1, 2))))
    for address in ("/overview", "/overview/partitions"):
        assert "<script>alert" not in Browser(admin).enter().read(address)


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
