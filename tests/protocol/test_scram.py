"""SCRAM: the examples of the RFCs, both ends with each other, and the refusals of each end."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.credentials.scram import (
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramRefused,
    ScramUser,
    salted_password,
    unknown_user_credential,
)
from tests.protocol.scram_exchange import AnsweringServer

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"


def server(
    mechanism: ScramMechanism = SCRAM_SHA_256, password: str = "pencil", nonce: str = SERVER_NONCE
) -> AnsweringServer:
    """Return a server for any user, all of whom have this password."""
    credential = ScramCredential.of_password(mechanism, password, SALT)
    return AnsweringServer(mechanism, nonce, lambda _user: credential)


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE)
    broker = server()
    assert client.first() == FIRST
    challenge = broker.receive(FIRST)
    assert challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = client.final(challenge)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    answer = broker.receive(final)
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert broker.done
    client.check(answer)


@given(
    mechanism=st.sampled_from(sorted(SCRAM_MECHANISMS)),
    user=st.text(min_size=1, max_size=40).filter(lambda name: "\0" not in name),
    password=st.text(min_size=1, max_size=40),
)
def test_a_right_password_logs_in_whatever_the_name(mechanism: str, user: str, password: str) -> None:
    kind = SCRAM_MECHANISMS[mechanism]
    client, broker = ScramClient(kind, user, password, CLIENT_NONCE), server(kind, password)
    answer = broker.receive(client.final(broker.receive(client.first())))
    client.check(answer)
    assert broker.user == ScramUser(user, {})


@given(password=st.text(min_size=1, max_size=20).filter(lambda text: text != "pencil"))
def test_a_wrong_password_is_refused(password: str) -> None:
    client, broker = ScramClient(SCRAM_SHA_256, "user", password, CLIENT_NONCE), server()
    final = client.final(broker.receive(client.first()))
    with pytest.raises(ScramRefused, match="proof is wrong"):
        broker.receive(final)
    assert not broker.done


def test_a_user_who_does_not_exist_is_asked_like_one_who_does() -> None:
    for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
        unknown = unknown_user_credential(mechanism, b"key", "nobody")
        assert unknown == unknown_user_credential(mechanism, b"key", "nobody")
        assert unknown.salt != unknown_user_credential(mechanism, b"key", "somebody").salt
        assert unknown.iterations == ITERATIONS_MIN
        client = ScramClient(mechanism, "nobody", "guess", CLIENT_NONCE)
        broker = AnsweringServer(mechanism, SERVER_NONCE, lambda _user, known=unknown: known)
        final = client.final(broker.receive(client.first()))
        with pytest.raises(ScramRefused, match="proof is wrong"):
            broker.receive(final)


@pytest.mark.parametrize(
    ("first", "complaint"),
    [
        (b"", "begins with no header"),
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,a=other,n=user,r=abc", "act as another"),
        (b"n,x,n=user,r=abc", "no authorization id"),
        (b"n,,n=,r=abc", "names no user"),
        (b"n,,r=abc,n=user", "names no user"),
        (b"n,,n=user", "has no nonce"),
        (b"n,,n=user,r=a b", "has no nonce"),
        (b"n,,n=us=3Xer,r=abc", "escape that is none"),
        (b"n,,n=user,r=abc,r=abc", "twice"),
        (b"n,,n=user,r=abc,?", "no attribute"),
        (b"n,,n=us\xffer,r=abc", "not UTF-8"),
        (b"n,,n=user,r=" + b"a" * 20_000, "allowed are 16384"),
    ],
)
def test_first_messages_that_are_refused(first: bytes, complaint: str) -> None:
    with pytest.raises(ScramRefused, match=complaint):
        server().receive(first)


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        (b"r=rOpr", b"r=xOpr", "another nonce"),
        (b"k0,p=", b"k1,p=", "another nonce"),
        (b"c=biws", b"c=eSws", "another channel binding"),
        (b"c=biws", b"c=?", "not base64"),
        (b",p=", b",q=", "no proof"),
        (b"p=dHzb", b"p=", "must be 32"),
        (b"r=rOprNGfwEbeRWgbNEkqO", b"r=", "another nonce"),
    ],
)
def test_final_messages_that_are_refused(before: bytes, after: bytes, complaint: str) -> None:
    broker = server()
    final = ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE).final(broker.receive(FIRST))
    # The proof would be wrong, too: the first fault is reported.
    with pytest.raises(ScramRefused, match=complaint):
        broker.receive(final.replace(before, after, 1))


def test_a_client_may_repeat_its_part_of_the_nonce_as_older_librdkafka_does() -> None:
    broker = server()
    challenge = broker.receive(FIRST)
    without_proof = f"c=biws,r={CLIENT_NONCE}{CLIENT_NONCE}{SERVER_NONCE}"
    said = f"n=user,r={CLIENT_NONCE},{challenge.decode()},{without_proof}".encode()
    key = SCRAM_SHA_256.hmac(salted_password(SCRAM_SHA_256, "pencil", SALT, 4096), b"Client Key")
    signature = SCRAM_SHA_256.hmac(SCRAM_SHA_256.digest(key), said)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    broker.receive(f"{without_proof},p={proof}".encode())
    assert broker.done


def test_a_recorded_final_message_fits_no_other_login() -> None:
    broker = server()
    final = ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE).final(broker.receive(FIRST))
    broker.receive(final)
    again = server(nonce="another")
    again.receive(FIRST)
    with pytest.raises(ScramRefused, match="another nonce"):
        again.receive(final)
    with pytest.raises(ScramRefused, match="follows the end"):
        broker.receive(final)


@pytest.mark.parametrize(
    ("challenge", "complaint"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1", "allowed are 4096 to 1000000"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999", "allowed are 4096 to 1000000"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-5000", "allowed are 4096 to 1000000"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,i=4096", "salt is missing"),
    ],
)
def test_challenges_that_a_client_does_not_answer(challenge: bytes, complaint: str) -> None:
    with pytest.raises(ScramRefused, match=complaint):
        ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE).final(challenge)


def test_a_client_notices_a_server_that_does_not_know_the_password() -> None:
    client, broker = ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE), server()
    answer = broker.receive(client.final(broker.receive(client.first())))
    for false in (answer.replace(b"6rri", b"7rri"), b"", b"v=", b"e=unknown-user"):
        with pytest.raises(ScramRefused):
            client.check(false)
    client.check(answer)


@given(st.lists(st.binary(max_size=80) | st.just(FIRST), max_size=4))
def test_whatever_a_stranger_sends_is_answered_or_refused(messages: list[bytes]) -> None:
    broker = server()
    for message in messages:
        try:
            broker.receive(message)
        except ScramRefused:
            break
    assert not broker.done
