"""Changes of the states of records, as functions from a state to the state after."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from .state_runs import Change
from .states import AcknowledgeType, Acquired, Archiving, Changing, Pending, State
from .transitions import Transition

After = Callable[[int], State]
"""The state after a change, for a delivery count."""


def beginning(transition: Transition, after: After) -> Change:
    """Return the change that begins in a transition. Equal states share an object."""
    begun: dict[State, Changing] = {}

    def change(state: State) -> State:
        changing = begun.get(state)
        if changing is None:
            assert isinstance(state, Acquired | Pending | Archiving)
            changing = begun[state] = Changing(state, after(state.delivery_count), transition)
        return changing

    return change


def renewal(deadline_ms: int) -> Change:
    """Return the change that renews a lock."""

    def change(state: State) -> State:
        assert isinstance(state, Acquired)
        return Acquired(state.member_id, state.delivery_count, deadline_ms)

    return change


def hold(transaction: Hashable, kind: AcknowledgeType) -> Change:
    """Return the change by which a transaction holds a record that its member has acknowledged."""

    def change(state: State) -> State:
        assert isinstance(state, Acquired)
        return Pending(transaction, state.member_id, state.delivery_count, kind)

    return change
