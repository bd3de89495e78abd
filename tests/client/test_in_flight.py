"""The time until a producer asks again whether a silent leader was replaced."""

from __future__ import annotations

from ottla.client.producing.in_flight import STALL_S, next_look_s


def test_the_first_question_comes_when_the_silence_has_lasted_long_enough() -> None:
    assert next_look_s(0.0) == STALL_S
    assert next_look_s(STALL_S * 0.8) + STALL_S * 0.8 == STALL_S


def test_a_cluster_that_is_only_slow_is_asked_ever_less() -> None:
    looks, silence = 0, STALL_S
    while silence < 60:
        looks += 1
        silence += next_look_s(silence)
    assert next_look_s(STALL_S) <= 0.2
    assert looks <= 40
