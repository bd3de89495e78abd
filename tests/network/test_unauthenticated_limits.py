"""The order in which unauthenticated peers replace each other."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.network.unauthenticated_limits import UnauthenticatedPeers

MOST, OF_ADDRESS_MOST = 6, 3
FLOOD, OTHER = "10.0.0.1", "10.0.0.2"


def test_one_address_loses_its_oldest_when_it_has_too_many() -> None:
    unauthenticated: UnauthenticatedPeers[int] = UnauthenticatedPeers(MOST, OF_ADDRESS_MOST)
    assert unauthenticated.admit(0, OTHER) is None
    assert [unauthenticated.admit(number, FLOOD) for number in range(1, 6)] == [None, None, None, 1, 2]
    assert list(unauthenticated) == [0, 3, 4, 5]


def test_too_many_in_all_cost_the_address_that_has_most() -> None:
    unauthenticated: UnauthenticatedPeers[int] = UnauthenticatedPeers(4, OF_ADDRESS_MOST)
    for number, address in enumerate((OTHER, FLOOD, FLOOD, FLOOD)):
        assert unauthenticated.admit(number, address) is None
    assert unauthenticated.admit(4, "10.0.0.3") == 1


def test_whoever_has_proved_itself_counts_no_longer() -> None:
    unauthenticated: UnauthenticatedPeers[int] = UnauthenticatedPeers(1, 1)
    unauthenticated.admit(1, FLOOD)
    assert unauthenticated.forget(1)
    assert not unauthenticated.forget(1)
    assert unauthenticated.admit(2, FLOOD) is None
    assert 1 not in unauthenticated
    assert 2 in unauthenticated


def test_a_login_that_goes_steps_is_not_pushed_out_by_peers_that_only_connect() -> None:
    unauthenticated: UnauthenticatedPeers[int] = UnauthenticatedPeers(1000, 50)
    unauthenticated.admit(0, FLOOD)
    unauthenticated.progressed(0)
    pushed_out = {unauthenticated.admit(number, FLOOD) for number in range(1, 5000)}
    assert 0 not in pushed_out
    assert 0 in unauthenticated
    assert len(unauthenticated) == 50


def test_nor_is_it_by_peers_of_many_addresses() -> None:
    unauthenticated: UnauthenticatedPeers[int] = UnauthenticatedPeers(20, 5)
    unauthenticated.admit(0, OTHER)
    unauthenticated.progressed(0)
    for number in range(1, 1000):
        unauthenticated.admit(number, f"10.1.0.{number % 200}")
    assert 0 in unauthenticated
    assert len(unauthenticated) == 20


def test_peers_that_go_a_step_and_no_further_keep_nobody_out() -> None:
    unauthenticated: UnauthenticatedPeers[int] = UnauthenticatedPeers(1000, 4)
    for number in range(4):
        unauthenticated.admit(number, FLOOD)
        unauthenticated.progressed(number)
    unauthenticated.progressed(0)
    assert [unauthenticated.admit(number, FLOOD) for number in (4, 5, 6)] == [1, 2, 4]
    unauthenticated.progressed(6)
    assert list(unauthenticated) == [0, 3, 5, 6]


@given(st.lists(st.tuples(st.sampled_from(["comes", "goes on", "proved"]), st.integers(0, 3)), max_size=80))
def test_the_bounds_hold_and_half_of_the_places_are_for_those_that_go_on(
    steps: list[tuple[str, int]],
) -> None:
    unauthenticated: UnauthenticatedPeers[int] = UnauthenticatedPeers(MOST, OF_ADDRESS_MOST)
    there: dict[int, int] = {}
    going_on: dict[int, None] = {}
    for number, (what, address) in enumerate(steps):
        chosen = list(there)[address % len(there)] if there else None
        if what == "comes":
            waiting = len(there) - len(going_on)
            there[number] = address
            gone = unauthenticated.admit(number, str(address))
            if gone is not None:
                assert gone != number
                assert there[gone] == address or len(there) > MOST
                if gone in going_on:
                    of_address = [
                        place for place in there if there[place] == there[gone] and place not in going_on
                    ]
                    assert len(of_address) <= 1 or waiting < MOST // 2
                    assert gone == next(place for place in going_on if there[place] == there[gone])
                del there[gone]
                going_on.pop(gone, None)
        elif chosen is not None and what == "goes on":
            unauthenticated.progressed(chosen)
            going_on.pop(chosen, None)
            going_on[chosen] = None
        elif chosen is not None:
            assert unauthenticated.forget(chosen)
            del there[chosen]
            going_on.pop(chosen, None)
        assert list(unauthenticated) == list(there)
        assert len(there) <= MOST
        assert max(Counter(there.values()).values(), default=0) <= OF_ADDRESS_MOST


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60))
def test_the_bounds_hold_and_whoever_goes_is_the_oldest_of_its_address(steps: list[tuple[bool, int]]) -> None:
    unauthenticated: UnauthenticatedPeers[int] = UnauthenticatedPeers(MOST, OF_ADDRESS_MOST)
    there: dict[int, int] = {}
    for number, (comes, address) in enumerate(steps):
        if comes:
            there[number] = address
            gone = unauthenticated.admit(number, str(address))
            if gone is not None:
                crowd = there[gone]
                assert crowd == address or len(there) > MOST
                assert gone == next(place for place in there if there[place] == crowd)
                del there[gone]
        elif there:
            proved = list(there)[address % len(there)]
            assert unauthenticated.forget(proved)
            del there[proved]
        assert list(unauthenticated) == list(there)
        assert len(there) <= MOST
        assert max(Counter(there.values()).values(), default=0) <= OF_ADDRESS_MOST
