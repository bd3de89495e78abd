"""Mirrors in the console: the list, one mirror, and its promotion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ottla.client.admin import (
    MirrorCut,
    MirrorDescription,
    MirrorPartitionDescription,
    MirrorTopicDescription,
)
from ottla.console.formats import UNKNOWN
from ottla.protocol.cluster.mirror_table import FaultKind, MirrorFault, MirrorPhase
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, seen


def copy_of(index: int, **changes: Any) -> MirrorPartitionDescription:
    given: dict[str, Any] = {
        "partition": index,
        "leader": 1,
        "fault": None,
        "promoted_epoch": None,
        "lineage": (),
        "log_end_offset": 90,
        "high_watermark": 90,
        "source_high_watermark": 100,
        "lag_bytes": 2048,
        "behind_ms": 1500,
        "trouble": "",
    }
    return MirrorPartitionDescription(**(given | changes))


WEST = MirrorDescription(
    name="west",
    source_cluster_id="c",
    bootstrap_servers="west:9092",
    topics_pattern="orders.*",
    groups_pattern="",
    start=-2,
    phase=MirrorPhase.ACTIVE,
    options={},
    topics=(
        MirrorTopicDescription(
            "orders", b"1" * 16, b"2" * 16,
            (copy_of(0), copy_of(1, fault=MirrorFault(FaultKind.DIVERGED, 40, 51, "why"))),
        ),
    ),
    skipped={"orders.raw": "its name is taken here"},
    troubles={2: "connection refused"},
    unanswered={},
    cut=MirrorCut(4711, 800),
)  # fmt: skip


class WithMirrors(FakeAdmin):
    def __init__(self, *mirrors: MirrorDescription) -> None:
        super().__init__()
        self.mirrors = list(mirrors)

    async def describe_mirrors(self, names: Iterable[str] | None = None) -> list[MirrorDescription]:
        return self.mirrors

    async def promote_mirror(self, name: str, *, at_cut: bool = False) -> None:
        self.calls.append(("promote", (name, at_cut, False)))


@pytest.fixture
def admin() -> WithMirrors:
    return WithMirrors(WEST)


@pytest.fixture
def browser(admin: WithMirrors) -> Browser:
    return Browser(admin, may_change=True).enter()


def test_the_list_shows_lag_faults_and_the_age_of_the_cut(browser: Browser) -> None:
    page = seen(browser.read("/mirrors"))
    assert "west west:9092 active 1 faults 1 20 4.0 KiB 2 s 1 s" in page


def test_a_mirror_shows_what_stops_it_first(browser: Browser) -> None:
    page = seen(browser.read("/mirrors/mirror?name=west"))
    assert "DIVERGED: offsets 40 to 50 orders 0" in page
    assert "newest cut 4,711 1 s old" in page
    assert "broker 2: connection refused" in page
    assert "orders.raw : its name is taken here" in page
    assert "there is no mirror 'east'" in seen(browser.read("/mirrors/mirror?name=east", 404))


def test_what_nobody_told_is_a_dash(admin: WithMirrors, browser: Browser) -> None:
    unknown = copy_of(0, leader=None, source_high_watermark=None, lag_bytes=None, behind_ms=None)
    topic = replace(WEST.topics[0], partitions=(unknown,))
    admin.mirrors = [replace(WEST, topics=(topic,), cut=None, cuts_trouble="it is no Ottla")]
    assert f"active 1 {UNKNOWN} {UNKNOWN} {UNKNOWN} {UNKNOWN}" in seen(browser.read("/mirrors"))
    assert "No cut: it is no Ottla" in seen(browser.read("/mirrors/mirror?name=west"))
    refused = browser.send("/mirrors/promote?name=west", 400, again="west", how="at the newest cut")
    assert "there is no cut: it is no Ottla" in seen(refused)


def test_a_promotion_is_shown_before_it_is_done(admin: WithMirrors, browser: Browser) -> None:
    assert "the name is west" in seen(browser.send("/mirrors/promote?name=west", 400, again="east"))
    page = seen(browser.send("/mirrors/promote?name=west", again="west"))
    assert "20 records, 4.0 KiB" in page
    assert "ottla mirror promote west --at-cut" in page
    assert admin.calls == []
    browser.change("/mirrors/promote?name=west", again="west")
    browser.change("/mirrors/promote?name=west", again="west", how="as the copies are")
    assert [given[:2] for _, given in admin.calls] == [("west", True), ("west", False)]
    admin.mirrors = [replace(WEST, phase=MirrorPhase.PROMOTED)]
    assert "promoted already" in seen(browser.send("/mirrors/promote?name=west", 400, again="west"))
    assert "Promote" not in browser.read("/mirrors/mirror?name=west")


def test_names_that_strangers_choose_are_text(admin: WithMirrors, browser: Browser) -> None:
    topic = replace(WEST.topics[0], name=HOSTILE)
    admin.mirrors = [replace(WEST, topics=(topic,), skipped={HOSTILE: HOSTILE}, troubles={1: HOSTILE})]
    page = browser.read("/mirrors/mirror?name=west")
    assert "<script>alert" not in page
    assert "<img" not in page
