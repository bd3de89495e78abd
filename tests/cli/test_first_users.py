"""`ottla quorum --add-scram`: accepted values, and errors about others."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.main import main
from ottla.cli.nodes.first_users import first_users, parse_first_user
from ottla.dataplane.security.sealing import Sealer
from ottla.protocol.credentials.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential, salted_password
from ottla.protocol.session.node_secrets import Secrets

SECRETS = Secrets((b"0123456789abcdef-secret",))
SALT = base64.b64encode(b"salt of the test").decode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a, b.password"
    path.write_text("secret of ann\nanything else\n")
    return path


def test_a_password_from_a_file(file: Path) -> None:
    name, mechanism, credential = parse_first_user(
        f'SCRAM-SHA-256=[name="ann",iterations=4096,salt="{SALT}",password-file="{file}"]'
    )
    assert (name, mechanism) == ("ann", SCRAM_SHA_256)
    assert credential == ScramCredential.of_password(
        SCRAM_SHA_256, "secret of ann", b"salt of the test", 4096
    )


def test_a_password_that_was_hashed_elsewhere() -> None:
    salted = salted_password(SCRAM_SHA_512, "secret", b"salt of the test", 8192)
    words = f"name=ann,salt={SALT},saltedpassword={base64.b64encode(salted).decode()},iterations=8192"
    _, _, credential = parse_first_user(f"SCRAM-SHA-512=[{words}]")
    assert credential == ScramCredential.of_password(SCRAM_SHA_512, "secret", b"salt of the test", 8192)


def test_salts_are_random_unless_given(file: Path) -> None:
    word = f'SCRAM-SHA-512=[name=ann,password-file="{file}"]'
    assert parse_first_user(word)[2].salt != parse_first_user(word)[2].salt


def test_the_quorum_gets_them_sealed(file: Path) -> None:
    words = [f'{name}=[name=ann,password-file="{file}"]' for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    changes = first_users(words, SECRETS)
    assert [(change.name, change.mechanism) for change in changes] == [("ann", 1), ("ann", 2)]
    opened = Sealer(SECRETS.accepted).open(changes[0].sealed_keys, b"scram\x001\x00ann")
    expected = ScramCredential.of_password(SCRAM_SHA_256, "secret of ann", changes[0].salt, 8192)
    assert opened == expected.stored_key + expected.server_key
    with pytest.raises(UsageError, match="gives ann two passwords for SCRAM-SHA-256"):
        first_users([words[0], words[0]], SECRETS)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("SCRAM-SHA-256", r"takes SCRAM-SHA-512=\[name=admin,password-file=FILE\]"),
        ("SCRAM-SHA-1=[name=a]", "there are SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[name=a,password=hidden]", "other users could see the password in the list of processes"),
        ("SCRAM-SHA-256=[name=a,passwordfile=F]", "did you mean password-file"),
        ("SCRAM-SHA-256=[name=a,name=b]", "has name twice"),
        ("SCRAM-SHA-256=[name=a,b]", "is not of the form key=value"),
        ("SCRAM-SHA-256=[password-file=F]", "needs name=NAME"),
        ("SCRAM-SHA-256=[name=a]", "needs password-file or saltedpassword; neither"),
        ("SCRAM-SHA-256=[name=a,password-file=F,saltedpassword=eA==]", "both of them"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=eA==]", "needs the salt"),
        (f"SCRAM-SHA-256=[name=a,salt={SALT},saltedpassword=eA==]", "has 1 bytes, that of SCRAM-SHA-256 has 32"),
        (f"SCRAM-SHA-256=[name=a,salt={SALT},saltedpassword=?]", "saltedpassword is no text in base64"),
        ("SCRAM-SHA-256=[name=a,iterations=1,password-file=F]", "iterations is 4096 to 16384, not '1'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        parse_first_user(word)
    assert "hidden" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="--add-scram: cannot read"):
        parse_first_user(f"SCRAM-SHA-256=[name=a,password-file={tmp_path / 'none'}]")


def test_a_node_without_first_users_needs_no_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quorum", "-c", str(tmp_path / "none.yaml"), "--unless-formed"]) == 2
    assert "--unless-formed goes with --add-scram" in capsys.readouterr().err


@pytest.mark.cluster
def test_a_node_that_comes_back_takes_none(tmp_path: Path) -> None:
    words = [
        "quorum",
        "-c",
        str(tmp_path / "none.yaml"),
        "--replace",
        "--add-scram",
        "SCRAM-SHA-256=[name=a]",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--add-scram is for a new cluster" in done.stderr
