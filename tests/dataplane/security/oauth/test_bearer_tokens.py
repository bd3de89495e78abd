"""Tokens as attackers make them: every check of form, of signature and of claims, and each attempt
to circumvent one.
"""

from __future__ import annotations

import contextlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import Key, OKPKey, RSAKey

from ottla.dataplane.security.oauth.settings import TokenRules
from ottla.dataplane.security.oauth.signatures import KeysUnreadable, SigningKeys
from ottla.dataplane.security.oauth.tokens import (
    TOKEN_BYTES_MAX,
    Bearer,
    Token,
    TokenRefused,
    check_claims,
    check_unsigned,
    read_token,
)
from tests.oauth_issuer import AUDIENCE, ISSUER, encoded, key_set, new_key, signed, unsigned

NOW_S = 1_800_000_000
RULES = TokenRules(issuer=ISSUER, audiences=frozenset({AUDIENCE, "other"}))
GOOD = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S - 60, "exp": NOW_S + 60}
UNSECURED = TokenRules(skew_ms=0, needs_issue_time=False)
KINDS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA", "Ed25519"),
}
KEYS = {kind: new_key(kind, kind) for kind in KINDS}
ALL_KEYS = SigningKeys.read(key_set(*KEYS.values()))


def check(rules: TokenRules = RULES, **changes: Any) -> Bearer:
    claims = {name: value for name, value in (GOOD | changes).items() if value is not None}
    return check_claims(read_token(unsigned(claims)), rules, 1000 * NOW_S)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aud": ["x", "other"]},
        {"exp": NOW_S + 0.5},
        {"exp": NOW_S - 29},  # within the clock's skew
        {"nbf": NOW_S + 30},
        {"iat": NOW_S + 50},  # as in Kafka, only its presence is required
        {"scope": None},
        {"scope": ""},
        {"scope": 7},
        {"sub": " ann\t"},
        {"scope": "read read"},
        {"scope": ["read", "write"]},
        {"roles": {"deep": [1, 2]}},
    ],
)
def test_claims_that_are_taken(changes: dict[str, Any]) -> None:
    assert check(**changes) == Bearer("ann", 1000 * int(changes.get("exp", NOW_S + 60)))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"exp": None}, "claim exp is None"),
        ({"exp": NOW_S - 30}, "it expired 30 s ago"),  # the first moment beyond the skew
        ({"exp": True}, "claim exp is True"),
        ({"exp": "1"}, "claim exp is '1'"),
        ({"exp": -1}, "claim exp is -1"),
        ({"iat": None}, "claim iat is None"),
        ({"iat": [1]}, r"claim iat is \[1\]"),
        ({"iat": NOW_S + 61}, "before its iat"),
        ({"nbf": NOW_S + 31}, "holds from 31 s on"),
        ({"nbf": "x"}, "claim nbf is 'x'"),
        ({"nbf": NOW_S + 20, "exp": NOW_S + 10}, "before its nbf"),
        ({"iss": None}, "its issuer is None"),
        ({"iss": ISSUER.upper()}, "its issuer is"),
        ({"iss": [ISSUER]}, "its issuer is"),
        ({"aud": None}, "its audience is None"),
        ({"aud": "kafka2"}, "expected is one of kafka, other"),
        ({"aud": []}, "expected is one of"),
        ({"aud": [1, AUDIENCE]}, "a text or a list of texts"),
        ({"aud": {"kafka": 1}}, "a text or a list of texts"),
        ({"sub": None}, "claim sub is None"),
        ({"sub": ""}, "claim sub is ''"),
        ({"sub": " \t"}, "claim sub is"),
        ({"sub": 7}, "claim sub is 7"),
        ({"sub": ["ann"]}, "claim sub is"),
        ({"scope": ["read", 7]}, "claim scope is"),
        ({"scope": ["read", "read"]}, "a scope twice"),
    ],
)
def test_claims_that_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TokenRefused, match=complaint) as refused:
        check(**changes)
    assert refused.value.status == "invalid_token"


def test_the_edge_of_the_expiry_is_the_skew() -> None:
    token = read_token(unsigned(GOOD | {"exp": NOW_S}))
    assert check_claims(token, RULES, 1000 * (NOW_S + 30) - 1).expires_at_ms == 1000 * NOW_S
    with pytest.raises(TokenRefused, match="it expired"):
        check_claims(token, RULES, 1000 * (NOW_S + 30))


def test_other_claims_may_name_the_user_and_the_scope() -> None:
    rules = TokenRules(user_claim="client", scope_claim="scp", required_scopes=frozenset({"read"}))
    assert check(rules, client="eve", scp="write read").user == "eve"
    with pytest.raises(TokenRefused, match="lacks the scope read") as refused:
        check(rules, client="eve", scp=["write"])
    assert (refused.value.status, refused.value.scope) == ("insufficient_scope", "read")


def test_without_rules_issuer_and_audience_do_not_matter() -> None:
    assert check(TokenRules(), iss=7, aud=None).user == "ann"


def test_what_ends_in_ages_ends_at_the_end_of_the_calendar() -> None:
    assert check(exp=10**300).expires_at_ms == 253_402_300_799_000
    for end in ("1e300", "1e999"):  # the latter is infinite
        claims = json.dumps(GOOD | {"exp": 0}).replace('"exp": 0', f'"exp": {end}')
        bearer = check_claims(read_token(as_token(claims.encode())), RULES, 1000 * NOW_S)
        assert bearer.expires_at_ms == 253_402_300_799_000


def test_tokens_without_a_signature() -> None:
    assert check(UNSECURED, iat=None).user == "ann"
    check_unsigned(read_token(unsigned(GOOD)))
    for token in (signed(GOOD, KEYS["RSA"]), unsigned(GOOD) + "AA", unsigned(GOOD, alg="NONE")):
        with pytest.raises(TokenRefused, match="nothing here could check"):
            check_unsigned(read_token(token))
    with pytest.raises(TokenRefused, match="will be issued in 1 s"):
        check(UNSECURED, iat=NOW_S + 1)
    with pytest.raises(TokenRefused, match="it expired 0 s ago"):
        check(UNSECURED, exp=NOW_S)


def as_token(payload: bytes, header: bytes = b'{"alg": "none"}') -> str:
    return f"{encoded(header)}.{encoded(payload)}."


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "1 parts"),
        ("a.b", "2 parts"),
        ("a.b.c.d.e", "5 parts"),
        ("x" * (TOKEN_BYTES_MAX + 1), f"allowed are {TOKEN_BYTES_MAX}"),
        ("x" * 1024 * 1024, "1048576 bytes"),
        ("!.e30.", "header is not in base64url"),
        ("e30=.e30.", "header is not in base64url"),
        (as_token(b"{}") + "+/", "signature is not in base64url"),
        (as_token(b"{}") + "A", "signature is not in base64url"),
        ("e31.e30.", "header is not in base64url"),  # the bits that are left over are not 0
        ("\u0665.e30.", "header is not in base64url"),
        (as_token(b"{}", b"[]"), "header is no JSON object"),
        (as_token(b"{}", b"\xff"), "header is no JSON"),
        (as_token(b"{}", b"{}"), "names no algorithm"),
        (as_token(b"{}", b'{"alg": 7}'), "names no algorithm"),
        (as_token(b"{}", b'{"alg": "none", "alg": "RS256"}'), "a name stands twice"),
        (as_token(b"{}", b'{"alg": "RS256", "crit": ["b64"], "b64": false}'), "critical extensions"),
        (as_token(b"{}", b'{"alg": "RS256", "kid": 7}'), "key id is no text"),
        (as_token(b"{}", b'{"alg": "RS256", "kid": "%s"}' % (b"k" * 1001)), "at most 1000 characters"),
        (as_token(b'{"sub": "ann", "sub": "admin"}'), "payload is no JSON: a name stands twice"),
        (as_token(b'{"roles": {"a": 1, "a": 2}}'), "a name stands twice"),
        (as_token(b'{"exp": NaN}'), "NaN is no number"),
        (as_token(b'{"exp": Infinity}'), "Infinity is no number"),
        (as_token(b'{"exp": %s}' % (b"9" * 5000)), "payload is no JSON"),
        (as_token(b"[" * 12_000), "payload is no JSON"),
        (as_token(b"7"), "payload is no JSON object"),
    ],
)
def test_texts_that_are_no_tokens(text: str, complaint: str) -> None:
    with pytest.raises(TokenRefused, match=complaint):
        read_token(text)


@pytest.mark.parametrize(
    ("kind", "algorithm"), [(kind, algorithm) for kind, found in KINDS.items() for algorithm in found]
)
def test_each_algorithm_with_its_kind_of_key(kind: str, algorithm: str) -> None:
    token = read_token(signed(GOOD, KEYS[kind], algorithm))
    assert ALL_KEYS.judge(token) is True
    assert ALL_KEYS.judge(read_token(signed(GOOD, KEYS[kind], algorithm, kid=None))) is True
    forged = read_token(signed(GOOD, new_key(kind, kind), algorithm))
    assert ALL_KEYS.judge(forged) is False
    header, _, signature = signed(GOOD, KEYS[kind], algorithm).split(".")
    changed = f"{header}.{encoded(json.dumps(GOOD | {'sub': 'admin'}).encode())}.{signature}"
    assert ALL_KEYS.judge(read_token(changed)) is False


def test_algorithms_are_bound_to_the_type_of_the_key() -> None:
    public = KEYS["RSA"].as_pem(private=False)  # type: ignore[union-attr]
    head = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": "RSA"}, GOOD))
    by_public_key = f"{head}.{encoded(hmac.digest(public, head.encode(), 'sha256'))}"
    assert ALL_KEYS.judge(read_token(by_public_key)) is None
    assert ALL_KEYS.judge(read_token(unsigned(GOOD, kid="RSA"))) is None
    assert ALL_KEYS.judge(read_token(unsigned(GOOD, alg="RS256", kid="RSA"))) is False
    # A key of one type under the name of another.
    assert ALL_KEYS.judge(read_token(signed(GOOD, KEYS["P-256"], "ES256", kid="RSA"))) is None
    assert ALL_KEYS.judge(read_token(signed(GOOD, KEYS["P-256"], "ES256", kid="P-384"))) is None
    assert ALL_KEYS.judge(read_token(signed(GOOD, new_key("k1", "secp256k1"), "ES256K", kid="P-256"))) is None


@pytest.mark.parametrize(
    "header",
    [
        {"kid": "../../etc/passwd"},
        {"kid": "' OR 1=1"},
        {"kid": None, "jwk": {"kty": "oct", "k": "c2VjcmV0"}},
        {"kid": "mine", "jku": "http://localhost/keys", "x5u": "http://localhost/cert"},
    ],
)
def test_a_token_cannot_bring_its_own_key(header: dict[str, Any]) -> None:
    mine = new_key("mine", "P-256")
    if "jwk" in header:
        header = {**header, "jwk": mine.as_dict(private=False)}
    assert not ALL_KEYS.judge(read_token(signed(GOOD, mine, "ES256", **header)))


def test_a_set_gives_the_keys_that_can_check_signatures() -> None:
    def told(key: Key, **more: Any) -> dict[str, Any]:
        return {**key.as_dict(private=False), **more}

    listed = [
        told(KEYS["RSA"], use="enc"),
        told(KEYS["RSA"], use=None, key_ops=["encrypt"]),
        told(KEYS["P-256"], kid="for another", alg="ES384"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        {"kty": "RSA", "n": "!", "e": "AQAB"},
        told(RSAKey.generate_key(1024, {"kid": "short"})),
        {"kty": "new"},
        told(OKPKey.generate_key("X25519")),
        told(new_key("k1", "secp256k1")),
        7,
    ]
    with pytest.raises(KeysUnreadable, match="none of its 10 keys"):
        SigningKeys.read(json.dumps({"keys": [*listed[:2], *listed[3:], 8]}).encode())
    whole = {**KEYS["Ed25519"].as_dict(private=True), "kid": "with its private part"}
    keys = SigningKeys.read(json.dumps({"keys": [*listed, whole, whole]}).encode())
    assert len(keys) == 2
    token = read_token(signed(GOOD, KEYS["Ed25519"], "EdDSA", kid="with its private part"))
    assert keys.judge(token) is True
    assert keys.judge(read_token(signed(GOOD, KEYS["P-256"], "ES256", kid="for another"))) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"keys": 7}',
        b'{"keys": []}',
        b'{"keys": [%s7]}' % (b"7," * 100),
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_what_is_no_set_of_keys(content: bytes) -> None:
    with pytest.raises(KeysUnreadable):
        SigningKeys.read(content)


@given(st.integers(0, len(signed(GOOD, KEYS["P-256"], "ES256")) - 1), st.text(max_size=5), st.integers(0, 40))
def test_a_damaged_token_is_refused(at: int, put: str, less: int) -> None:
    """Any part of a valid token may be cut out or replaced."""
    good = signed(GOOD, KEYS["P-256"], "ES256")
    damaged = good[:at] + put + good[at + less :]
    try:
        token = read_token(damaged)
        check_claims(token, RULES, 1000 * NOW_S)
    except TokenRefused:
        return
    assert damaged == good or not ALL_KEYS.judge(token)


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5)
)
def test_claims_of_any_type_are_taken_or_refused(value: Any) -> None:
    for name in ("exp", "iat", "nbf", "iss", "aud", "sub", "scope"):
        token = Token("none", None, GOOD | {name: value}, b"", b"")
        with contextlib.suppress(TokenRefused):
            assert check_claims(token, RULES, 1000 * NOW_S).user
