"""Transactions in the console: the list, one transactional id, hanging transactions, and permitted actions."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

import pytest

from ottla.client.admin import (
    Cut,
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.failures import VersionUnsupported
from ottla.client.records import TopicPartition
from ottla.console.formats import UNKNOWN
from ottla.console.pages.transactions.listing import transaction_row
from ottla.console.pages.transactions.transaction import open_partition
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, partition, seen, topic

ORDERS = TopicPartition("orders", 0)


def told(name: str, state: str, **changes: Any) -> TransactionDescription:
    given: dict[str, Any] = {
        "transactional_id": name,
        "state": state,
        "producer_id": 4711,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "started_ms": int(time.time() * 1000) - 10_000 if state == "Ongoing" else -1,
        "partitions": (ORDERS,) if state == "Ongoing" else (),
        "app_version": -1,
        "coordinator": 2,
    }
    return TransactionDescription(**(given | changes))


class WithTransactions(FakeAdmin):
    def __init__(self, *known: TransactionDescription) -> None:
        super().__init__(topic("orders", partition(0)), topic("refunds", partition(0)))
        self.known = {transaction.transactional_id: transaction for transaction in known}
        self.cut: Cut | KafkaError = Cut(1234)
        self.hanging: list[HangingTransaction] = []
        self.refusal: KafkaError | None = None
        self.silent: dict[int, KafkaError] = {}

    async def list_transactions_by_broker(
        self, *, pattern: str | None = None
    ) -> dict[int, list[TransactionListing] | KafkaError]:
        listed = [
            TransactionListing(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.state,
                transaction.coordinator,
            )
            for transaction in self.known.values()
        ]
        return {2: listed, **self.silent}

    async def describe_transactions(self, names: Iterable[str]) -> dict[str, Any]:
        missing = KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "there is no such id")
        return {name: self.known.get(name, missing) for name in names}

    async def describe_producers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        return {place: [ProducerDescription(4711, 3, 17, 1_000, 0, 500)] for place in partitions}

    async def find_cut(self, partitions: Iterable[TopicPartition]) -> Cut:
        if isinstance(self.cut, KafkaError):
            raise self.cut
        return self.cut

    async def find_hanging(
        self, partitions: Iterable[TopicPartition], *, max_transaction_timeout_ms: int
    ) -> list[HangingTransaction]:
        self.calls.append(("hanging", (sorted(partitions), max_transaction_timeout_ms, True)))
        return self.hanging

    async def abort_transaction(self, transactional_id: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append(("abort", transactional_id))

    async def delete_transactional_id(self, transactional_id: str) -> None:
        self.calls.append(("forget", transactional_id))


@pytest.fixture
def admin() -> WithTransactions:
    return WithTransactions(told("copy", "Ongoing"), told("old", "CompleteCommit", app_version=42))


@pytest.fixture
def browser(admin: WithTransactions) -> Browser:
    return Browser(admin, may_change=True).enter()


def test_the_list_shows_states_ages_versions_and_the_newest_cut(browser: Browser) -> None:
    page = seen(browser.read("/transactions"))
    assert "newest cut 1,234" in page
    assert re.search(rf"copy Ongoing 1\d s 1 {UNKNOWN} 4711 3 2", page)
    assert f"old CompleteCommit {UNKNOWN} 0 42 4711 3 2" in page
    only = seen(browser.read("/transactions?state=Ongoing&q=COP"))
    assert "copy Ongoing" in only
    assert "old CompleteCommit" not in only
    assert "'state' is one of Empty" in seen(browser.read("/transactions?state=Open", 400))


def test_the_list_can_be_sorted(browser: Browser) -> None:
    page = browser.read("/transactions?sort=-id&q=o")
    assert "old" in seen(page).partition("copy Ongoing")[0]
    assert '<input type="hidden" name="sort" value="-id">' in page
    assert "'sort' is one of id, state" in seen(browser.read("/transactions?sort=epoc", 400))


def test_an_empty_list_says_how_to_go_on() -> None:
    page = seen(Browser(WithTransactions()).enter().read("/transactions"))
    assert "The cluster has no transactional ids. A producer with the option transactional_id" in page
    page = seen(Browser(WithTransactions()).enter().read("/transactions?q=x"))
    assert "No transactional id matches. Show all" in page


def test_a_coordinator_that_loads_hides_no_other(admin: WithTransactions, browser: Browser) -> None:
    admin.silent = {3: KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")}
    page = seen(browser.read("/transactions"))
    assert (
        "Broker 3 does not report its transactional ids, which are missing here: it loads "
        "(COORDINATOR_LOAD_IN_PROGRESS)"
    ) in page
    assert re.search(r"copy Ongoing 1\d s", page)

    async def loading(names: Iterable[str]) -> dict[str, Any]:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads, too")

    admin.describe_transactions = loading  # type: ignore[method-assign]
    page = seen(browser.read("/transactions"))
    assert "Only ids and states are shown: it loads, too (COORDINATOR_LOAD_IN_PROGRESS)" in page
    assert f"copy Ongoing {UNKNOWN} {UNKNOWN}" in page


def test_a_cluster_that_lists_nothing_says_why(admin: WithTransactions, browser: Browser) -> None:
    async def silent(*, pattern: str | None = None) -> dict[int, KafkaError]:
        return {1: KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")}

    admin.list_transactions_by_broker = silent  # type: ignore[assignment,method-assign]
    assert "it loads" in seen(browser.read("/transactions", 502))


def test_a_cluster_without_cuts_has_a_list_all_the_same(admin: WithTransactions, browser: Browser) -> None:
    admin.cut = VersionUnsupported("FindCut is not offered")
    page = seen(browser.read("/transactions"))
    assert "newest cut" not in page
    assert "copy Ongoing" in page


def test_a_transaction_that_is_open_for_too_long_is_late() -> None:
    listed = TransactionListing("copy", 4711, "Ongoing", 2)
    late = told("copy", "Ongoing", started_ms=0, timeout_ms=60_000)
    assert transaction_row(listed, {"copy": late}, 61.0).is_late
    assert not transaction_row(listed, {"copy": late}, 60.0).is_late
    unknown = transaction_row(listed, {"copy": KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)}, 61.0)
    assert (unknown.state, unknown.epoch, unknown.open_s, unknown.is_late) == ("Ongoing", None, None, False)


def test_an_id_shows_the_partitions_of_its_transaction(browser: Browser) -> None:
    page = browser.read("/transactions/id?id=copy")
    assert 'href="/messages?topic=orders&amp;partition=0&amp;at=500&amp;from=offset"' in page
    page = seen(page)
    assert "Transactional id copy" in page
    assert "orders 0 500 17 1970-01-01 00:00:01" in page
    assert "all markers are written" in seen(browser.read("/transactions/id?id=old"))
    assert "there is no such id" in seen(browser.read("/transactions/id?id=other", 404))


def test_a_time_that_no_calendar_has_leaves_a_dash(admin: WithTransactions, browser: Browser) -> None:
    """The time comes from a record, so the producer chooses it."""

    async def written_late(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        return {place: [ProducerDescription(4711, 3, 17, 2**62, 0, 500)] for place in partitions}

    admin.describe_producers = written_late  # type: ignore[method-assign]
    assert f"orders 0 500 17 {UNKNOWN}" in seen(browser.read("/transactions/id?id=copy"))


def test_a_leader_that_does_not_tell_leaves_dashes() -> None:
    refused = open_partition(ORDERS, 4711, {ORDERS: KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)})
    other = open_partition(ORDERS, 4711, {ORDERS: [ProducerDescription(1, 0, 0, 0, 0, 0)]})
    assert refused == other
    assert (refused.first_offset, refused.last_write_s) == (None, None)


def test_what_hangs_is_looked_for_when_somebody_asks(admin: WithTransactions, browser: Browser) -> None:
    browser.read("/transactions/hanging")
    assert admin.calls == []
    assert "0 hanging transactions in 2 partitions" in seen(
        browser.read("/transactions/hanging?search=yes&minutes=5")
    )
    assert admin.calls == [("hanging", ([ORDERS, TopicPartition("refunds", 0)], 300_000, True))]
    producer = ProducerDescription(9, 1, 0, int(time.time() * 1000) - 3_600_000, 0, 77)
    admin.hanging = [HangingTransaction(ORDERS, producer)]
    page = seen(browser.read("/transactions/hanging?search=yes&topic=orders"))
    assert "orders 0 77 9 1 60 min ottla txn abort-hanging orders:0 --producer-id 9" in page
    assert "there is no topic 'x'" in seen(browser.read("/transactions/hanging?search=yes&topic=x", 400))


def test_an_abort_is_shown_before_it_is_done(admin: WithTransactions, browser: Browser) -> None:
    assert "the id is copy" in seen(browser.send("/transactions/abort?id=copy", 400, again="cop"))
    page = seen(browser.send("/transactions/abort?id=copy", again="copy"))
    assert "Ongoing CompleteAbort" in page
    assert "ottla txn abort copy" in page
    assert admin.changes() == []
    where = browser.change("/transactions/abort?id=copy", again="copy")
    assert where.startswith("/transactions/id?id=copy&done=")
    assert admin.calls == [("abort", "copy")]
    assert "has no open transaction" in seen(browser.send("/transactions/abort?id=old", 400, again="old"))


def test_a_cluster_that_takes_no_aborts_says_so(admin: WithTransactions, browser: Browser) -> None:
    admin.refusal = VersionUnsupported("the broker does not offer AbortTransaction")
    page = seen(browser.change("/transactions/abort?id=copy", 501, again="copy"))
    assert "The cluster does not support this" in page


def test_an_id_is_deleted_once_nothing_is_open(admin: WithTransactions, browser: Browser) -> None:
    page = browser.send("/transactions/forget?id=copy", 400, again="copy", step="apply")
    assert "its transaction has to end first" in seen(page)
    assert "42" in seen(browser.send("/transactions/forget?id=old", again="old"))
    browser.change("/transactions/forget?id=old", again="old")
    assert admin.calls == [("forget", "old")]


def test_an_id_with_spaces_around_it_is_another_one(admin: WithTransactions, browser: Browser) -> None:
    admin.known["copy "] = told("copy ", "Ongoing")
    browser.send("/transactions/abort?id=copy+", 400, again="copy", step="apply")
    browser.change("/transactions/abort?id=copy+", again="copy ")
    assert admin.calls == [("abort", "copy ")]


def test_ids_that_strangers_choose_are_text(admin: WithTransactions, browser: Browser) -> None:
    admin.known[HOSTILE] = told(HOSTILE, "Ongoing")
    page = browser.read("/transactions")
    assert "<script>alert" not in page
    assert "<img" not in page
