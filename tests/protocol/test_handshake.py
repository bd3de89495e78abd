"""Both ends know each other after the handshake, and unauthenticated peers get nothing, not even an answer."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.session.frames import FrameError
from ottla.protocol.session.handshake import (
    CHANCE_BYTES,
    MAX_MESSAGE_BYTES,
    ClientHandshake,
    HandshakeError,
    Identity,
    LinkSecurity,
    Role,
    ServerHandshake,
    refusal,
)
from ottla.protocol.session.node_secrets import Secrets

from .version_one import OldClient, OldServer, hello

SECRET = b"a secret of the cluster"
SERVER = Identity(1, b"s" * 16, "cluster-a")
CLIENT = Identity(2, b"c" * 16, "cluster-a")


def chance(letter: bytes) -> bytes:
    return letter * CHANCE_BYTES


def make(
    *,
    client_secret: bytes = SECRET,
    client: Identity = CLIENT,
    server: Identity = SERVER,
    role: Role = Role.RAFT,
) -> tuple[ClientHandshake, ServerHandshake]:
    return (
        ClientHandshake(LinkSecurity(Secrets((client_secret,))), client, role, chance(b"n")),
        ServerHandshake(LinkSecurity(Secrets((SECRET,))), server, chance(b"m")),
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
    assert client.encrypted
    assert server.encrypted
    assert client.channel.derive(b"datagrams") == server.channel.derive(b"datagrams")


def test_a_refusal_is_told_without_what_would_forge_a_log() -> None:
    client, _ = make()
    with pytest.raises(HandshakeError) as raised:
        client.receive(refusal("User:CN=Über may not\n2026-11-26 ERROR \x1b[31mall is lost"))
    assert str(raised.value) == (
        "it refuses this node: User:CN=Über may not?2026-11-26 ERROR ?[31mall is lost"
    )


def test_every_connection_has_its_own_keys() -> None:
    first_client, first_server = make()
    run(first_client, first_server)
    second_client = ClientHandshake(LinkSecurity(Secrets((SECRET,))), CLIENT, Role.RAFT, chance(b"o"))
    second_server = ServerHandshake(LinkSecurity(Secrets((SECRET,))), SERVER, chance(b"p"))
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
    client = ClientHandshake(
        LinkSecurity(Secrets((b"another secret 123",))), CLIENT, Role.BROKER, chance(b"n")
    )
    impostor = ServerHandshake(LinkSecurity(Secrets((SECRET,))), SERVER, chance(b"m"))
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
    again = ServerHandshake(LinkSecurity(Secrets((SECRET,))), SERVER, chance(b"q"))
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
        LinkSecurity(Secrets((b"short",)))


def test_who_learns_the_secret_later_cannot_read_what_was_recorded() -> None:
    """The keys depend on randomness that neither end has sent."""
    frames = set()
    for hidden in (b"1", b"2"):
        client = ClientHandshake(LinkSecurity(Secrets((SECRET,))), CLIENT, Role.RAFT, b"n" * 32 + hidden * 32)
        server = ServerHandshake(LinkSecurity(Secrets((SECRET,))), SERVER, b"m" * 32 + b"s" * 32)
        run(client, server)
        frames.add(b"".join(client.channel.seal(b"x")))
    assert len(frames) == 2


@pytest.mark.parametrize("role", [Role.RAFT, Role.BROKER])
def test_a_client_of_an_older_version_is_served_without_encryption(role: Role) -> None:
    client = OldClient(SECRET, role)
    _, server = make()
    channel = client.channel(server.receive(client.answer(server.hello())))
    assert (server.peer.role, server.peer.node_id, server.encrypted) == (role, 2, False)
    assert server.channel.feed(b"".join(channel.seal(b"to server"))) == [b"to server"]
    assert channel.feed(b"".join(server.channel.seal(b"to client"))) == [b"to client"]


def test_an_operator_without_encryption_is_refused() -> None:
    _, server = make()
    with pytest.raises(HandshakeError, match="nor the role ADMIN"):
        server.receive(OldClient(SECRET, Role.ADMIN).answer(server.hello()))


def test_a_server_of_an_older_version_is_asked_as_before() -> None:
    client, server = make()[0], OldServer(SECRET)
    answer = server.answer(client.receive(hello()))
    assert answer is not None
    client.receive(answer)
    assert server.roles == [Role.RAFT]
    assert not client.encrypted
    assert server.channel is not None
    assert client.channel.feed(b"".join(server.channel.seal(b"to client"))) == [b"to client"]


def test_where_encryption_is_required_older_versions_are_refused_at_both_ends() -> None:
    required = LinkSecurity(Secrets((SECRET,)), requires_encryption=True)
    client = ClientHandshake(required, CLIENT, Role.BROKER, chance(b"n"))
    with pytest.raises(HandshakeError, match="server speaks version 1 of") as error:
        client.receive(hello())
    assert error.value.reply == b""
    server = ServerHandshake(required, SERVER, chance(b"m"))
    old = OldClient(SECRET, Role.BROKER)
    with pytest.raises(HandshakeError, match=r"node 2 \(BROKER\) speaks version 1") as error:
        server.receive(old.answer(server.hello()))
    assert error.value.reply == b""
    client, server = (
        ClientHandshake(required, CLIENT, Role.BROKER, chance(b"n")),
        ServerHandshake(required, SERVER, chance(b"m")),
    )
    run(client, server)
    assert client.encrypted


def test_nobody_on_the_way_makes_two_new_nodes_speak_the_old_version() -> None:
    """The attacker removes the mark from the hello.

    The client takes the server for an old one, and proves what it received.
    """
    client, server = make()
    hello = bytearray(server.hello())
    hello[-8:] = b"whatever"
    with pytest.raises(HandshakeError, match="secret"):
        server.receive(client.receive(bytes(hello)))
    client, server = make()
    asked = bytearray(client.receive(server.hello()))
    asked[2] &= 0x7F  # the role as an old client sends it
    del asked[-64:-32]  # without the key
    asked[:2] = (len(asked) - 2).to_bytes(2, "big")
    with pytest.raises(HandshakeError, match="secret"):
        server.receive(bytes(asked))


def test_an_altered_key_is_noticed() -> None:
    client, server = make()
    asked = bytearray(client.receive(server.hello()))
    asked[-40] ^= 1
    with pytest.raises(HandshakeError, match="secret"):
        server.receive(bytes(asked))
    client, server = make()
    answer = bytearray(server.receive(client.receive(server.hello())))
    answer[-40] ^= 1
    with pytest.raises(HandshakeError, match="secret"):
        client.receive(bytes(answer))


@given(st.integers(0, 255), st.binary(max_size=120))
def test_whoever_has_the_secret_may_say_anything_and_gets_an_error(role: int, rest: bytes) -> None:
    """An authentic message of any role and length leads to one kind of error, or to a finished handshake."""
    old = OldClient(SECRET, role)
    old._claim = old._claim[:-32] + rest
    server = make()[1]
    try:
        server.receive(old.answer(server.hello()))
    except HandshakeError:
        assert not server.done


@given(st.data())
def test_a_changed_byte_anywhere_is_refused(data: st.DataObject) -> None:
    client, server = make()
    messages = [server.hello()]

    def altered(message: bytes) -> bytes:
        changed = bytearray(message)
        changed[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
        return bytes(changed)

    where = data.draw(st.integers(0, 2))
    with pytest.raises(HandshakeError):
        message = altered(messages[0]) if where == 0 else messages[0]
        asked = client.receive(message)
        answer = server.receive(altered(asked) if where == 1 else asked)
        client.receive(altered(answer) if where == 2 else answer)
        # A longer length makes an end wait: the following bytes are then invalid.
        server.receive(bytes(MAX_MESSAGE_BYTES))
        client.receive(bytes(MAX_MESSAGE_BYTES))
    assert not client.done


@given(st.lists(st.binary(max_size=200), max_size=30))
def test_what_follows_a_handshake_is_a_frame_or_an_error(pieces: list[bytes]) -> None:
    client, server = make()
    run(client, server)
    for channel in (client.channel, server.channel):
        try:
            for piece in pieces:
                assert channel.feed(piece) == []
        except FrameError:
            pass


def test_a_stranger_costs_little_memory() -> None:
    tracemalloc.start()
    try:
        server = make()[1]
        server.hello()
        with pytest.raises(HandshakeError):
            for _ in range(1000):
                server.receive(bytes([1, 0]) + bytes(100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def with_quorum_secret() -> tuple[LinkSecurity, LinkSecurity]:
    """Return a broker's security, and a quorum node's."""
    return LinkSecurity(Secrets((SECRET,))), LinkSecurity(
        Secrets((SECRET,)), Secrets((b"of the quorum alone",))
    )


def test_a_broker_serves_and_is_served_without_the_secret_of_the_quorum() -> None:
    broker, quorum = with_quorum_secret()
    client = ClientHandshake(broker, CLIENT, Role.BROKER, chance(b"n"))
    server = ServerHandshake(quorum, SERVER, chance(b"m"))
    run(client, server)
    assert server.peer.role is Role.BROKER


def test_quorum_nodes_meet_by_their_own_secret() -> None:
    _, quorum = with_quorum_secret()
    client = ClientHandshake(quorum, CLIENT, Role.RAFT, chance(b"n"))
    server = ServerHandshake(quorum, SERVER, chance(b"m"))
    run(client, server)
    assert server.peer.role is Role.RAFT


@pytest.mark.parametrize("old", [False, True])
def test_a_broker_does_not_get_in_as_a_quorum_node(old: bool) -> None:
    broker, quorum = with_quorum_secret()
    server = ServerHandshake(quorum, SERVER, chance(b"m"))
    if old:
        asked = OldClient(SECRET, Role.RAFT).answer(server.hello())
    else:
        asked = ClientHandshake(broker, CLIENT, Role.RAFT, chance(b"n")).receive(server.hello())
    with pytest.raises(HandshakeError, match=r"claims to be a quorum node .*quorum\.secret\.file") as error:
        server.receive(asked)
    assert error.value.reply == b""
    assert not server.done


def test_a_broker_does_not_pass_for_the_server_of_a_quorum_node() -> None:
    broker, quorum = with_quorum_secret()
    client = ClientHandshake(quorum, CLIENT, Role.RAFT, chance(b"n"))
    impostor = ServerHandshake(broker, SERVER, chance(b"m"))
    with pytest.raises(HandshakeError, match="secret"):
        impostor.receive(client.receive(impostor.hello()))


def test_while_a_secret_is_replaced_old_and_new_nodes_accept_each_other() -> None:
    old, new = b"the old secret of all", b"the new secret of all"
    steps = ((old,), (old, new), (new, old), (new,))

    def meets(dialling: tuple[bytes, ...], accepting: tuple[bytes, ...]) -> bool:
        client = ClientHandshake(LinkSecurity(Secrets(dialling)), CLIENT, Role.BROKER, chance(b"n"))
        server = ServerHandshake(LinkSecurity(Secrets(accepting)), SERVER, chance(b"m"))
        try:
            run(client, server)
        except HandshakeError:
            return False
        return client.channel.feed(b"".join(server.channel.seal(b"x"))) == [b"x"]

    for before, after in pairwise(steps):
        assert meets(before, after)
        assert meets(after, before)
    assert not meets((old,), (new,))
    assert not meets((new,), (old,))
