"""Copies whose replicas are made after their change of the image: they start once they are led."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from ottla.dataplane.mirroring.mirrors import Mirrors
from tests.dataplane.mirroring.test_rounds import BROKER, HERE, Quorum


class _Link:
    def __init__(self, mirror: Any) -> None:
        self.mirror = mirror
        self.followed: list[list[Any]] = []

    def follow(self, partitions: Iterable[Any]) -> None:
        self.followed.append(list(partitions))


async def test_a_copy_that_is_led_after_the_change_of_the_image_is_followed() -> None:
    quorum, nothing = Quorum(), cast(Any, None)
    made: dict[tuple[bytes, int], Any] = {}
    replicas = SimpleNamespace(find_by_id=lambda topic_id, index: made.get((topic_id, index)))
    mirrors = Mirrors(
        BROKER, cast(Any, replicas), cast(Any, quorum), nothing, nothing, nothing, None, nothing, 1,
        random.Random(1),
    )  # fmt: skip
    link = _Link(quorum.image.mirrors.by_name["m"])
    mirrors.links["m"] = cast(Any, link)
    partition = SimpleNamespace(topic_id=HERE, index=0, leader=object(), leader_epoch=1)
    made[HERE, 0] = partition
    for _ in range(3):  # any number of elections in one turn cause one check
        mirrors.elected(cast(Any, partition))
    assert link.followed == []
    await asyncio.sleep(0)
    assert link.followed == [[partition]]
