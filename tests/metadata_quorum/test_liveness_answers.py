"""Brokers that the leader considers deaf: their heartbeats arrive, and none of the leader's answers does."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.leader_duties import LeaderDuties
from ottla.metadata_quorum.liveness import Expiry, ExpiryReason, Heartbeat, SessionTracker
from ottla.protocol.cluster.cluster_image import BrokerState, ClusterImage
from ottla.protocol.messages.broker_commands import FenceBroker

A = b"a" * 16
TIMEOUT_S = 3.0
INTERVAL_S = 0.5


@dataclass
class Exchange:
    """A broker and the leader that keeps its session. Messages take no time."""

    sessions: SessionTracker = field(default_factory=lambda: SessionTracker(TIMEOUT_S))
    now: float = 100.0
    number: int = 0
    answered: int = 0
    tells: bool = True

    def __post_init__(self) -> None:
        self.lead()

    def lead(self) -> None:
        """Make this node the leader. Answers that the broker heard before are outdated."""
        self.sessions.begin([(1, 7, A)], end_offset=0, now=self.now)

    def beat(self, *, arrives: bool = True, heard: bool = True, loop_age_s: float = 0.0) -> None:
        """Send a heartbeat, which arrives or not, and whose answer is heard or not."""
        self.number += 1
        answered = self.answered if self.tells else None
        if arrives:
            assert self.sessions.heard(Heartbeat(1, 7, A, 0, loop_age_s, self.number, answered), 0, self.now)
            self.sessions.answered(1, self.number, self.now)
            if heard:
                self.answered = self.number

    def beats_for(self, seconds: float, *, arrives: bool = True, heard: bool = True) -> None:
        """Send a heartbeat at every interval."""
        for _ in range(round(seconds / INTERVAL_S)):
            self.now += INTERVAL_S
            self.beat(arrives=arrives, heard=heard)

    @property
    def expired(self) -> list[ExpiryReason]:
        return [expiry.reason for expiry in self.sessions.expired(self.now)]


def test_a_broker_that_hears_nothing_expires_as_soon_as_one_that_is_not_heard() -> None:
    lasted = {}
    for direction in ("deaf", "mute"):
        world = Exchange()
        world.beats_for(10)
        cut_at = world.now
        while not world.expired:
            world.beats_for(INTERVAL_S, arrives=direction != "mute", heard=False)
        lasted[direction] = world.now - cut_at
    assert world.expired == [ExpiryReason.SILENT]
    assert lasted["deaf"] - lasted["mute"] <= INTERVAL_S
    assert lasted["deaf"] <= TIMEOUT_S + 2 * INTERVAL_S


def test_why_it_expired_is_told_apart() -> None:
    world = Exchange()
    world.beats_for(10)
    world.beats_for(5, heard=False)
    assert world.sessions.expired(world.now) == [Expiry(1, 7, ExpiryReason.DEAF)]
    world.beats_for(5, arrives=False)
    assert world.expired == [ExpiryReason.SILENT]


def test_who_hears_again_is_alive_with_the_heartbeat_that_tells_so() -> None:
    world = Exchange()
    world.beats_for(20, heard=False)
    assert world.expired
    world.beats_for(2 * INTERVAL_S)
    assert not world.expired
    assert world.sessions.is_live(1, world.now)


def test_a_broker_that_does_not_tell_is_alive_while_it_is_heard() -> None:
    world = Exchange(tells=False)
    world.beats_for(60, heard=False)
    assert world.expired == []


def test_a_broker_that_once_told_is_not_taken_for_an_older_one() -> None:
    world = Exchange()
    world.beats_for(1)
    world.tells = False
    world.beats_for(5, heard=False)
    assert world.expired == [ExpiryReason.DEAF]


def test_a_new_leader_waits_a_full_timeout_after_its_first_answer() -> None:
    world = Exchange()
    world.beats_for(2, heard=False)
    world.lead()
    world.now += TIMEOUT_S - 0.1
    world.beat(heard=False)
    first_answer_at = world.now
    while not world.expired:
        assert world.now - first_answer_at <= TIMEOUT_S
        world.beats_for(INTERVAL_S, heard=False)


def test_what_another_leader_answered_is_no_proof() -> None:
    world = Exchange()
    world.beats_for(10)
    world.lead()  # a new leader: the heard answers are from before
    world.beats_for(5, heard=False)
    assert world.expired == [ExpiryReason.DEAF]


def test_a_later_answer_proves_as_much() -> None:
    world = Exchange()
    for _ in range(20):
        world.beats_for(TIMEOUT_S - 2 * INTERVAL_S, heard=False)
        world.beats_for(INTERVAL_S)
        world.beats_for(INTERVAL_S, arrives=False)
        assert world.expired == []


def test_a_leader_that_sends_no_answers_takes_nobody_for_deaf() -> None:
    sessions = SessionTracker(TIMEOUT_S)
    sessions.begin([(1, 7, A)], end_offset=0, now=100.0)
    for step in range(100):
        assert sessions.heard(Heartbeat(1, 7, A, 0, 0.0, step, 0), 0, 100.0 + step)
        assert sessions.expired(100.0 + step) == []


STEPS = st.lists(
    st.tuples(st.floats(0.01, 2.0), st.sampled_from(["exchange", "unheard", "lost"]), st.floats(0, 4)),
    max_size=40,
)


@given(STEPS)
def test_a_session_lives_from_the_first_answer_that_was_not_heard(
    steps: list[tuple[float, str, float]],
) -> None:
    """The expected end is the latest time at which the broker had turned its loop and, by its heartbeats, had missed no
    answer since.
    """
    world = Exchange()
    answers: list[tuple[float, int]] = []
    alive_at = world.now
    for pause, what, loop_age_s in steps:
        world.now += pause
        if what != "lost":
            missed = [sent_at for sent_at, number in answers if number > world.answered]
            alive_at = max(alive_at, min([world.now - loop_age_s, *missed[:1]]))
            answers.append((world.now, world.number + 1))
        world.beat(arrives=what != "lost", heard=what == "exchange", loop_age_s=loop_age_s)
        assert bool(world.expired) == (world.now - alive_at > TIMEOUT_S)


@given(st.lists(st.sampled_from(["exchange", "unheard", "lost"]), max_size=60))
def test_losses_end_no_session_while_every_few_heartbeats_an_exchange_succeeds(whats: list[str]) -> None:
    world = Exchange()
    for number, what in enumerate(whats):
        what = "exchange" if number % 4 in (0, 1) else what
        world.beats_for(INTERVAL_S, arrives=what != "lost", heard=what == "exchange")
        assert world.expired == []


def leading(image: ClusterImage, proposed: list[object]) -> LeaderDuties:
    duties = LeaderDuties(
        lambda: image,
        SessionTracker(TIMEOUT_S),
        lambda command, done: proposed.append(command),
        cluster_id="c",
        imbalance_check_interval_s=1e9,
    )
    duties.lead(0.0)
    return duties


def test_followers_answer_nobody() -> None:
    duties = leading(ClusterImage(), [])
    assert duties.answers(1, 1, 0.1)
    duties.follow()
    assert not duties.answers(1, 2, 0.2)


def test_a_leader_that_was_paused_fences_nobody_for_that() -> None:
    image, proposed = ClusterImage(), []
    image.cluster_id = "c"
    for broker_id in (1, 2):
        image.brokers[broker_id] = BrokerState(broker_id, broker_id, bytes([broker_id]) * 16, fenced=False)
    duties = leading(image, proposed)
    now, number = 0.0, 0

    def one_beat(broker_id: int, answered: int) -> None:
        heartbeat = Heartbeat(broker_id, broker_id, bytes([broker_id]) * 16, 0, 0.0, number, answered)
        assert duties.heard(heartbeat, now)
        assert duties.answers(broker_id, number, now)

    def ticks_for(seconds: float) -> None:
        nonlocal now, number
        for _ in range(round(seconds / 0.1)):
            now, number = now + 0.1, number + 1
            one_beat(1, number - 1)
            duties.tick(now)

    number = 1
    one_beat(2, 0)  # the last sign of the second broker
    ticks_for(1.0)
    answered, now = number, now + 60.0
    duties.tick(now)  # before anything that waits was read
    for _ in range(5):  # brokers went on, and heard no answer
        number += 1
        one_beat(1, answered)
    duties.tick(now)
    assert proposed == []
    ticks_for(1.5)
    assert proposed == []
    ticks_for(1.0)
    assert [type(command) for command in proposed] == [FenceBroker]
    assert proposed[0].broker_id == 2
