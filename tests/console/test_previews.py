"""Previews in the console: "Do it" carries out the displayed change, or refuses since the state has changed."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from ottla.client.admin import Admin, MirrorCut, MirrorDescription
from ottla.client.records import TopicPartition
from ottla.console.area import Action, Change, Difference, Done, Outdated, Visit, check_as_shown
from ottla.console.bounds import PREVIEW_S, PREVIEWS_MAX
from ottla.console.pages import all_areas
from ottla.console.previews import Previews
from ottla.protocol.cluster.mirror_table import MirrorPhase
from tests.console.brokers_with_folders import FoldersAdmin
from tests.console.fakes import ORIGIN, Browser, FakeAdmin, hidden_fields, partition, seen, topic
from tests.console.test_groups import ORDERS, REFUNDS, WithGroups
from tests.console.test_mirrors import WEST, WithMirrors
from tests.console.test_quotas import OF_ANN, Limiting
from tests.console.test_transactions import WithTransactions, told

HERE = Visit(
    admin=cast(Admin, None), sampler=None, readings=None, connection={},  # type: ignore[arg-type]
    may_change=True, path="/topics/create",
    form={"topic": "new"},
)  # fmt: skip


async def nothing(visit: Visit) -> Done:
    return Done("nothing", "/topics")


def a_change() -> Change:
    return Change(title="a change", differences=[], carry_out=nothing)


# ------------------------------------------------------------ a preview


def test_a_preview_is_carried_out_once() -> None:
    previews = Previews()
    change = a_change()
    number = previews.keep(change, HERE)
    assert previews.take(number, HERE) is change
    with pytest.raises(Outdated, match="was carried out before"):
        previews.take(number, HERE)


@pytest.mark.parametrize(
    "other",
    [
        replace(HERE, form={"topic": "other"}),
        replace(HERE, form={"topic": "new", "partitions": "3"}),
        replace(HERE, path="/topics/delete"),
        replace(HERE, query={"name": "orders"}),
    ],
)
def test_a_preview_goes_with_its_form_alone(other: Visit) -> None:
    previews = Previews()
    number = previews.keep(a_change(), HERE)
    with pytest.raises(Outdated, match="of another form"):
        previews.take(number, other)


def test_a_form_without_a_number_has_the_newest_preview_of_the_same_form() -> None:
    previews = Previews()
    first, second = a_change(), a_change()
    number = previews.keep(first, HERE)
    previews.keep(second, HERE)
    previews.keep(a_change(), replace(HERE, form={"topic": "other"}))
    assert previews.take("", HERE) is second
    assert previews.take(number, HERE) is first
    with pytest.raises(Outdated):
        previews.take("", HERE)


def test_previews_that_are_old_or_many_are_forgotten() -> None:
    now_s = 0.0
    previews = Previews(now=lambda: now_s)
    first = previews.keep(a_change(), HERE)
    numbers = [previews.keep(a_change(), HERE) for _ in range(PREVIEWS_MAX)]
    with pytest.raises(Outdated):
        previews.take(first, HERE)
    assert previews.take(numbers[0], HERE)
    now_s += PREVIEW_S + 1
    with pytest.raises(Outdated, match="too old"):
        previews.take(numbers[-1], HERE)


def test_a_line_that_is_not_true_any_more_is_named() -> None:
    shown = [Difference("a", "1", "2"), Difference("b", None, "3")]
    check_as_shown(shown, list(shown))
    with pytest.raises(
        Outdated, match="b: the preview showed nothing that becomes 3, and it is 4 that becomes 3 now"
    ):
        check_as_shown(shown, [shown[0], Difference("b", "4", "3")])
    with pytest.raises(Outdated, match=r"b: .* unchanged now"):
        check_as_shown(shown, shown[:1])


def test_no_form_is_carried_out_without_its_preview() -> None:
    admin = WithGroups()
    browser = Browser(admin, may_change=True).enter()
    actions = [part for area in all_areas() for part in area.parts if isinstance(part, Action)]
    assert len(actions) >= 15
    for action in actions:
        given = {"form_value": browser.door.form_value, "step": "apply", "again": "audit", "to": "start"}
        for number in ("", "invented"):
            answer = browser.client.post(
                f"{action.path}?name=audit&id=1",
                data={**given, "preview": number},
                headers={"origin": ORIGIN},
            )
            assert answer.status_code >= 400, action.path
    assert admin.changes() == []


def test_a_second_click_sends_no_second_record_and_says_so() -> None:
    admin = FakeAdmin()
    browser = Browser(admin, may_change=True).enter()
    preview = browser.send("/topics/create", topic="new")
    browser.do_it("/topics/create", preview)
    del admin.topics["new"]
    again = browser.do_it("/topics/create", preview, 409)
    assert "Not done: this preview was carried out before, or is too old" in seen(again)
    assert admin.changes() == ["create"]
    browser.do_it("/topics/create", again)  # it is a preview like any other
    assert admin.changes() == ["create", "create"]


def test_a_preview_of_another_session_is_none() -> None:
    admin, other = FakeAdmin(), FakeAdmin()
    preview = Browser(admin, may_change=True).enter().send("/topics/create", topic="new")
    stranger = Browser(other, may_change=True).enter()
    fields = {**hidden_fields(preview), "form_value": stranger.door.form_value}
    stranger.send("/topics/create", 409, **fields, step="apply")
    assert admin.changes() == other.changes() == []


# ------------------------------------------------------------ settings


def test_settings_that_others_have_set_since_stay() -> None:
    admin = FakeAdmin(topic("orders", partition()))
    admin.settings["orders"] = {"retention.ms": "1000"}
    browser = Browser(admin, may_change=True).enter()
    address = "/topics/alter?name=orders"
    preview = browser.send(address, settings="retention.ms=1000\nsegment.ms=5")
    admin.settings["orders"]["min.insync.replicas"] = "2"
    browser.do_it(address, preview)
    assert admin.settings["orders"] == {"retention.ms": "1000", "segment.ms": "5", "min.insync.replicas": "2"}


def test_settings_that_others_have_set_since_the_form_was_shown_stay() -> None:
    admin = FakeAdmin(topic("orders", partition()))
    admin.settings["orders"] = {"retention.ms": "1000"}
    browser = Browser(admin, may_change=True).enter()
    address = "/topics/alter?name=orders"
    form = hidden_fields(browser.read(f"{address}&as=lines"))
    admin.settings["orders"]["min.insync.replicas"] = "2"
    preview = browser.send(address, **form, settings="retention.ms=1000\nsegment.ms=5")
    assert "min.insync.replicas" not in seen(preview)
    browser.do_it(address, preview)
    assert admin.settings["orders"]["min.insync.replicas"] == "2"


@pytest.mark.parametrize(
    "address", ["/topics/alter?name=orders", "/brokers/alter?id=1", "/brokers/alter?id=all"]
)
def test_a_setting_that_somebody_else_has_changed_is_shown_again(address: str) -> None:
    admin = FakeAdmin(topic("orders", partition()))
    whose = {"/topics/alter?name=orders": "orders", "/brokers/alter?id=1": "1"}.get(address, "")
    admin.settings[whose] = {"retention.ms": "1000"}
    browser = Browser(admin, may_change=True).enter()
    preview = browser.send(address, settings="retention.ms=2000")
    admin.settings[whose] = {"retention.ms": "3000"}
    again = browser.do_it(address, preview, 409)
    assert "Not done: retention.ms: the preview showed 1000" in seen(again)
    assert admin.changes() == []
    browser.do_it(address, again)
    assert admin.settings[whose] == {"retention.ms": "2000"}


def test_quotas_that_others_have_set_since_stay() -> None:
    admin = Limiting()
    browser = Browser(admin, may_change=True).enter()
    preview = browser.send(OF_ANN, **{"quota producer_byte_rate": "2000"})
    admin.quotas[0][1]["consumer_byte_rate"] = 5.0
    browser.do_it(OF_ANN, preview)
    assert admin.calls[-1] == ("quotas", ({"user": "ann"}, {"producer_byte_rate": 2000.0}, False))
    preview = browser.send(OF_ANN, **{"quota producer_byte_rate": "2000", "quota consumer_byte_rate": "5"})
    admin.quotas[0][1]["producer_byte_rate"] = 3000.0
    calls = len(admin.calls)
    again = browser.do_it(OF_ANN, preview, 409)
    assert "the preview showed 1,000 that becomes 2,000, and it is 3,000" in seen(again)
    assert [given[-1] for _, given in admin.calls[calls:]] == [True]  # only checked, for the new preview


def test_folders_that_others_have_cordoned_since_stay_so() -> None:
    admin = FoldersAdmin()
    browser = Browser(admin, may_change=True).enter()
    address = "/brokers/cordon?id=1"
    form = hidden_fields(browser.read(address))
    admin.settings["1"] = {"cordoned.log.dirs": "/data/b"}
    preview = browser.send(address, **form, **{"folder /data/a": "yes"})
    assert "/data/b" not in seen(preview).partition("The same")[0]
    admin.settings["1"] = {}
    again = browser.do_it(address, preview, 409)
    assert "Not done: broker 1: somebody else has changed /data/b" in seen(again)
    browser.do_it(address, again)
    assert admin.cordoned() == {"/data/a"}


# ------------------------------------------------------------ topics and offsets


@pytest.mark.parametrize(
    ("page", "fields"),
    [
        ("alter", {"settings": "segment.ms=5"}),
        ("partitions", {"total": "4"}),
        ("trim", {"offset": "end"}),
        ("delete", {"again": "orders"}),
    ],
)
def test_a_topic_that_was_made_anew_is_another_one(page: str, fields: dict[str, str]) -> None:
    admin = FakeAdmin(topic("orders", partition(), id_=b"1" * 16))
    admin.ends[ORDERS] = 10
    browser = Browser(admin, may_change=True).enter()
    preview = browser.send(f"/topics/{page}?name=orders", **fields)
    admin.topics["orders"] = topic("orders", partition(), id_=b"2" * 16)
    again = browser.do_it(f"/topics/{page}?name=orders", preview, 409)
    assert "topic orders was deleted, and another one was created under its name" in seen(again)
    assert admin.changes() == []


def test_records_written_after_the_preview_are_not_trimmed() -> None:
    admin = FakeAdmin(topic("orders", partition()))
    admin.ends[ORDERS] = 10
    browser = Browser(admin, may_change=True).enter()
    preview = browser.send("/topics/trim?name=orders", offset="end")
    admin.ends[ORDERS] = 15
    browser.do_it("/topics/trim?name=orders", preview)
    assert admin.starts == {ORDERS: 10}


def test_a_topic_that_got_partitions_since_is_shown_again() -> None:
    admin = FakeAdmin(topic("orders", partition()))
    browser = Browser(admin, may_change=True).enter()
    for page, fields in (("partitions", {"total": "4"}), ("delete", {"again": "orders"})):
        admin.topics["orders"] = topic("orders", partition())
        preview = browser.send(f"/topics/{page}?name=orders", **fields)
        admin.topics["orders"] = topic("orders", partition(0), partition(1))
        assert "Not done: partitions: " in seen(browser.do_it(f"/topics/{page}?name=orders", preview, 409))
    assert admin.changes() == []


def test_a_group_that_went_on_is_not_moved() -> None:
    admin = WithGroups()
    browser = Browser(admin, may_change=True).enter()
    preview = browser.send("/groups/seek?name=audit", to="back by", value="2")
    admin.ends[ORDERS] = 1000  # of no account
    admin.committed["audit"][REFUNDS] = 7
    again = browser.do_it("/groups/seek?name=audit", preview, 409)
    assert "Not done: refunds-0: the preview showed 5 that becomes 3 (-2), and it is 7" in seen(again)
    assert admin.changes() == []
    browser.do_it("/groups/seek?name=audit", again)
    assert admin.calls == [("seek", ("audit", {ORDERS: 38, REFUNDS: 5}))]


def test_a_seek_to_the_end_goes_to_the_end_that_was_shown() -> None:
    admin = WithGroups()
    browser = Browser(admin, may_change=True).enter()
    preview = browser.send("/groups/seek?name=audit", to="end")
    admin.ends[ORDERS] = 1000
    browser.do_it("/groups/seek?name=audit", preview)
    assert admin.calls == [("seek", ("audit", {ORDERS: 100, REFUNDS: 7}))]


def test_a_group_that_has_members_by_now_is_left_alone() -> None:
    admin = WithGroups()
    browser = Browser(admin, may_change=True).enter()
    previews = {
        "/groups/seek?name=audit": browser.send("/groups/seek?name=audit", to="start"),
        "/groups/delete?name=audit": browser.send("/groups/delete?name=audit", again="audit"),
    }
    admin.members["audit"] = admin.members["billing"]
    for address, preview in previews.items():
        assert "stop them first" in seen(browser.do_it(address, preview, 400))
    admin.members["audit"] = ()
    admin.committed["audit"][TopicPartition("orders", 1)] = 3
    preview = browser.send("/groups/delete?name=audit", again="audit")
    del admin.committed["audit"][REFUNDS]
    assert "Not done: offsets: the preview showed 3" in seen(
        browser.do_it("/groups/delete?name=audit", preview, 409)
    )
    assert admin.changes() == []


# ------------------------------------------------------------ transactions and mirrors


def test_only_the_transaction_that_was_shown_is_aborted() -> None:
    admin = WithTransactions(told("copy", "Ongoing"))
    browser = Browser(admin, may_change=True).enter()
    address = "/transactions/abort?id=copy"
    preview = browser.send(address, again="copy")
    admin.known["copy"] = told("copy", "Ongoing", started_ms=admin.known["copy"].started_ms + 1)
    again = browser.do_it(address, preview, 409)
    assert "the transaction of copy has ended, and another one is open" in seen(again)
    admin.known["copy"] = replace(admin.known["copy"], partitions=(ORDERS, REFUNDS))
    browser.do_it(address, again)  # the change goes on, and is the same
    assert admin.calls == [("abort", "copy")]
    preview = browser.send(address, again="copy")
    admin.known["copy"] = told("copy", "CompleteCommit")
    assert "has no open transaction" in seen(browser.do_it(address, preview, 400))
    assert admin.calls == [("abort", "copy")]


def test_an_id_that_was_used_since_is_not_deleted() -> None:
    admin = WithTransactions(told("old", "CompleteCommit", app_version=42))
    browser = Browser(admin, may_change=True).enter()
    preview = browser.send("/transactions/forget?id=old", again="old")
    admin.known["old"] = replace(admin.known["old"], app_version=43, coordinator=3)
    again = browser.do_it("/transactions/forget?id=old", preview, 409)
    assert "Not done: old was used again" in seen(again)
    admin.known["old"] = replace(admin.known["old"], coordinator=1)
    browser.do_it("/transactions/forget?id=old", again)
    assert admin.calls == [("forget", "old")]


def with_cut(commit_index: int) -> MirrorDescription:
    return replace(WEST, cut=MirrorCut(commit_index, 1000))


@pytest.mark.parametrize(
    ("now", "status", "reason"),
    [
        (with_cut(4710), 409, "no cut at 4,711 or later any more"),
        (replace(WEST, cut=None), 400, "there is no cut"),
        (replace(WEST, phase=MirrorPhase.PAUSED), 409, "was active, and is paused"),
        (replace(WEST, source_cluster_id="other"), 409, "was replaced, or has other topics"),
        (replace(WEST, topics=()), 409, "was replaced, or has other topics"),
    ],
)
def test_a_mirror_is_promoted_as_it_was_shown(now: MirrorDescription, status: int, reason: str) -> None:
    admin = WithMirrors(WEST)
    browser = Browser(admin, may_change=True).enter()
    preview = browser.send("/mirrors/promote?name=west", again="west")
    admin.mirrors = [now]
    assert reason in seen(browser.do_it("/mirrors/promote?name=west", preview, status))
    assert admin.calls == []


def test_a_mirror_is_promoted_at_a_newer_cut() -> None:
    admin = WithMirrors(WEST)
    browser = Browser(admin, may_change=True).enter()
    preview = browser.send("/mirrors/promote?name=west", again="west")
    assert "4,711, 1 s old, or a newer one" in seen(preview)
    admin.mirrors = [with_cut(5000)]
    browser.do_it("/mirrors/promote?name=west", preview)
    assert [given[:2] for _, given in admin.calls] == [("west", True)]
