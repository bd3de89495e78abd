"""A leader's record of its followers, for descriptions of the quorum."""

from __future__ import annotations

from ottla.metadata_quorum.raft.follower_contact import FollowerContacts, Standing


def test_who_has_everything_is_caught_up_now() -> None:
    contacts = FollowerContacts()
    contacts.confirmed(2, log_end=10, leader_log_end=10, now=5.0)
    assert contacts.standings(7.0) == {2: Standing(log_end=10, silent_s=2.0, caught_up_before_s=2.0)}


def test_who_has_what_the_leader_had_before_was_caught_up_then() -> None:
    contacts = FollowerContacts()
    contacts.confirmed(2, log_end=8, leader_log_end=10, now=1.0)
    assert contacts.standings(1.0)[2].caught_up_before_s is None
    contacts.confirmed(2, log_end=10, leader_log_end=15, now=2.0)
    assert contacts.standings(4.0) == {2: Standing(log_end=10, silent_s=2.0, caught_up_before_s=3.0)}
    contacts.confirmed(2, log_end=14, leader_log_end=20, now=3.0)
    assert contacts.standings(4.0) == {2: Standing(log_end=14, silent_s=1.0, caught_up_before_s=3.0)}


def test_a_sign_of_life_tells_nothing_about_the_log() -> None:
    contacts = FollowerContacts()
    contacts.heard(2, 1.0)
    assert contacts.standings(2.0) == {2: Standing(None, 1.0, None)}
    contacts.confirmed(2, log_end=5, leader_log_end=5, now=2.0)
    contacts.heard(2, 9.0)
    assert contacts.standings(10.0) == {2: Standing(5, 1.0, 8.0)}


def test_another_leadership_starts_without_knowledge() -> None:
    contacts = FollowerContacts()
    contacts.confirmed(2, log_end=5, leader_log_end=5, now=2.0)
    contacts.clear()
    assert contacts.standings(3.0) == {}
