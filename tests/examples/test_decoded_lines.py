"""The output of test_decoding about rows, as the example parses it."""

from __future__ import annotations

import pytest

from examples.replicated_database.postgres import changed_rows, lsn_number, lsn_text

TABLE = "table public.accounts: "
NEW = "id[text]:'ann' balance[bigint]:-10 note[text]:'it''s new-tuple: id[text]:''x'''"


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        (f"INSERT: {NEW}", {"ann": ["ann", -10, "it's new-tuple: id[text]:'x'"]}),
        ("UPDATE: id[text]:'ann' balance[bigint]:1 note[text]:null", {"ann": ["ann", 1, None]}),
        (
            "UPDATE: old-key: id[text]:'bob' new-tuple: id[text]:'ann' balance[bigint]:1 note[text]:''",
            {"bob": None, "ann": ["ann", 1, ""]},
        ),
        (
            "UPDATE: old-key: id[text]:'a' balance[bigint]:1 note[text]:'long' "
            "new-tuple: id[text]:'a' balance[bigint]:2 note[text]:unchanged-toast-datum",
            {"a": ["a", 2, "long"]},
        ),
        ("DELETE: id[text]:'ann'", {"ann": None}),
    ],
)
def test_rows_of_a_line(line: str, rows: dict[str, object]) -> None:
    assert changed_rows(TABLE + line) == rows


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("TRUNCATE: (no-flags)", "TRUNCATE cannot be followed"),
        ("UPDATE: id[text]:'a' balance[bigint]:2 note[text]:unchanged-toast-datum", "REPLICA IDENTITY FULL"),
    ],
)
def test_what_cannot_be_followed_is_told(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed_rows(TABLE + line)


def test_places_in_the_log_of_a_server_are_numbers_that_rise() -> None:
    assert lsn_number("16/B374D848") == 0x16B374D848
    assert lsn_text(0x16B374D848) == "16/B374D848"
    assert lsn_number("1/0") > lsn_number("0/FFFFFFFF")
