"""Both ends know each other after the handshake, and strangers get nothing, not even an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.handshake import (
    MAX_MESSAGE_BYTES,
    ClientHandshake,
    HandshakeError,
    Identity,
    Role,
    ServerHandshake,
)

SECRET = b"a secret of the cluster"
SERVER = Identity(1, b"s" * 16, "cluster-a")
CLIENT = Identity(2, b"c" * 16, "cluster-a")


def make(
    *,
    client_secret: bytes = SECRET,
    client: Identity = CLIENT,
    server: Identity = SERVER,
    role: Role = Role.RAFT,
) -> tuple[ClientHandshake, ServerHandshake]:
    return (
        ClientHandshake(client_secret, client, role, b"n" * 32),
        ServerHandshake(SECRET, server, b"m" * 32),
    )


def run(client: ClientHandshake, server: ServerHandshake) -> None:
    answer = client.receive(server.hello())
    client.receive(server.receive(answer))


@pytest.mark.parametrize("role", list(Role))
def test_both_ends_learn_who_the_other_is(role: Role) -> None:
    client, server = make(role=role)
    run(client, server)
    assert client.done
    assert server.done
    assert (server.peer.node_id, server.peer.directory_id, server.peer.role) == (2, b"c" * 16, role)
    assert (client.peer.node_id, client.peer.cluster_id) == (1, "cluster-a")


def test_the_channels_speak_to_each_other() -> None:
    client, server = make()
    run(client, server)
    assert server.channel.feed(b"".join(client.channel.seal(b"to server"))) == [b"to server"]
    assert client.channel.feed(b"".join(server.channel.seal(b"to client"))) == [b"to client"]


def test_every_connection_has_its_own_keys() -> None:
    first_client, first_server = make()
    run(first_client, first_server)
    second_client = ClientHandshake(SECRET, CLIENT, Role.RAFT, b"o" * 32)
    second_server = ServerHandshake(SECRET, SERVER, b"p" * 32)
    run(second_client, second_server)
    assert first_client.channel.seal(b"x") != second_client.channel.seal(b"x")


@given(st.lists(st.integers(1, 7), min_size=1, max_size=30))
def test_any_fragmentation_and_frames_right_behind(sizes: list[int]) -> None:
    client, server = make()
    turn = 0

    def dribble(end: ClientHandshake | ServerHandshake, data: bytes) -> bytes:
        nonlocal turn
        output = b""
        while data and not end.done:
            size = sizes[turn % len(sizes)]
            turn += 1
            output += end.receive(data[:size])
            data = data[size:]
        return output + end.receive(data) if not end.done else output

    answer = dribble(client, server.hello())
    final = server.receive(answer) + b"".join(server.channel.seal(b"behind"))
    client.receive(final)
    assert client.channel.feed(client.leftover) == [b"behind"]


def test_a_stranger_gets_no_answer() -> None:
    client, server = make(client_secret=b"another secret 123")
    with pytest.raises(HandshakeError, match="secret") as error:
        server.receive(client.receive(server.hello()))
    assert error.value.reply == b""
    assert not server.done


def test_a_server_without_the_secret_is_refused() -> None:
    client = ClientHandshake(b"another secret 123", CLIENT, Role.BROKER, b"n" * 32)
    impostor = ServerHandshake(SECRET, SERVER, b"m" * 32)
    client.receive(impostor.hello())
    with pytest.raises(HandshakeError, match="secret"):
        client.receive((60).to_bytes(2, "big") + bytes(60))


def test_another_cluster_is_refused_and_told() -> None:
    client, server = make(client=Identity(2, b"c" * 16, "cluster-b"))
    with pytest.raises(HandshakeError, match="cluster-b") as error:
        server.receive(client.receive(server.hello()))
    with pytest.raises(HandshakeError, match="'cluster-a', this node to 'cluster-b'"):
        client.receive(error.value.reply)


def test_a_node_that_does_not_know_its_cluster_learns_it() -> None:
    client, server = make(client=Identity(2, b"c" * 16, ""))
    run(client, server)
    assert client.peer.cluster_id == "cluster-a"


def test_a_recorded_answer_does_not_open_a_second_connection() -> None:
    client, server = make()
    recorded = client.receive(server.hello())
    again = ServerHandshake(SECRET, SERVER, b"q" * 32)
    again.hello()
    with pytest.raises(HandshakeError, match="secret"):
        again.receive(recorded)


def test_a_huge_message_is_refused_at_its_header() -> None:
    _, server = make()
    server.hello()
    with pytest.raises(HandshakeError, match=f"{MAX_MESSAGE_BYTES + 1} bytes"):
        server.receive((MAX_MESSAGE_BYTES + 1).to_bytes(2, "big"))


@given(st.binary(max_size=700))
def test_noise_never_completes_and_never_raises_anything_else(noise: bytes) -> None:
    _, server = make()
    server.hello()
    try:
        server.receive(noise)
    except HandshakeError:
        pass
    assert not server.done


@given(st.binary(max_size=700))
def test_noise_to_a_client(noise: bytes) -> None:
    client, _ = make()
    try:
        client.receive(noise)
    except HandshakeError:
        pass
    assert not client.done


def test_another_version_says_so() -> None:
    client, server = make()
    hello = bytearray(server.hello())
    hello[7] = 9
    with pytest.raises(HandshakeError, match="version 9"):
        client.receive(bytes(hello))


def test_a_short_secret_is_a_configuration_error() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        ClientHandshake(b"short", CLIENT, Role.RAFT, b"n" * 32)
