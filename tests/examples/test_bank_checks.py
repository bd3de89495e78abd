"""The checks of a bank's history find what contradicts the promises."""

from __future__ import annotations

import pytest

from examples.replicated_database.changes import Change
from examples.replicated_database.master import Placed
from tests.examples.bank import Bank, Seen, check_order, check_real_time


def seen(began_s: float, ended_s: float, scn: int) -> Seen:
    return Seen(began_s, ended_s, Placed(0, 5, scn))


@pytest.mark.parametrize(
    ("writes", "reads", "contradicts"),
    [
        ([seen(0, 1, 1)], [seen(2, 3, 1)], ""),
        ([seen(0, 2, 1)], [seen(1, 3, 0), seen(1, 1.5, 1)], ""),
        ([seen(0, 1, 1), seen(1, 2, 2)], [seen(2.5, 3, 1)], "a stale read"),
        ([], [seen(0, 1, 7), seen(2, 3, 6)], "a stale read"),
        ([seen(5, 6, 4)], [seen(1, 2, 4)], "before"),
    ],
)
def test_reads_in_real_time(writes: list[Seen], reads: list[Seen], contradicts: str) -> None:
    if contradicts:
        with pytest.raises(AssertionError, match=contradicts):
            check_real_time(writes, reads)
    else:
        check_real_time(writes, reads)


@pytest.mark.parametrize(
    "scns_and_generations",
    [
        [(1, 5), (3, 5)],
        [(1, 5), (1, 6)],
        [(1, 6), (2, 5)],
    ],
)
def test_order_in_the_log(scns_and_generations: list[tuple[int, int]]) -> None:
    changes = [Change(generation, scn, scn - 1, {}) for scn, generation in scns_and_generations]
    with pytest.raises(AssertionError):
        check_order(0, list(enumerate(changes)))
    check_order(
        0, [(0, Change.mark(5)), (1, Change(5, 4, 3, {})), (2, Change.mark(6)), (3, Change(6, 5, 4, {}))]
    )


def test_one_scn_is_acknowledged_once() -> None:
    bank = Bank("", "bank", [])
    bank.acknowledged = {"receipt-1": [Placed(0, 5, 1)], "receipt-2": [Placed(0, 6, 1)]}
    log = [[(9, Change(5, 1, 0, {}))], [], [], []]
    with pytest.raises(AssertionError, match="acknowledged twice"):
        bank.check_acknowledged(log)
    bank.acknowledged = {"receipt-1": [Placed(0, 4, 1)]}
    with pytest.raises(AssertionError, match="receipt-1"):
        bank.check_acknowledged(log)


def test_money_follows_from_the_receipts() -> None:
    bank = Bank("", "bank", [])
    rows: dict[str, tuple[object, ...]] = {f"account-{n}": (f"account-{n}", 100, "") for n in range(12)}
    bank.check_money(rows)
    note = '{"payer": "account-0", "payee": "account-1", "amount": 7}'
    rows["receipt-1"] = ("receipt-1", 0, note)
    with pytest.raises(AssertionError):  # a torn transfer
        bank.check_money(rows | {"account-0": ("account-0", 93, "")})
    rows |= {"account-0": ("account-0", 93, ""), "account-1": ("account-1", 107, "")}
    bank.check_money(rows)
    bank.acknowledged = {"receipt-2": []}
    with pytest.raises(AssertionError, match="is gone"):
        bank.check_money(rows)
    bank.acknowledged, bank.rejected = {}, {"receipt-1"}
    with pytest.raises(AssertionError, match="a rejected transfer is there"):
        bank.check_money(rows)
