"""The permitted contents of a secret's file, and the messages about invalid ones."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ottla.protocol.session.node_secrets import MIN_STRENGTH_BITS, Secrets, read_secrets, strength_bits
from ottla.protocol.settings.config_key import ConfigError

OLD, NEW = b"0123456789abcdef0123456789abcdef", b"fedcba98765432100123456789abcdef"


@pytest.mark.parametrize(
    ("content", "accepted"),
    [
        (OLD, (OLD,)),
        (b"  " + OLD + b"\r\n", (OLD,)),
        (OLD + b"\n" + NEW + b"\n", (OLD, NEW)),
        (b"\n" + NEW + b"\r\n\r\n\t" + OLD + b" \n\n", (NEW, OLD)),
    ],
)
def test_each_line_is_a_secret_and_the_first_is_used(
    tmp_path: Path, content: bytes, accepted: tuple[bytes, ...]
) -> None:
    (tmp_path / "secret").write_bytes(content)
    secrets = read_secrets("cluster.secret.file", str(tmp_path / "secret"))
    assert secrets.accepted == accepted
    assert secrets.first == accepted[0]
    assert OLD.decode() not in repr(secrets)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" \n\n", "cluster.secret.file: .*secret is empty, at least 16 bytes are needed"),
        (b"0123456789abcde\n", "secret holds 15 bytes, at least 16 are needed"),
        (OLD + b"\n\nshort\n", "line 2 of .*secret holds 5 bytes, at least 16 are needed"),
        (b"s" * 64, "secret can be guessed, as it repeats itself .* openssl rand -hex 32"),
        (b"password" * 8 + b"pass", "secret can be guessed"),
        (b"1234567890123456", "secret can be guessed"),
        (OLD + b"\n" + b"changeme-changeme\n", "line 2 of .*secret can be guessed"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_secrets("cluster.secret.file", str(tmp_path / "secret"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"quorum\.secret\.file: cannot read .*nowhere: No such file"):
        read_secrets("quorum.secret.file", str(tmp_path / "nowhere"))


def test_there_is_a_secret_at_least() -> None:
    with pytest.raises(ValueError, match="no secret"):
        Secrets.parse(b" \n")


@pytest.mark.parametrize(("content", "remarked"), [(b"correct horse battery", True), (OLD, False)])
def test_what_could_be_words_is_remarked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, remarked: bool
) -> None:
    (tmp_path / "secret").write_bytes(content)
    read_secrets("cluster.secret.file", str(tmp_path / "secret"))
    assert ("could be words" in caplog.text) == remarked
    assert content.decode() not in caplog.text


@pytest.mark.parametrize(("mode", "remarked"), [(0o644, True), (0o640, False), (0o600, False)])
def test_a_file_that_every_user_may_read_is_remarked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, remarked: bool
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(OLD)
    file.chmod(mode)
    read_secrets("cluster.secret.file", str(file))
    assert (f"chmod 600 {file}" in caplog.text) == remarked


@given(st.binary(min_size=16, max_size=16), st.sampled_from(["raw", "hex", "base64"]))
def test_random_secrets_are_strong_in_any_form(chance: bytes, form: str) -> None:
    if form == "hex":
        chance = chance.hex().encode()
    elif form == "base64":
        chance = base64.b64encode(chance)
    assume(
        len(set(chance)) > 12 if form == "raw" else len(set(chance)) > 9
    )  # true of nearly all random secrets
    assert strength_bits(chance) >= MIN_STRENGTH_BITS
