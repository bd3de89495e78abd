"""Frames survive any fragmentation, encrypted or only tagged; no altered, repeated, reordered or oversized frame gets
through, and an eavesdropper cannot read encrypted ones.
"""

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.session.frames import (
    HEADER_BYTES,
    TAG_BYTES,
    Buffer,
    Channel,
    EncryptedChannel,
    FrameError,
    TaggedChannel,
)

ONE, OTHER, THIRD = b"1" * 32, b"2" * 32, b"3" * 32
Pair = Callable[..., tuple[Channel, Channel]]


def encrypted(max_payload_bytes: int = 1 << 20) -> tuple[Channel, Channel]:
    return (
        EncryptedChannel(ONE, OTHER, THIRD, max_payload_bytes),
        EncryptedChannel(OTHER, ONE, THIRD, max_payload_bytes),
    )


def tagged(max_payload_bytes: int = 1 << 20) -> tuple[Channel, Channel]:
    return (
        TaggedChannel(ONE, OTHER, THIRD, max_payload_bytes),
        TaggedChannel(OTHER, ONE, THIRD, max_payload_bytes),
    )


both_kinds = pytest.mark.parametrize("pair", [encrypted, tagged])


def wire(channel: Channel, *parts: Buffer) -> bytes:
    return b"".join(channel.seal(*parts))


@both_kinds
@given(st.lists(st.binary(max_size=200), max_size=8), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_any_fragmentation_gives_the_payloads_in_order(
    pair: Pair, payloads: list[bytes], sizes: list[int]
) -> None:
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


@both_kinds
def test_parts_are_one_payload(pair: Pair) -> None:
    sender, receiver = pair()
    assert receiver.feed(wire(sender, b"ab", b"", memoryview(b"cd"))) == [b"abcd"]


@both_kinds
@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_flipped_bit_is_refused(pair: Pair, payload: bytes, data: st.DataObject) -> None:
    sender, receiver = pair(max_payload_bytes=100)
    stream = bytearray(wire(sender, payload))
    stream[data.draw(st.integers(0, len(stream) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert receiver.feed(bytes(stream)) == []  # a longer length only waits for more
        with pytest.raises(FrameError):
            receiver.feed(bytes(200))
    except FrameError:
        pass


@both_kinds
def test_a_repeated_frame_is_refused(pair: Pair) -> None:
    sender, receiver = pair()
    frame = wire(sender, b"once")
    receiver.feed(frame)
    with pytest.raises(FrameError, match="frame 1 "):
        receiver.feed(frame)


@both_kinds
def test_reordered_frames_are_refused(pair: Pair) -> None:
    sender, receiver = pair()
    first, second = wire(sender, b"first"), wire(sender, b"second")
    with pytest.raises(FrameError):
        receiver.feed(second + first)


@both_kinds
def test_a_reflected_frame_is_refused(pair: Pair) -> None:
    sender, _ = pair()
    with pytest.raises(FrameError):
        sender.feed(wire(sender, b"mine"))


@both_kinds
def test_a_huge_length_is_refused_at_its_header(pair: Pair) -> None:
    _, receiver = pair(max_payload_bytes=1000)
    with pytest.raises(FrameError, match="1001 bytes, at most 1000"):
        receiver.feed((1001).to_bytes(4, "big"))


@both_kinds
def test_a_huge_payload_is_not_sealed(pair: Pair) -> None:
    sender, _ = pair(max_payload_bytes=10)
    with pytest.raises(FrameError, match="11 bytes, at most 10"):
        sender.seal(b"x" * 11)


@both_kinds
def test_overhead_is_header_and_tag(pair: Pair) -> None:
    sender, _ = pair()
    assert len(wire(sender, b"x" * 10)) == 10 + HEADER_BYTES + TAG_BYTES


@both_kinds
def test_both_ends_derive_the_same_key_per_label(pair: Pair) -> None:
    channel, other = pair()
    assert channel.derive(b"udp") == other.derive(b"udp") != channel.derive(b"other")


def test_nobody_reads_what_is_encrypted() -> None:
    sender, _ = encrypted()
    assert b"secret" not in wire(sender, b"a secret ", b"of the cluster")
    assert wire(sender, b"same") != wire(sender, b"same")
    sender, _ = tagged()
    assert b"secret" in wire(sender, b"a secret ", b"of the cluster")


def test_kinds_do_not_mix() -> None:
    for sender, receiver in ((encrypted()[0], tagged()[1]), (tagged()[0], encrypted()[1])):
        with pytest.raises(FrameError, match="frame 0 "):
            receiver.feed(wire(sender, b"payload"))


def test_keys_are_replaced_at_both_ends_and_none_is_used_again() -> None:
    sender = EncryptedChannel(ONE, OTHER, THIRD, frames_per_key=3)
    receiver = EncryptedChannel(OTHER, ONE, THIRD, frames_per_key=3)
    one_key = EncryptedChannel(ONE, OTHER, THIRD)
    for number in range(10):
        frame = wire(sender, b"x")
        assert receiver.feed(frame) == [b"x"]
        assert (frame == wire(one_key, b"x")) == (number < 3)
    assert wire(receiver, b"back") == wire(EncryptedChannel(OTHER, ONE, THIRD), b"back"), (
        "each counts its own"
    )


@both_kinds
@given(st.lists(st.binary(max_size=300), max_size=20))
def test_noise_gives_no_payload_and_one_kind_of_error(pair: Pair, pieces: list[bytes]) -> None:
    _, receiver = pair(max_payload_bytes=1000)
    try:
        for piece in pieces:
            assert receiver.feed(piece) == []
    except FrameError:
        pass


@both_kinds
def test_memory_grows_with_what_arrived_and_not_with_what_was_announced(pair: Pair) -> None:
    _, receiver = pair(max_payload_bytes=64 << 20)
    tracemalloc.start()
    try:
        assert receiver.feed((64 << 20).to_bytes(4, "big")) == []
        for _ in range(100):
            assert receiver.feed(bytes(1000)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
