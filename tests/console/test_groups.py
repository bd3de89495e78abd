"""Groups in the console: the list, one group, its lag over time, and each change with its preview."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast
from urllib.parse import urlencode

import pytest

from ottla.client.admin import Admin, GroupDescription, GroupListing, GroupMember, ShareGroupOffset
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.records import TopicPartition
from ottla.console.area import Visit
from ottla.console.bounds import LAG_GROUPS_MAX, LAG_TOPICS_MAX
from ottla.console.formats import UNKNOWN
from ottla.console.live.counter_sources import EndOffsets
from ottla.console.live.lag_history import LagHistory
from ottla.console.pages.groups import changes
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, partition, seen, topic

ORDERS, REFUNDS = TopicPartition("orders", 0), TopicPartition("refunds", 0)
ANN = GroupMember("ann-1", "left", "ann", "/10.0.0.1", (ORDERS, TopicPartition("orders", 1)), -1)


class WithGroups(FakeAdmin):
    """A cluster with the groups `billing`, which has a member, and `audit`, which has none."""

    def __init__(self) -> None:
        super().__init__(topic("orders", partition(0), partition(1)), topic("refunds", partition(0)))
        self.members: dict[str, tuple[GroupMember, ...]] = {"audit": (), "billing": (ANN,)}
        self.committed: dict[str, dict[TopicPartition, int]] = {
            "audit": {ORDERS: 40, REFUNDS: 5},
            "billing": {ORDERS: 90},
        }
        self.ends = {ORDERS: 100, REFUNDS: 7}
        self.refusal: KafkaError | None = None
        self.silent: dict[int, KafkaError] = {}

    async def list_groups(self) -> list[GroupListing]:
        return [
            GroupListing(name, "consumer", self._state(name), "classic", 1) for name in sorted(self.members)
        ]

    async def list_groups_by_broker(self) -> dict[int, list[GroupListing] | KafkaError]:
        return {1: await self.list_groups(), **self.silent}

    def _state(self, name: str) -> str:
        return "Stable" if self.members[name] else "Empty"

    async def describe_groups(self, names: Iterable[str]) -> list[GroupDescription]:
        for name in names:
            if name not in self.members:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
        where = BrokerAddress(1, "host", 9092, None)
        return [
            GroupDescription(
                name, self._state(name), "classic", "consumer", "range", where, self.members[name]
            )
            for name in names
        ]

    async def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        return dict(self.committed.get(group_id, {}))

    async def committed_offsets_of_groups(
        self, groups: Iterable[GroupListing]
    ) -> dict[str, dict[TopicPartition, int] | KafkaError]:
        return {group.group_id: await self.committed_offsets(group.group_id) for group in groups}

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        self.calls.append(("seek", (group_id, dict(offsets))))
        self.committed[group_id] |= offsets
        return dict.fromkeys(offsets, self.refusal)

    async def delete_groups(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        for name in names:
            self.calls.append(("delete", name))
            del self.members[name]
        return dict.fromkeys(names)


@pytest.fixture
def admin() -> WithGroups:
    return WithGroups()


@pytest.fixture
def browser(admin: WithGroups) -> Browser:
    return Browser(admin, may_change=True).enter()


def test_the_list_shows_members_and_lag(browser: Browser) -> None:
    page = seen(browser.read("/groups"))
    assert "audit Empty classic consumer 0 62 1" in page
    assert "billing Stable classic consumer 1 10 1" in page
    assert "billing" not in seen(browser.read("/groups?q=AUD"))


def test_groups_are_sorted_by_the_lag_of_all_groups(admin: WithGroups, browser: Browser) -> None:
    admin.members |= {f"g{number:02}": () for number in range(60)}
    admin.committed |= {f"g{number:02}": {ORDERS: 100 - number} for number in range(60)}
    admin.committed["g07"] = {}
    page = browser.read("/groups?sort=-lag")
    names = re.findall(r"/groups/group\?name=([^\"]+)\"", page)
    assert names[:3] == ["audit", "g59", "g58"]
    assert "page 1 of 2, 62 rows" in seen(page)
    assert "sort=-lag&amp;page=2" in page
    last = seen(browser.read("/groups?sort=-lag&page=2"))
    assert last.index("g00") < last.index("g07")  # lag 0 stands before an unknown lag
    assert "is one of group, state, type, protocol, lag, coordinator" in seen(
        browser.read("/groups?sort=x", 400)
    )


def test_a_search_keeps_the_order(browser: Browser) -> None:
    page = browser.read("/groups?q=b&sort=-lag")
    assert '<input type="hidden" name="sort" value="-lag">' in page
    assert 'href="/groups?q=b&amp;sort=lag"' in page


def test_the_reason_why_lag_is_missing_is_told(admin: WithGroups, browser: Browser) -> None:
    async def refused(groups: Iterable[GroupListing]) -> dict[str, KafkaError]:
        error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")
        return {group.group_id: error for group in groups}

    admin.committed_offsets_of_groups = refused  # type: ignore[assignment, method-assign]
    page = seen(browser.read("/groups?sort=-lag"))
    assert "The offsets of 2 groups are unknown. The first reason: it loads." in page
    assert f"billing Stable classic consumer 1 {UNKNOWN} 1" in page


def test_a_coordinator_that_loads_hides_no_other(admin: WithGroups, browser: Browser) -> None:
    admin.silent = {3: KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")}
    page = seen(browser.read("/groups"))
    assert "Broker 3 does not report its groups, which are missing here: it loads" in page
    assert "audit Empty classic consumer 0 62 1" in page


def test_a_group_that_goes_meanwhile_spoils_no_list(admin: WithGroups, browser: Browser) -> None:
    async def gone(names: Iterable[str]) -> list[GroupDescription]:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "gone")

    admin.describe_groups = gone  # type: ignore[method-assign]
    admin.committed["billing"] = {}
    page = seen(browser.read("/groups"))
    assert f"audit Empty classic consumer {UNKNOWN} 62 1" in page
    assert f"billing Stable classic consumer {UNKNOWN} {UNKNOWN} 1" in page


def test_a_group_shows_each_partition_with_its_lag_and_its_owner(browser: Browser) -> None:
    page = seen(browser.read("/groups/group?name=billing"))
    assert "orders 0 90 100 10 ann next move" in page
    assert f"orders 1 {UNKNOWN} 0 {UNKNOWN} ann newest move" in page
    assert "ann instance left ann-1 /10.0.0.1 2 orders: 0, 1" in page
    assert "there is no group 'nobody'" in browser.read("/groups/group?name=nobody", 404).replace(
        "&#39;", "'"
    )


def test_the_partitions_of_a_group_are_sorted_by_lag_at_first(admin: WithGroups, browser: Browser) -> None:
    places = {TopicPartition("orders", index): 90 - index for index in range(60)}
    admin.topics["orders"] = topic("orders", *(partition(index) for index in range(60)))
    admin.ends |= dict.fromkeys(places, 100)
    admin.committed["audit"] = dict(places)

    def shown(address: str) -> list[str]:
        return re.findall(r'data-label="partition" class="number">(\d+)<', browser.read(address))

    assert shown("/groups/group?name=audit")[:2] == ["59", "58"]
    assert shown("/groups/group?name=audit&sort=partition")[:2] == ["0", "1"]
    assert shown("/groups/group?name=audit&sort=committed&page=2")[-1] == "0"
    page = browser.read("/groups/group?name=audit")
    assert 'href="/messages?topic=orders&amp;partition=59&amp;from=offset&amp;at=31"' in page


def test_a_group_with_many_members_has_pages(admin: WithGroups, browser: Browser) -> None:
    admin.members["billing"] = tuple(replace(ANN, member_id=f"m{number:03}") for number in range(120))
    page = browser.read("/groups/group?name=billing")
    assert "m049" in page
    assert "m050" not in page
    assert "members 120" in seen(page)
    assert "m119" in browser.read("/groups/group?name=billing&members=3")


def test_the_lag_of_a_group_has_a_chart_with_spans(browser: Browser) -> None:
    page = browser.read("/groups/group?name=billing&span=6h")
    assert "lag in records, by topic" in page
    assert '<a href="/groups/group?name=billing&amp;span=6h" aria-current="true">6h</a>' in page
    assert "'span' is one of 10m, 1h, 6h, 24h" in seen(
        browser.read("/groups/group?name=billing&span=1w", 400)
    )


def test_before_the_first_commit_no_lag_is_known(admin: WithGroups, browser: Browser) -> None:
    owned = (TopicPartition("orders", 0),)
    admin.members["fresh"] = (GroupMember("m", None, "board", "/host", owned, 3),)
    assert " lag \u2013 " in seen(browser.read("/groups/group?name=fresh"))


def test_a_lag_in_which_partitions_are_missing_is_marked(admin: WithGroups, browser: Browser) -> None:
    admin.ends[REFUNDS] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")  # type: ignore[assignment]
    assert "audit Empty classic consumer 0 60+ 1" in seen(browser.read("/groups"))
    assert " lag 60+ " in seen(browser.read("/groups/group?name=audit"))


def test_names_that_strangers_choose_are_text(admin: WithGroups, browser: Browser) -> None:
    member = GroupMember(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (TopicPartition(HOSTILE, 0),), 3)
    admin.members[HOSTILE] = (member,)
    for address in ("/groups", f"/groups/group?name={HOSTILE.replace('&', '%26')}"):
        page = browser.read(address)
        assert "<script>alert" not in page
        assert "<img" not in page


def test_lag_is_remembered_within_bounds() -> None:
    history = LagHistory()
    for number in range(3):
        history.note("billing", float(number), {"orders": number * 10, "refunds": 3})
    orders, refunds = history.series("billing", 600, 2)
    # Two seconds are one point, which has the larger lag.
    assert orders.points == [(1.0, 10.0), (2.0, 20.0)]
    assert refunds.name == "refunds"
    for number in range(LAG_GROUPS_MAX):
        history.note(f"g{number}", 3.0, {"orders": 1})
    assert history.series("billing", 600, 2) == []


def test_the_topics_with_the_most_lag_are_remembered() -> None:
    history = LagHistory()
    history.note("g", 0.0, {f"t{number:02}": number for number in range(20)})
    assert [line.name for line in history.series("g", 600, 0)] == ["t19", "t18", "t17", "t16", "t15", "t14"]
    history.note("g", 10.0, {f"t{number:02}": None if number == 19 else 100 - number for number in range(20)})
    assert history.series("g", 600, 10)[0].name == "t00"
    assert len(history.series("g", 600, 10)) == LAG_TOPICS_MAX


# ------------------------------------------------------------ share groups


class WithShareGroup(WithGroups):
    """The same cluster, with the share group `tasks`, whose two members have partition 0 of orders in common."""

    def __init__(self) -> None:
        super().__init__()
        self.members["tasks"] = tuple(
            GroupMember(name, None, name, "/host", (ORDERS, *more), 4)
            for name, more in (("eve", ()), ("kim", (TopicPartition("orders", 1),)))
        )
        self.places = {
            ORDERS: ShareGroupOffset(30, 64),
            TopicPartition("orders", 1): ShareGroupOffset(None, None),
        }

    async def list_groups(self) -> list[GroupListing]:
        return [
            replace(group, type="share", protocol_type="share") if group.group_id == "tasks" else group
            for group in await super().list_groups()
        ]

    async def describe_groups(self, names: Iterable[str]) -> list[GroupDescription]:
        return [
            replace(group, type="share", assignor="simple") if group.group_id == "tasks" else group
            for group in await super().describe_groups(names)
        ]

    async def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        assert group_id != "tasks", "a share group has none"
        return await super().committed_offsets(group_id)

    async def share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        assert group_id == "tasks"
        return self.places

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        self.calls.append(("seek", (group_id, dict(offsets))))
        return dict.fromkeys(offsets)


@pytest.fixture
def sharing() -> WithShareGroup:
    return WithShareGroup()


def test_a_share_group_is_listed_with_its_lag(sharing: WithShareGroup) -> None:
    page = seen(Browser(sharing).enter().read("/groups"))
    assert "tasks Stable share share 2 64+ 1" in page


def test_a_share_group_shows_start_offsets_and_members_of_partitions(sharing: WithShareGroup) -> None:
    browser = Browser(sharing, may_change=True).enter()
    html = browser.read("/groups/group?name=tasks&sort=-members")
    page = seen(html)
    assert "topic partition start end lag members" in page
    assert "orders 0 30 100 64 2 next move" in page
    assert f"orders 1 {UNKNOWN} 0 {UNKNOWN} 1 newest move" in page
    assert "kim kim /host 4 2 orders: 0, 1" in page
    assert 'aria-label="messages of orders-0 from the start offset on"' in html
    assert 'data-label="start"' in html


class Reporting(EndOffsets):
    """Metrics endpoints that report one partition of the share group."""

    async def held(self, group_id: str) -> Mapping[TopicPartition, int]:  # type: ignore[override]
        return {ORDERS: 1_200} if group_id == "tasks" else {}


def test_a_share_group_shows_the_records_that_its_members_hold(sharing: WithShareGroup) -> None:
    browser = Browser(sharing).enter()
    page = seen(browser.read("/groups/group?name=tasks"))
    assert "Only metrics endpoints of brokers report how many records members hold" in page
    browser.session.sampler._source = Reporting(cast(Admin, sharing))
    html = browser.read("/groups/group?name=tasks&sort=-held")
    page = seen(html)
    assert "topic partition start end lag held members" in page
    assert "orders 0 30 100 64 1,200 2 next" in page
    assert f"orders 1 {UNKNOWN} 0 {UNKNOWN} {UNKNOWN} 1 newest" in page
    assert 'data-label="held"' in html
    assert "Only metrics endpoints" not in page
    assert "held" not in seen(browser.read("/groups/group?name=billing"))


def test_the_start_offsets_of_a_share_group_are_moved(sharing: WithShareGroup) -> None:
    browser = Browser(sharing, may_change=True).enter()
    assert "is Stable with 2 members: stop them first" in seen(
        browser.send("/groups/seek?name=tasks", 400, to="start")
    )
    sharing.members["tasks"] = ()
    page = seen(browser.send("/groups/seek?name=tasks", to="back by", value="10"))
    assert "orders-0 30 20 (-10)" in page
    assert "ottla group seek tasks --topic orders:0=20" in page
    browser.change("/groups/seek?name=tasks", to="back by", value="10")
    assert sharing.calls == [("seek", ("tasks", {ORDERS: 20}))]
    assert "offsets 1" in seen(browser.send("/groups/delete?name=tasks", again="tasks"))


# ------------------------------------------------------------ changes


def test_a_seek_is_shown_before_it_is_done(admin: WithGroups, browser: Browser) -> None:
    page = seen(
        browser.send("/groups/seek?name=audit", to="offset", value="45", topic="orders", partition="0")
    )
    assert "orders-0 40 45 (+5)" in page
    assert "ottla group seek audit --topic orders:0=45" in page
    assert admin.changes() == []
    where = browser.change("/groups/seek?name=audit", to="offset", value="45", topic="orders", partition="0")
    assert where.startswith("/groups/group?name=audit&done=")
    assert admin.calls == [("seek", ("audit", {ORDERS: 45}))]


@pytest.mark.parametrize(
    ("to", "value", "topic", "expected"),
    [
        ("start", "", "", {ORDERS: 0, REFUNDS: 0}),
        ("end", "", "", {ORDERS: 100, REFUNDS: 7}),
        ("offset", "1000", "refunds", {REFUNDS: 7}),
        ("back by", "2", "refunds", {REFUNDS: 3}),
        ("end", "", "orders", {ORDERS: 100, TopicPartition("orders", 1): 0}),
        ("forward by", "10", "", {ORDERS: 50, REFUNDS: 7}),
        ("time", "2026-01-31T12:00:00Z", "refunds", {REFUNDS: 7}),
    ],
)
def test_offsets_go_where_the_form_says_and_exist(
    admin: WithGroups, browser: Browser, to: str, value: str, topic: str, expected: dict[TopicPartition, int]
) -> None:
    browser.change("/groups/seek?name=audit", to=to, value=value, topic=topic)
    assert admin.calls == [("seek", ("audit", expected))]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"to": "up", "value": "1"}, "'to' is one of start, end"),
        ({"to": "offset", "value": "x"}, "'value' is a whole number"),
        ({"to": "offset"}, "'value' is a whole number"),
        ({"to": "time", "value": "noon"}, "'value' is a time as"),
        ({"to": "start", "partition": "0"}, "a partition needs a topic"),
        ({"to": "back by", "value": "1", "topic": "orders", "partition": "1"}, "no offset of orders-1"),
        ({"to": "back by", "value": "1", "topic": "orders"}, "no offset of orders-1"),
    ],
)
def test_a_form_that_is_wrong_says_what_is_allowed(
    admin: WithGroups, browser: Browser, form: dict[str, str], reason: str
) -> None:
    page = seen(browser.send("/groups/seek?name=audit", 400, **form))
    assert reason in page
    assert admin.calls == []


def test_a_group_with_members_is_left_alone(admin: WithGroups, browser: Browser) -> None:
    page = seen(browser.send("/groups/seek?name=billing", 400, to="start", step="apply"))
    assert "is Stable with 1 member: stop them first" in page
    assert "stop them first" in seen(browser.send("/groups/delete?name=billing", 400, again="billing"))
    assert admin.calls == []


def test_a_refusal_is_told(admin: WithGroups, browser: Browser) -> None:
    admin.refusal = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "denied: READ on group audit")
    page = seen(browser.change("/groups/seek?name=audit", 403, to="start"))
    assert "denied: READ on group audit" in page


def test_a_deletion_wants_the_name_once_more(admin: WithGroups, browser: Browser) -> None:
    assert "the name is audit" in seen(browser.send("/groups/delete?name=audit", 400, again="audi"))
    assert "offsets 2" in seen(browser.send("/groups/delete?name=audit", again="audit"))
    assert admin.calls == []
    assert browser.change("/groups/delete?name=audit", again="audit").startswith("/groups?")
    assert admin.calls == [("delete", "audit")]
    assert "there is no group" in seen(browser.send("/groups/delete?name=audit", 404, again="audit"))


@pytest.mark.parametrize("name", ["audit ", " audit", "audit\n", "audit\u2028"])
def test_a_name_with_spaces_around_it_is_that_of_another_group(
    admin: WithGroups, browser: Browser, name: str
) -> None:
    admin.members[name] = ()
    admin.committed[name] = {ORDERS: 3}
    group = f"?{urlencode({'name': name})}"
    assert "orders 0 3 100 97" in seen(browser.read(f"/groups/group{group}"))
    browser.change(f"/groups/seek{group}", to="offset", value="45")
    browser.send(f"/groups/delete{group}", 400, again="audit", step="apply")
    browser.change(f"/groups/delete{group}", again=name)
    assert admin.calls == [("seek", (name, {ORDERS: 45})), ("delete", name)]


def test_a_name_may_be_confirmed_with_spaces_around_it(admin: WithGroups, browser: Browser) -> None:
    browser.change("/groups/delete?name=audit", again=" audit ")
    assert admin.calls == [("delete", "audit")]


def test_a_time_without_a_zone_is_utc() -> None:
    visit = Visit(
        admin=None, sampler=None, readings=None, connection={},  # type: ignore[arg-type]
        may_change=True, path="/groups/seek", query={"name": "g"}, form={"to": "time", "value": "1970-01-01T00:00:01"},
    )  # fmt: skip
    assert changes.target_of(visit).number == 1000
    assert (
        changes.target_of(replace(visit, form={"to": "time", "value": "1969-12-31T23:59:59.999"})).number == 0
    )
