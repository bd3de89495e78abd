"""docs/GROUPS.md lists exactly the transitions that the state machines allow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import pytest

from ottla.dataplane.groups.classic.states import TRANSITIONS as CLASSIC
from ottla.dataplane.groups.classic.states import GroupState
from ottla.dataplane.groups.consumer.group import TRANSITIONS as CONSUMER
from ottla.dataplane.groups.consumer.group import ConsumerGroupState

PAGE = (Path(__file__).resolve().parents[3] / "docs/GROUPS.md").read_text()


@pytest.mark.parametrize(
    ("heading", "states", "transitions"),
    [("## Classic groups", GroupState, CLASSIC), ("## Consumer groups", ConsumerGroupState, CONSUMER)],
)
def test_transitions_are_those_of_the_page(
    heading: str, states: type[Enum], transitions: Mapping[Enum, frozenset[Enum]]
) -> None:
    names = {state.value for state in states}
    table = PAGE[PAGE.index(heading) :].split("| from | to | when |")[1].split("\n\n")[0]
    written = set()
    for first, second in re.findall(r"^\| ([A-Za-z ]+) \| ([A-Za-z]+) \|", table, re.M):
        if first == "any":
            written |= {(name, second) for name in names - {"Dead"}}
        elif first == "any but Dead":
            written |= {(name, second) for name in names - {"Dead", second}}
        else:
            written.add((first, second))
    assert written == {
        (state.value, after.value) for state, all_after in transitions.items() for after in all_after
    }
