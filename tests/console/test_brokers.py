"""Brokers in the console: their folders, replicas and settings."""

from __future__ import annotations

import pytest

from ottla.client.admin import ClusterDescription, ConfigEntry
from ottla.console.formats import UNKNOWN
from ottla.console.pages.brokers.page import all_folders, folder_rows
from ottla.console.pages.brokers.rows import broker_rows
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.brokers_with_folders import BROKEN, FOLDER, FoldersAdmin
from tests.console.fakes import HOSTILE, Browser, fenced, partition, seen, snapshot_of, topic


@pytest.fixture
def browser() -> Browser:
    return Browser(FoldersAdmin(topic("orders", partition()))).enter()


def test_a_folder_says_how_full_its_volume_is() -> None:
    whole, broken = folder_rows(1, [FOLDER, BROKEN])
    assert (whole.replicas, whole.size, whole.used_text, whole.is_full) == (2, 700, "95%", True)
    assert (broken.trouble, broken.used, broken.used_text, broken.is_full) == (
        "it is offline",
        None,
        "",
        False,
    )


def test_the_largest_replicas_come_first_unless_another_order_is_wanted(browser: Browser) -> None:
    assert "payments-1 400 B /data/a orders-0 300 B" in seen(browser.read("/brokers/broker?id=1"))
    assert "orders-0 300 B /data/a payments-1 400 B" in seen(
        browser.read("/brokers/broker?id=1&sort=replica")
    )
    assert "'sort' is one of replica, size, folder" in seen(browser.read("/brokers/broker?id=1&sort=x", 400))


def test_a_broker_that_does_not_answer_hides_no_other() -> None:
    silent = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
    folders, missing = all_folders({2: silent, 1: [FOLDER]})
    assert [folder.broker for folder in folders] == [1]
    assert missing == {2: "no answer"}


def test_absent_brokers_come_first_with_the_time_of_their_departure() -> None:
    cluster = ClusterDescription("c", 2, snapshot_of().cluster.brokers[:2], fenced(9))
    partitions = topic("a", partition(0, isr=(1, 2)), partition(1, leader=2, isr=(2,)))
    rows = broker_rows(snapshot_of(partitions, at_s=1600.0, cluster=cluster), {3: 1000.0})
    assert [(row.id, row.state, row.since, row.address) for row in rows] == [
        (3, "down", "since 1970-01-01 00:16:40 UTC (10 min)", ""),
        (9, "fenced", "since before the console started", "host:9100"),
        (1, "active", "", "host:9092"),
        (2, "active", "", "host:9093"),
    ]
    assert [(row.leads, row.replicas, row.in_sync, row.missing, row.is_controller) for row in rows] == [
        (0, 2, 0, 2, False),
        (0, 0, 0, 0, False),
        (1, 2, 1, 1, False),
        (1, 2, 2, 0, True),
    ]


def test_the_cluster_knows_best_since_when_a_broker_is_fenced() -> None:
    cluster = ClusterDescription("c", 2, snapshot_of().cluster.brokers[:2], fenced(3, since_ms=1_300_000))
    (row, *_) = broker_rows(snapshot_of(at_s=1600.0, cluster=cluster), {3: 1500.0})
    assert row.since == "since 1970-01-01 00:21:40 UTC (5 min)"


def test_the_list(browser: Browser) -> None:
    page = seen(browser.read("/brokers"))
    assert "1 active host:9092 1 1 1 2 controller active host:9093 0 1 1" in page
    assert "1 /data/a nearly full 2 700 B 50 B 1000 B 95%" in page
    assert f"/data/b it is offline 0 0 B {UNKNOWN} {UNKNOWN} {UNKNOWN}" in page
    assert "Broker 3 does not report its folders, which are missing here: broker 3 is silent" in page


def test_both_tables_of_the_list_can_be_sorted(browser: Browser) -> None:
    page = browser.read("/brokers?sort=-broker&folders=-used")
    assert "3 active host:9094" in seen(page).partition("2 controller")[0]
    assert 'aria-sort="descending"><a href="/brokers?folders=-used&amp;sort=broker">broker</a>' in page
    assert "/data/a nearly full" in seen(page).partition("/data/b")[0]
    assert "/data/b it is offline" in seen(browser.read("/brokers?folders=-folder")).partition("/data/a")[0]


def test_one_broker(browser: Browser) -> None:
    page = seen(browser.read("/brokers/broker?id=1&all=yes"))
    assert "state active address host:9092" in page
    assert "payments-1 400 B /data/a" in page
    assert "retention.ms 604800000 default" in page
    assert "(secret)" in page
    assert "broker 3 is silent" in seen(browser.read("/brokers/broker?id=3"))
    assert "there is no broker 7; the brokers are 1, 2, 3" in seen(browser.read("/brokers/broker?id=7", 404))
    assert "'id' is a whole number" in seen(browser.read("/brokers/broker?id=one", 400))


def test_a_fenced_broker_says_so() -> None:
    admin = FoldersAdmin(topic("orders", partition(isr=(1, 2))))
    cluster = ClusterDescription("c", 1, snapshot_of().cluster.brokers[:2], fenced(3))

    async def describe_cluster() -> ClusterDescription:
        return cluster

    admin.describe_cluster = describe_cluster  # type: ignore[method-assign]
    page = seen(Browser(admin).enter().read("/brokers/broker?id=3"))
    assert (
        "Broker 3 is fenced since before the console started. Replicas that are not in sync: 1 of 1." in page
    )
    assert "The broker does not report its folders: broker 3 is silent" in page


def test_settings_that_are_not_told_hide_nothing_else() -> None:
    class Refusing(FoldersAdmin):
        async def describe_configs(self, kind: int, name: str) -> list[ConfigEntry]:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"not for you: {HOSTILE}")

    text = Browser(Refusing()).enter().read("/brokers/broker?id=1")
    assert "not for you" in text
    assert "payments-1" in text
    assert "<script>" not in text


def test_settings_of_a_broker_are_changed_after_a_preview() -> None:
    admin = FoldersAdmin()
    browser = Browser(admin, may_change=True).enter()
    admin.settings["1"] = {"log.retention.ms": "1000"}
    address = "/brokers/alter?id=1"
    assert "log.retention.ms=1000</textarea>" in browser.read(f"{address}&as=lines")
    fields = {"settings": "num.io.threads=4"}
    preview = seen(browser.send(address, step="preview", **fields))
    assert "num.io.threads nothing 4 (broker) log.retention.ms 1000 (broker) 604800000 (default)" in preview
    assert "ottla config set broker 1 num.io.threads=4" in preview
    assert "ottla config unset broker 1 log.retention.ms" in preview
    assert admin.changes() == []
    assert browser.change(address, **fields).startswith("/brokers/broker?id=1&done=")
    assert admin.settings["1"] == {"num.io.threads": "4"}
    again = seen(browser.send(address, 400, step="apply", **fields))
    assert "there is nothing to change" in again


def test_settings_of_all_brokers_go_by_no_id() -> None:
    admin = FoldersAdmin()
    browser = Browser(admin, may_change=True).enter()
    preview = seen(browser.send("/brokers/alter?id=all", step="preview", settings="num.io.threads=4"))
    assert "4 (all brokers)" in preview
    assert "ottla config set broker all num.io.threads=4" in preview
    assert admin.calls == [("alter", ("", {"num.io.threads": "4"}, True))]
    assert "there is no broker 7" in seen(browser.read("/brokers/alter?id=7", 404))


def test_secrets_are_taken_by_no_form_and_told_by_no_log(caplog: pytest.LogCaptureFixture) -> None:
    admin = FoldersAdmin()
    browser = Browser(admin, may_change=True).enter()
    given = "ssl.keystore.password=guessme\nnum.io.threads=4"
    page = seen(browser.send("/brokers/alter?id=1", 400, step="apply", settings=given))
    assert "ssl.keystore.password is a secret" in page
    assert "num.io.threads=4" in caplog.text
    assert "guessme" not in caplog.text
    assert admin.changes() == []


def test_folders_are_cordoned_by_boxes() -> None:
    admin = FoldersAdmin()
    browser = Browser(admin, may_change=True).enter()
    address = "/brokers/cordon?id=1"
    boxes = {"folder /data/a": "yes"}
    preview = seen(browser.send(address, step="preview", **boxes))
    assert "/data/a takes new replicas no new replicas" in preview
    assert "/data/b" not in preview
    assert "ottla config set broker 1 cordoned.log.dirs=/data/a" in preview
    browser.change(address, **boxes)
    assert admin.cordoned() == {"/data/a"}
    assert "cordoned" in seen(browser.read("/brokers"))
    assert browser.read(address).count(" checked") == 1
    assert "nothing to change" in seen(browser.send(address, 400, step="preview", **boxes))
    assert "ottla config unset broker 1 cordoned.log.dirs" in seen(browser.send(address, step="preview"))
    assert "broker 3 is silent" in seen(browser.read("/brokers/cordon?id=3", 502))
