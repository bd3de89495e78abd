"""Frames survive any fragmentation; nothing altered, repeated, reordered or oversized gets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.frames import HEADER_BYTES, TAG_BYTES, Channel, FrameError

ONE, OTHER, THIRD = b"1" * 32, b"2" * 32, b"3" * 32


def pair(max_payload_bytes: int = 1 << 20) -> tuple[Channel, Channel]:
    return (
        Channel(ONE, OTHER, THIRD, max_payload_bytes),
        Channel(OTHER, ONE, THIRD, max_payload_bytes),
    )


def wire(channel: Channel, *parts: bytes) -> bytes:
    return b"".join(channel.seal(*parts))


@given(st.lists(st.binary(max_size=200), max_size=8), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_any_fragmentation_gives_the_payloads_in_order(payloads: list[bytes], sizes: list[int]) -> None:
    sender, receiver = pair()
    stream = b"".join(wire(sender, payload) for payload in payloads)
    received: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        received += receiver.feed(stream[position : position + size])
        position += size
        turn += 1
    assert received == payloads


def test_parts_are_one_payload() -> None:
    sender, receiver = pair()
    assert receiver.feed(wire(sender, b"ab", b"", memoryview(b"cd"))) == [b"abcd"]


@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_flipped_bit_is_refused(payload: bytes, data: st.DataObject) -> None:
    sender, receiver = pair(max_payload_bytes=100)
    stream = bytearray(wire(sender, payload))
    stream[data.draw(st.integers(0, len(stream) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert receiver.feed(bytes(stream)) == []  # a longer length only waits for more
        with pytest.raises(FrameError):
            receiver.feed(bytes(200))
    except FrameError:
        pass


def test_a_repeated_frame_is_refused() -> None:
    sender, receiver = pair()
    frame = wire(sender, b"once")
    receiver.feed(frame)
    with pytest.raises(FrameError, match="frame 1 "):
        receiver.feed(frame)


def test_reordered_frames_are_refused() -> None:
    sender, receiver = pair()
    first, second = wire(sender, b"first"), wire(sender, b"second")
    with pytest.raises(FrameError):
        receiver.feed(second + first)


def test_a_reflected_frame_is_refused() -> None:
    sender, _ = pair()
    with pytest.raises(FrameError):
        sender.feed(wire(sender, b"mine"))


def test_a_huge_length_is_refused_at_its_header() -> None:
    _, receiver = pair(max_payload_bytes=1000)
    with pytest.raises(FrameError, match="1001 bytes, at most 1000"):
        receiver.feed((1001).to_bytes(4, "big"))


def test_a_huge_payload_is_not_sealed() -> None:
    sender, _ = pair(max_payload_bytes=10)
    with pytest.raises(FrameError, match="11 bytes, at most 10"):
        sender.seal(b"x" * 11)


def test_overhead_is_header_and_tag() -> None:
    sender, _ = pair()
    assert len(wire(sender, b"x" * 10)) == 10 + HEADER_BYTES + TAG_BYTES


def test_both_ends_derive_the_same_key_per_label() -> None:
    one, other = pair()
    assert one.derive(b"udp") == other.derive(b"udp") != one.derive(b"other")
