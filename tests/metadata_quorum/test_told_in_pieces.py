"""A broker with very many logs reports their ends in several heartbeats; its logs are compared only after the last."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.metadata_quorum.heartbeats import Heartbeats
from ottla.protocol.messages.quorum_session import PartitionProgress, SessionHeartbeat

from .test_server_leader_duties import TOPIC, World, elected, tell, waiting_world


def hear(world: World, broker_id: int, told_offset: int, **ends: int) -> None:
    """Deliver a heartbeat over TCP from a broker with the current image; the log ends are those of p0 and so on."""
    progress = [
        PartitionProgress(topic_id=TOPIC, partition=int(name[1:]), leader_epoch=3, log_end_offset=end)
        for name, end in ends.items()
    ]
    session = SimpleNamespace(broker_id=broker_id, incarnation=bytes([broker_id]) * 16)
    heartbeat = SessionHeartbeat(
        broker_epoch=broker_id,
        metadata_offset=world.image.offset,
        progress=progress,
        told_offset=told_offset,
    )
    Heartbeats(101, world.duties, lambda: 0.05, lambda: 0).heartbeat(cast(Any, session), heartbeat)


def test_a_broker_that_has_told_half_is_not_taken_for_one_that_has_told_all() -> None:
    world = waiting_world()
    tell(world, 1, 60)
    hear(world, 2, 0, p7=1)
    assert elected(world) == []
    hear(world, 2, 0, p0=80)
    assert elected(world) == [], "more pieces are to come, and may concern this log again"
    hear(world, 2, world.image.offset, p8=1)
    (command,) = elected(world)
    assert {(end.broker_id, end.log_end_offset) for end in command.progress} == {(1, 60), (2, 80)}


def test_what_the_leader_heard_before_does_not_count_while_the_rest_is_on_its_way() -> None:
    """The log has grown since, and there was no leader before the broker could report."""
    world = waiting_world()
    before = world.image.offset - 1
    tell(world, 1, 60)
    tell(world, 2, 50, offset=before)
    hear(world, 2, before, p7=1)
    assert elected(world) == []
    hear(world, 2, world.image.offset, p0=80)
    (command,) = elected(world)
    assert {(end.broker_id, end.log_end_offset) for end in command.progress} == {(1, 60), (2, 80)}


def test_all_is_told_as_of_the_image_at_which_the_first_piece_was() -> None:
    """The partition has lost its leader while the pieces came: the log may have grown after its report."""
    world = waiting_world()
    tell(world, 1, 60)
    hear(world, 2, world.image.offset - 1, p0=80)
    assert elected(world) == []
    hear(world, 2, world.image.offset)
    assert len(elected(world)) == 1


def test_a_broker_that_comes_back_to_this_leader_tells_everything_anew() -> None:
    world = waiting_world()
    tell(world, 1, 60)
    tell(world, 2, 80)
    hear(world, 2, 0)  # Its first heartbeat, before it knows that this node leads.
    assert elected(world) == []
    hear(world, 2, world.image.offset, p0=80)
    assert len(elected(world)) == 1


@pytest.mark.parametrize("is_newest", [False, True])
def test_a_broker_of_before_tells_all_at_once(is_newest: bool) -> None:
    world = waiting_world()
    tell(world, 1, 60)
    hear(world, 2, world.image.offset if is_newest else -1, p0=80)
    assert len(elected(world)) == 1
