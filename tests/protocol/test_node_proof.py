"""Both ends know each other after the exchange. A proof is useless for any other node and on any other connection."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.session.node_proof import (
    MAX_MESSAGE_BYTES,
    NO_NODE,
    NONCE_BYTES,
    PROOF_BYTES,
    ClientProof,
    NodeCredentials,
    NodeRole,
    ProofRefused,
    ProvenNode,
    ServerProof,
)
from ottla.protocol.session.node_secrets import Secrets

SECRET = b"a secret of the cluster"
OTHER_SECRET = b"a secret of another one"


def node(
    node_id: int,
    *,
    secret: bytes = SECRET,
    cluster_id: str = "cluster-a",
    role: NodeRole = NodeRole.BROKER,
) -> NodeCredentials:
    return NodeCredentials.of(Secrets((secret,)), cluster_id, node_id, b"i" * 16, role)


def client(own: NodeCredentials, server_id: int, nonce: bytes = b"c" * NONCE_BYTES) -> ClientProof:
    return ClientProof(own, server_id, nonce)


def server(own: NodeCredentials, nonce: bytes = b"s" * NONCE_BYTES) -> ServerProof:
    return ServerProof(own, nonce)


def test_while_the_secret_is_replaced_old_and_new_nodes_accept_each_other() -> None:
    def with_lines(node_id: int, *secrets: bytes) -> NodeCredentials:
        return NodeCredentials.of(Secrets(secrets), "cluster-a", node_id, b"i" * 16)

    before, both = with_lines(2, SECRET), with_lines(1, SECRET, OTHER_SECRET)
    turned, after = with_lines(3, OTHER_SECRET, SECRET), with_lines(4, OTHER_SECRET)
    neighbours = ((before, both), (both, turned), (turned, after))
    for dialler, acceptor in (*neighbours, *((right, left) for left, right in neighbours)):
        dialling, accepting = client(dialler, acceptor.node_id), server(acceptor)
        proof = dialling.receive(accepting.receive(dialling.claim))
        dialling.receive(accepting.receive(proof))
        assert dialling.done
        assert accepting.peer == ProvenNode(NodeRole.BROKER, dialler.node_id)
    dialling, accepting = client(before, 4), server(after)
    proof = dialling.receive(accepting.receive(dialling.claim))
    with pytest.raises(ProofRefused, match="the proof is wrong"):
        accepting.receive(proof)


def test_both_ends_learn_who_the_other_is() -> None:
    dialling, accepting = client(node(2), 1), server(node(1))
    proof = dialling.receive(accepting.receive(dialling.claim))
    assert accepting.peer is None
    assert not dialling.done
    assert dialling.receive(accepting.receive(proof)) == b""
    assert dialling.done
    assert accepting.peer == ProvenNode(NodeRole.BROKER, 2)


def test_a_person_has_no_node_id() -> None:
    dialling, accepting = client(node(NO_NODE, role=NodeRole.OPERATOR), 1), server(node(1))
    dialling.receive(accepting.receive(dialling.receive(accepting.receive(dialling.claim))))
    assert accepting.peer == ProvenNode(NodeRole.OPERATOR, NO_NODE)


@pytest.mark.parametrize(
    ("claiming", "meant", "said"),
    [
        (node(2, cluster_id="cluster-b"), 1, "'cluster-b', this broker belongs to 'cluster-a'"),
        (node(2), 3, "broker 2 and means broker 3, this is 1"),
        (node(1), 1, "broker 1, which is this broker itself"),
        (node(2, role=NodeRole.OPERATOR), 1, "node id 2 as OPERATOR"),
        (node(NO_NODE), 1, "node id -1 as BROKER"),
    ],
)
def test_what_is_wrong_with_a_claim_is_said(claiming: NodeCredentials, meant: int, said: str) -> None:
    accepting = server(node(1))
    with pytest.raises(ProofRefused, match=said):
        accepting.receive(client(claiming, meant).claim)
    assert accepting.peer is None


def test_a_client_with_another_secret_is_told_nothing_but_a_nonce() -> None:
    dialling, accepting = client(node(2, secret=OTHER_SECRET), 1), server(node(1))
    proof = dialling.receive(accepting.receive(dialling.claim))
    with pytest.raises(ProofRefused, match=r"broker 2: .*cluster\.secret\.file"):
        accepting.receive(proof)
    assert accepting.peer is None


def test_a_server_with_another_secret_is_found_out() -> None:
    dialling = client(node(2), 1)
    dialling.receive(b"x" * NONCE_BYTES)
    with pytest.raises(ProofRefused, match=r"broker 1 does not hold .*cluster\.secret\.file"):
        dialling.receive(b"y" * PROOF_BYTES)
    assert not dialling.done


def test_a_recorded_exchange_proves_nothing_on_another_connection() -> None:
    dialling, accepting = client(node(2), 1), server(node(1))
    proof = dialling.receive(accepting.receive(dialling.claim))
    answer = accepting.receive(proof)
    again = server(node(1), b"t" * NONCE_BYTES)
    again.receive(dialling.claim)
    with pytest.raises(ProofRefused):
        again.receive(proof)
    assert again.peer is None
    posing = client(node(2), 1, b"d" * NONCE_BYTES)
    posing.receive(b"s" * NONCE_BYTES)
    with pytest.raises(ProofRefused):
        posing.receive(answer)


def test_a_proof_for_one_broker_is_refused_by_another() -> None:
    """The server at broker 1's address relays everything to broker 3."""
    dialling, meant, other = client(node(2), 1), server(node(1)), server(node(3))
    with pytest.raises(ProofRefused, match="means broker 1, this is 3"):
        other.receive(dialling.claim)
    relayed = bytearray(dialling.claim)
    at = relayed.index((1).to_bytes(4, "big"), 6)
    relayed[at : at + 4] = (3).to_bytes(4, "big")
    other = server(node(3))
    proof = dialling.receive(other.receive(bytes(relayed)))
    with pytest.raises(ProofRefused, match="the proof is wrong"):
        other.receive(proof)
    assert meant.peer is None


def test_what_a_broker_says_when_it_dials_is_no_proof_of_another() -> None:
    """Broker 1 dials broker 2, which sends all of it back on another connection."""
    dialling, accepting = client(node(1), 2), server(node(1))
    with pytest.raises(ProofRefused, match="means broker 2, this is 1"):
        accepting.receive(dialling.claim)
    accepting = server(node(1))
    nonce = accepting.receive(client(node(2), 1).claim)
    with pytest.raises(ProofRefused):
        accepting.receive(dialling.receive(nonce))
    assert accepting.peer is None


def test_the_proof_of_a_client_is_none_of_a_server() -> None:
    dialling = client(node(2), 1)
    proof = dialling.receive(b"x" * NONCE_BYTES)
    with pytest.raises(ProofRefused):
        dialling.receive(proof)


def test_who_has_proved_to_be_one_node_does_not_become_another() -> None:
    dialling, accepting = client(node(2), 1), server(node(1))
    accepting.receive(dialling.receive(accepting.receive(dialling.claim)))
    with pytest.raises(ProofRefused, match="one attempt"):
        accepting.receive(client(node(3), 1).claim)
    assert accepting.peer == ProvenNode(NodeRole.BROKER, 2)


def test_a_connection_has_one_attempt() -> None:
    dialling, accepting = client(node(2), 1), server(node(1))
    proof = dialling.receive(accepting.receive(dialling.claim))
    with pytest.raises(ProofRefused):
        accepting.receive(bytes(PROOF_BYTES))
    with pytest.raises(ProofRefused, match="one attempt"):
        accepting.receive(proof)
    assert accepting.peer is None


@pytest.mark.parametrize("size", [0, 61, MAX_MESSAGE_BYTES + 1, 1 << 20])
def test_a_claim_of_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(ProofRefused, match=f"a claim of {size} bytes"):
        server(node(1)).receive(bytes(size))


@given(st.binary(max_size=300))
def test_noise_proves_nothing_and_raises_nothing_else(noise: bytes) -> None:
    for messages in ((noise,), (client(node(2), 1).claim, noise)):
        accepting = server(node(1))
        with pytest.raises(ProofRefused):
            for message in messages:
                accepting.receive(message)
        assert accepting.peer is None
    dialling = client(node(2), 1)
    with pytest.raises(ProofRefused):
        for message in (b"n" * NONCE_BYTES, noise):
            dialling.receive(message)
    assert not dialling.done


def test_every_changed_bit_of_what_was_said_is_noticed() -> None:
    seed = 20261125
    chance = random.Random(seed)
    for _ in range(300):
        dialling, accepting = client(node(2), 1), server(node(1))
        which = chance.randrange(3)

        def changed(message: bytes, place: int, which: int = which) -> bytes:
            if place != which:
                return message
            bit = chance.randrange(8 * len(message))
            damaged = bytearray(message)
            damaged[bit // 8] ^= 1 << bit % 8
            return bytes(damaged)

        with pytest.raises(ProofRefused):
            nonce = changed(accepting.receive(changed(dialling.claim, 0)), 1)
            accepting.receive(changed(dialling.receive(nonce), 2))
        assert accepting.peer is None, f"seed {seed}"


def test_credentials_do_not_show_the_key() -> None:
    own = node(2)
    assert repr(own.keys[0]) not in repr(own)
    assert "key" not in repr(own)


def test_impossible_identities_are_refused() -> None:
    with pytest.raises(ValueError, match="incarnation has 3 bytes"):
        NodeCredentials.of(Secrets((SECRET,)), "c", 1, b"abc")
    with pytest.raises(ValueError, match="cluster id is over 128"):
        NodeCredentials.of(Secrets((SECRET,)), "c" * 129, 1, b"i" * 16)
    with pytest.raises(ValueError, match="nonce has 0 bytes"):
        client(node(2), 1, b"")
