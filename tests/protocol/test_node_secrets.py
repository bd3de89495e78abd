"""What the file of a secret may hold, and the messages for what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.config_key import ConfigError
from ottla.protocol.node_secrets import Secrets, read_secrets

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
