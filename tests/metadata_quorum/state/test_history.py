"""The mark of a history: the same on every node, another for other commands."""

from __future__ import annotations

from ottla.metadata_quorum.state.controller import Controller
from ottla.metadata_quorum.state.history import UNKNOWN, History
from ottla.protocol.messages.broker_commands import RegisterBroker
from ottla.protocol.messages.cluster_commands import FormCluster
from ottla.protocol.messages.quorum_commands import encode_command

FORM = encode_command(None, FormCluster(cluster_id="c"))


def register(broker_id: int) -> bytes:
    return encode_command(None, RegisterBroker(broker_id=broker_id, incarnation=bytes([broker_id]) * 16))


def played(*commands: tuple[int, bytes]) -> Controller:
    machine = Controller()
    for index, (term, command) in enumerate(commands, 2):
        machine.apply(index, term, command)
    return machine


def restored(machine: Controller) -> Controller:
    fresh = Controller()
    fresh.restore(list(machine.snapshot()))
    return fresh


def test_other_commands_and_other_terms_have_other_marks_at_the_same_offset() -> None:
    controller = played((1, FORM), (2, register(1)))
    others = [played((1, FORM), (2, register(2))), played((1, FORM), (3, register(1)))]
    assert {other.image.offset for other in others} == {controller.image.offset}
    assert controller.history not in {UNKNOWN, *(other.history for other in others)}


def test_a_term_used_twice_is_told_apart() -> None:
    """A quorum that was put back from a copy elects its next leader in the term that followed the copy before."""
    before = played((1, FORM), (2, register(1)), (2, register(2)))
    after = played((1, FORM), (2, register(3)), (2, register(2)))
    assert before.image.offset == after.image.offset
    assert before.history != after.history


def test_a_node_that_starts_from_a_snapshot_comes_to_the_same_marks() -> None:
    whole = played((1, FORM), (2, register(1)))
    resumed = restored(whole)
    assert resumed.history == whole.history
    for machine in (whole, resumed):
        machine.apply(9, 2, register(2))
    assert resumed.history == whole.history


def test_a_command_that_changes_nothing_leaves_the_mark_of_the_offset() -> None:
    machine = played((1, FORM))
    before = machine.history
    machine.apply(9, 1, FORM)
    assert machine.history == before


def test_behind_a_snapshot_without_marks_they_are_unknown_until_the_next_term() -> None:
    whole = played((1, FORM), (2, register(1)))
    whole._history = History(-1, None, UNKNOWN)
    machine = restored(whole)
    machine.apply(9, 2, register(2))
    assert machine.history == UNKNOWN
    machine.apply(10, 3, register(3))
    assert machine.history != UNKNOWN
