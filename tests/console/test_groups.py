"""Groups in the console: the list, one group, its lag over time, and each change with its preview."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from ottla.client.admin import GroupDescription, GroupListing, GroupMember
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.records import TopicPartition
from ottla.console.area import Visit
from ottla.console.formats import UNKNOWN
from ottla.console.pages.groups import changes
from ottla.console.pages.groups.group import REMEMBERED_MAX, LagHistory
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


def test_a_coordinator_that_loads_hides_no_other(admin: WithGroups, browser: Browser) -> None:
    admin.silent = {3: KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")}
    page = seen(browser.read("/groups"))
    assert "Broker 3 does not report its groups, which are missing here: it loads" in page
    assert "audit Empty classic consumer 0 62 1" in page


def test_a_group_that_goes_meanwhile_spoils_no_list(admin: WithGroups, browser: Browser) -> None:
    async def gone(names: Iterable[str]) -> list[GroupDescription]:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "gone")

    admin.describe_groups = gone  # type: ignore[method-assign]
    assert f"billing Stable classic consumer {UNKNOWN} {UNKNOWN} 1" in seen(browser.read("/groups"))


def test_a_group_shows_each_partition_with_its_lag_and_its_owner(browser: Browser) -> None:
    page = seen(browser.read("/groups/group?name=billing"))
    assert "orders 0 90 100 10 ann move" in page
    assert f"orders 1 {UNKNOWN} 0 {UNKNOWN} ann move" in page
    assert f"ann-1 left ann /10.0.0.1 {UNKNOWN} orders: 0, 1" in page
    assert "there is no group 'nobody'" in browser.read("/groups/group?name=nobody", 404).replace(
        "&#39;", "'"
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
    now = [0.0]
    history = LagHistory(lambda: now[0])

    def told(name: str, lag: int) -> Any:
        class Told:
            group = GroupListing(name, "", "", "", 1)

            def lag_by_topic(self) -> dict[str, tuple[int, int | None]]:
                return {"orders": (1, lag), "refunds": (1, 3)}

        return Told()

    for number in range(3):
        now[0] = float(number)
        history.note(told("billing", number * 10))
    orders, refunds = history.series("billing")
    assert orders.points == ((0.0, 0.0), (1.0, 10.0), (2.0, 20.0))
    assert refunds.name == "refunds"
    for number in range(REMEMBERED_MAX):
        history.note(told(f"g{number}", 1))
    assert history.series("billing") == []


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
    assert "is Stable with 1 members: stop them first" in page
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
        admin=None, sampler=None, connection={}, may_change=True, path="/groups/seek",  # type: ignore[arg-type]
        query={"name": "g"}, form={"to": "time", "value": "1970-01-01T00:00:01"},
    )  # fmt: skip
    assert changes.target_of(visit).number == 1000
    assert (
        changes.target_of(replace(visit, form={"to": "time", "value": "1969-12-31T23:59:59.999"})).number == 0
    )
