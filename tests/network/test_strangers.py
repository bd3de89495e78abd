"""Who makes room for whom among peers that have not proved who they are."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.network.strangers import Strangers

MOST, OF_ADDRESS_MOST = 6, 3
FLOOD, OTHER = "10.0.0.1", "10.0.0.2"


def test_one_address_loses_its_oldest_when_it_has_too_many() -> None:
    strangers: Strangers[int] = Strangers(MOST, OF_ADDRESS_MOST)
    assert strangers.admit(0, OTHER) is None
    assert [strangers.admit(number, FLOOD) for number in range(1, 6)] == [None, None, None, 1, 2]
    assert list(strangers) == [0, 3, 4, 5]


def test_too_many_in_all_cost_the_address_that_has_most() -> None:
    strangers: Strangers[int] = Strangers(4, OF_ADDRESS_MOST)
    for number, address in enumerate((OTHER, FLOOD, FLOOD, FLOOD)):
        assert strangers.admit(number, address) is None
    assert strangers.admit(4, "10.0.0.3") == 1


def test_whoever_has_proved_itself_counts_no_longer() -> None:
    strangers: Strangers[int] = Strangers(1, 1)
    strangers.admit(1, FLOOD)
    assert strangers.forget(1)
    assert not strangers.forget(1)
    assert strangers.admit(2, FLOOD) is None
    assert 1 not in strangers
    assert 2 in strangers


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60))
def test_the_bounds_hold_and_whoever_goes_is_the_oldest_of_its_address(steps: list[tuple[bool, int]]) -> None:
    strangers: Strangers[int] = Strangers(MOST, OF_ADDRESS_MOST)
    there: dict[int, int] = {}
    for number, (comes, address) in enumerate(steps):
        if comes:
            there[number] = address
            gone = strangers.admit(number, str(address))
            if gone is not None:
                crowd = there[gone]
                assert crowd == address or len(there) > MOST
                assert gone == next(one for one in there if there[one] == crowd)
                del there[gone]
        elif there:
            proved = list(there)[address % len(there)]
            assert strangers.forget(proved)
            del there[proved]
        assert list(strangers) == list(there)
        assert len(there) <= MOST
        assert max(Counter(there.values()).values(), default=0) <= OF_ADDRESS_MOST
