"""Messages survive encoding; nothing else decodes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.raft.messages import (
    Append,
    AppendReply,
    GrantVote,
    Hello,
    MalformedRaftMessage,
    Message,
    PreVote,
    PreVoteReply,
    Promised,
    RequestVote,
    SnapshotChunk,
    SnapshotReply,
    StaleTerm,
    decode,
    encode,
)

number = st.integers(0, 2**63)
index = st.integers(0, 2**40)
entry_list = st.lists(st.tuples(st.binary(max_size=40), number), max_size=6)


def append(
    term: int, generation: int, commit: int, previous: int, entries: list[tuple[bytes, int]]
) -> Append:
    numbered = tuple((payload, previous + 1 + place, t) for place, (payload, t) in enumerate(entries))
    return Append(term, generation, commit, previous, term, numbered)


any_message = st.one_of(
    st.builds(append, number, st.integers(0, 2**32 - 1), number, index, entry_list),
    st.builds(AppendReply, number, st.integers(0, 2**32 - 1), st.booleans(), number),
    st.builds(SnapshotChunk, number, number, number, number, number, st.binary(max_size=50)),
    st.builds(SnapshotReply, number, number, number, st.booleans()),
    st.builds(PreVote, number, number, number),
    st.builds(PreVoteReply, number, number, st.booleans()),
    st.builds(RequestVote, number, number, number),
    st.builds(GrantVote, number),
    st.builds(StaleTerm, number),
    st.builds(Promised, number, number, number),
    st.builds(Hello, st.just(False), st.just(())),
    st.builds(
        Hello,
        st.just(True),
        st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(min_size=16, max_size=16))).map(tuple),
        st.booleans(),
        st.booleans(),
    ),
)


@given(any_message)
def test_round_trip(message: Message) -> None:
    assert decode(b"".join(encode(message))) == message


@given(any_message, st.data())
def test_cut_off_or_extended_is_refused_or_another_message(message: Message, data: st.DataObject) -> None:
    payload = b"".join(encode(message))
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    for broken in (cut, payload + b"x"):
        try:
            assert decode(broken) != message
        except MalformedRaftMessage:
            pass


@given(st.binary(max_size=100))
def test_noise_raises_nothing_else(noise: bytes) -> None:
    try:
        decode(noise)
    except MalformedRaftMessage:
        pass


def test_a_count_that_cannot_fit_is_refused_before_anything_is_built() -> None:
    payload = bytearray(b"".join(encode(Append(1, 1, 1, 1, 1))))
    payload[-4:] = b"\xff\xff\xff\xff"
    with pytest.raises(MalformedRaftMessage, match="cannot fit"):
        decode(bytes(payload))


_FIRST_HELLO = struct.Struct(">B?H")


@pytest.mark.parametrize("formed", [False, True])
@pytest.mark.parametrize("abstains", [False, True])
def test_nodes_of_earlier_versions_understand_who_is_formed(formed: bool, abstains: bool) -> None:
    said = b"".join(encode(Hello(formed, (), takes_promises=formed, abstains=formed and abstains)))
    assert _FIRST_HELLO.unpack(said)[1] == formed
    assert decode(_FIRST_HELLO.pack(1, formed, 0)) == Hello(formed, (), takes_promises=False, abstains=False)
