"""Spark queries in the console: which transactional ids are queries, their last batches, and groups without members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.client.admin import Cut, GroupListing, TransactionDescription, TransactionListing
from ottla.console.pages import spark
from ottla.console.pages.spark import QueryName, query_name
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, seen

QUERY = "0b7a6f1c-8d3e-4a55-9c1f-0123456789ab"


@pytest.mark.parametrize(
    ("transactional_id", "name"),
    [
        (f"spark-{QUERY}", QueryName(QUERY, "spark", "format('ottla')")),
        (f"delays-by-day-{QUERY}", QueryName(QUERY, "delays-by-day", "format('ottla')")),
        (f"spark-{QUERY}-delays", QueryName(QUERY, "delays", "foreachBatch")),
        (f"spark-{QUERY}-{QUERY}", QueryName(QUERY, QUERY, "foreachBatch")),
        (f"spark-batch-{QUERY}", None),
        (f"app-{QUERY}-1", None),
        (QUERY, None),
        ("copy", None),
    ],
)
def test_which_ids_are_those_of_queries(transactional_id: str, name: QueryName | None) -> None:
    assert query_name(transactional_id) == name


def told(name: str, app_version: int, state: str = "CompleteCommit") -> TransactionDescription:
    return TransactionDescription(name, state, 4711, 3, 60_000, 1_000, (), app_version, 2)


class WithQueries(FakeAdmin):
    def __init__(self, *known: TransactionDescription) -> None:
        super().__init__()
        self.known = {transaction.transactional_id: transaction for transaction in known}
        self.silent: dict[int, KafkaError] = {}

    async def find_cut(self, partitions: Iterable[Any]) -> Cut:
        return Cut(-1)

    async def list_transactions_by_broker(
        self, *, pattern: str
    ) -> dict[int, list[TransactionListing] | KafkaError]:
        self.calls.append(("listed", pattern))
        return {2: [TransactionListing(name, 4711, "Empty", 2) for name in self.known], **self.silent}

    async def describe_transactions(self, names: Iterable[str]) -> dict[str, Any]:
        gone = KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "gone")
        return {name: gone if "gone" in name else self.known[name] for name in names}

    async def list_groups_by_broker(self) -> dict[int, list[GroupListing] | KafkaError]:
        listed = [
            GroupListing(name, "consumer", state, "share", 1)
            for name, state in (("follows", "Empty"), ("busy-one", "Stable"))
        ]
        return {1: listed, **self.silent}


def test_the_page_has_the_last_batch_of_each_query(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = WithQueries(
        told(f"{HOSTILE}-{QUERY}", 41),
        told(f"spark-{QUERY}", -1, "Ongoing"),
        told(f"other-{QUERY}", -1),
        told(f"gone-{QUERY}", 7),
    )
    browser = Browser(admin).enter()
    page = browser.read("/spark")
    assert "<script>alert" not in page
    text = seen(page)
    assert f"{HOSTILE} {QUERY} format('ottla') 41 CompleteCommit" in text
    assert f"spark {QUERY} format('ottla') \u2013 Ongoing" in text
    assert f"other {QUERY}" not in text
    assert f"gone {QUERY}" not in text
    assert "follows \u2013" in text
    assert "busy-one" not in text
    monkeypatch.setattr(spark, "QUERIES_MAX", 3)
    assert "1 more transactional ids are named like queries" in seen(browser.read("/spark"))


def test_a_coordinator_that_loads_hides_no_other() -> None:
    admin = WithQueries(told(f"spark-{QUERY}", 41))
    admin.silent = {3: KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")}
    page = seen(Browser(admin).enter().read("/spark"))
    for what in ("transactional ids", "groups"):
        assert f"Broker 3 does not report its {what}, which are missing here: it loads" in page
    assert f"spark {QUERY} format('ottla') 41" in page
    assert "follows" in page

    async def loading(names: Iterable[str]) -> dict[str, Any]:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads, too")

    admin.describe_transactions = loading  # type: ignore[method-assign]
    page = seen(Browser(admin).enter().read("/spark"))
    assert "No query is shown: it loads, too" in page
    assert "No query has written here" not in page


def test_it_is_hidden_where_the_cluster_has_no_cuts() -> None:
    assert 'href="/spark"' in Browser(WithQueries()).enter().read("/topics")
    assert 'href="/spark"' not in Browser(FakeAdmin()).enter().read("/topics")
