"""Seeds of random worlds, and mistakes of the early fence planted to check that the worlds find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ottla.metadata_quorum import suspicion
from ottla.metadata_quorum.suspicion import Suspicions
from tests.simulation.silence.scenario import SilenceBroken, run_seed

SEEDS = 400
MUTANT_SEEDS = 400


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_no_healthy_broker_is_fenced_and_a_dead_one_is(first: int) -> None:
    for seed in range(first, first + 100):
        run_seed(seed)


def test_a_seed_reproduces() -> None:
    assert run_seed(5) == run_seed(5)


@contextmanager
def planted(place: object, name: str, mistake: object) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, mistake)
        yield


def deaf_to_witnesses() -> object:
    """Take every report of a witness for a report that it heard nothing."""
    right = Suspicions.reported

    def reported(
        self: Suspicions, witness: int, number: int, ages_s: dict[int, float | None], now: float
    ) -> None:
        right(self, witness, number, dict.fromkeys(ages_s), now)

    return planted(Suspicions, "reported", reported)


def without_rhythm() -> object:
    """Give every broker the least patience."""
    return planted(suspicion, "_RHYTHM_TIMES", 0.0)


def without_witnesses() -> object:
    """Fence without a report of the witnesses."""
    right = Suspicions._is_dead

    def is_dead(self: Suspicions, broker_id: int, broker: object, _: object, now: float) -> bool:
        return right(self, broker_id, broker, (), now)  # type: ignore[arg-type]

    return planted(Suspicions, "_is_dead", is_dead)


def never() -> object:
    """Fence no broker early."""
    return planted(Suspicions, "_is_dead", lambda *_: False)


@pytest.mark.parametrize("mistake", [deaf_to_witnesses, without_rhythm, without_witnesses, never])
def test_the_worlds_find(mistake: Callable[[], object]) -> None:
    with mistake(), pytest.raises(SilenceBroken, match="seed "):  # type: ignore[attr-defined]
        for seed in range(MUTANT_SEEDS):
            run_seed(seed)
