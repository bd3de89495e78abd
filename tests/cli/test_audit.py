"""The output of `ottla audit`, and its exit code. No cluster."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.cli.commands import audit as command
from ottla.cli.commands.audit.output import as_json, columns_and_rows, remarks
from ottla.cli.commands.audit.reading import Audit
from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.main import main
from ottla.client.auditing.comparison import Row
from ottla.client.auditing.counts import Amount, Bucket
from ottla.client.auditing.verdicts import bucket_text, has_gaps, verdict

NOON_MS = 1_769_860_800_000
"""2026-01-31T12:00Z."""
TEN_MINUTES = 600_000


def row(
    number: int, topic: str = "orders", *, closed: bool = True, expired: bool = False, **counts: int
) -> Row:
    amounts: Mapping[str, Amount] = {tier: Amount(count, 10 * count) for tier, count in counts.items()}
    bucket = Bucket(topic, NOON_MS + number * TEN_MINUTES)
    return Row(bucket, TEN_MINUTES, amounts, closed=closed, expired=expired)


def test_a_row_for_each_bucket() -> None:
    columns, cells = columns_and_rows(
        [
            row(0, producer=5, billing=5),
            row(1, producer=200_000, billing=198_796),
            row(2, producer=0, billing=3),
        ]
    )
    assert columns == ["TOPIC", "BUCKET", "PRODUCER", "BILLING", "DIFFERENCE", "PERCENT", "STATE"]
    assert cells == [
        ["orders", "2026-01-31T12:00-12:10Z", 5, 5, "0", "0%", "ok"],
        ["orders", "2026-01-31T12:10-12:20Z", 200_000, 198_796, "-1204", "-0.602%", "gap"],
        ["orders", "2026-01-31T12:20-12:30Z", 0, 3, "+3", "-", "surplus"],
    ]


def test_topics_with_other_tiers_share_a_table() -> None:
    columns, cells = columns_and_rows([row(0, producer=2, log=2, a=1), row(0, "copies", log=4, b=4)])
    assert columns == [
        "TOPIC", "BUCKET", "PRODUCER", "LOG", "DIFFERENCE", "PERCENT", "A", "DIFFERENCE", "PERCENT",
        "B", "DIFFERENCE", "PERCENT", "STATE",
    ]  # fmt: skip
    assert [cell[2:] for cell in cells] == [
        [2, 2, "0", "0%", 1, "-1", "-50%", "-", "-", "-", "gap"],
        ["-", 4, "-", "-", "-", "-", "-", 4, "0", "0%", "ok"],
    ]


def test_the_last_line() -> None:
    assert verdict([row(0, producer=2, billing=2)]) == "complete"
    gap = row(1, producer=200_000, billing=198_796)
    assert verdict([row(0, producer=2, billing=2), gap]) == (
        "1 bucket has a gap: orders 2026-01-31T12:10-12:20Z lacks 1,204 records in tier billing (of 200,000)"
    )
    many = [row(number, producer=10, billing=9 - number) for number in range(5)]
    assert verdict(many) == (
        "5 buckets have gaps: orders 2026-01-31T12:40-12:50Z lacks 5 records in tier billing (of 10); "
        "orders 2026-01-31T12:30-12:40Z lacks 4 records in tier billing (of 10); "
        "orders 2026-01-31T12:20-12:30Z lacks 3 records in tier billing (of 10); and 2 more"
    )
    judged = row(0, producer=1, billing=0, shipping=0)
    assert verdict([judged]).startswith(
        "1 bucket has a gap: orders 2026-01-31T12:00-12:10Z lacks 1 record in tier billing"
    )
    assert has_gaps([gap])


def test_what_is_not_judged_is_not_complete() -> None:
    still_open = row(0, producer=2, billing=1, closed=False)
    expired = row(0, producer=2, log=1, expired=True)
    for rows in ([still_open], [expired], [still_open, expired]):
        assert verdict(rows) == "nothing was judged"
        assert not has_gaps(rows)
        assert as_json(Audit(rows))["complete"] is False
    assert remarks(
        Audit([still_open, expired], {"copies": "there is no tier to compare 'producer' with"})
    ) == [
        "1 of 2 buckets is open: judged after the end and the time of --grace",
        "1 of 2 buckets is expired: some records may have been deleted from the log",
        "not compared: copies: there is no tier to compare 'producer' with",
    ]


def test_a_surplus_is_told_of_and_is_no_gap() -> None:
    rows = [row(0, producer=2_000, billing=2_512), row(1, producer=1, billing=1)]
    assert remarks(Audit(rows)) == [
        "1 bucket has a surplus: orders 2026-01-31T12:00-12:10Z has 512 records too many in tier billing (of 2,000)"
    ]
    assert verdict(rows) == "complete"
    assert not has_gaps(rows)


def test_json_has_everything() -> None:
    found = Audit(
        [row(0, producer=3, billing=1)], {"copies": "why"}, 1, "partition 0, offset 1: no value", [], 7, 2
    )
    assert as_json(found) == {
        "complete": False,
        "verdict": "1 bucket has a gap: orders 2026-01-31T12:00-12:10Z lacks 2 records in tier billing (of 3)",
        "reports": 7,
        "repeated": 2,
        "unreadable": 1,
        "first_unreadable": "partition 0, offset 1: no value",
        "not_compared": {"copies": "why"},
        "buckets": [
            {
                "topic": "orders",
                "bucket_start_ms": NOON_MS,
                "bucket_ms": TEN_MINUTES,
                "state": "gap",
                "reference": "producer",
                "tiers": {
                    "producer": {"count": 3, "bytes": 30, "difference": 0},
                    "billing": {"count": 1, "bytes": 10, "difference": -2},
                },
            }
        ],
    }


@pytest.mark.parametrize(
    ("start_ms", "length_ms", "text"),
    [
        (NOON_MS, 1_000, "2026-01-31T12:00:00-12:00:01Z"),
        (NOON_MS, 60_000, "2026-01-31T12:00-12:01Z"),
        (NOON_MS - 43_200_000, 86_400_000, "2026-01-31T00:00-00:00Z"),
        (1 << 61, 60_000, f"{1 << 61}-{(1 << 61) + 60_000} ms"),
    ],
)
def test_buckets_as_people_read_them(start_ms: int, length_ms: int, text: str) -> None:
    assert bucket_text(Bucket("t", start_ms), length_ms) == text


@pytest.mark.parametrize(
    ("words", "gaps", "code", "last"),
    [
        ([], [0, 0], 0, "complete"),
        (
            ["--grace", "0"],
            [0, 2],
            1,
            "1 bucket has a gap: orders 2026-01-31T12:10-12:20Z lacks 2 records in tier billing (of 5)",
        ),
    ],
)
def test_the_command(
    words: list[str],
    gaps: list[int],
    code: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def found(question: object) -> Audit:
        return Audit(
            [row(at, producer=5, billing=5 - gap) for at, gap in enumerate(gaps)], silent_tiers=["billng"]
        )

    monkeypatch.setattr("ottla.cli.commands.audit.reading.audit", found)
    assert main(["audit", *words]) == code
    output = capsys.readouterr()
    assert output.out.splitlines()[-1] == last
    assert len(output.out.splitlines()) == 4
    assert output.err == "no report of tier 'billng' was read: it counts as 0\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "soon"], "'soon' is no time"),
        (["--grace", "x"], "--grace takes a time such as 90s, 15m or 2h"),
        (["--tiers", "x"], "did you mean --tier?"),
    ],
)
def test_arguments_that_make_no_sense(words: list[str], message: str) -> None:
    with pytest.raises((UsageError, CommandFailed), match=message.replace("?", r"\?")):
        command.run(command.parser("audit").parse_args(words))
