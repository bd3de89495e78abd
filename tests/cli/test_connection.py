"""The connection of commands to a cluster: flags before the environment, the environment before a profile."""

from __future__ import annotations

import argparse
import io
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from ottla.cli.arguments.options import add_connection
from ottla.cli.connection import profiles
from ottla.cli.connection.passwords import password_of
from ottla.cli.connection.precedence import connection_of
from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.main import main


@pytest.fixture(autouse=True)
def nothing_else_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("OTTLA_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_connection(parser)
    return parser.parse_args(words)


def run(*words: str) -> None:
    assert main(words) == 0


def test_without_anything() -> None:
    assert connection_of(parsed()) == {"bootstrap_servers": "localhost:9092"}


def test_flags_go_before_the_environment_and_that_before_a_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("profile", "create", "p", "-b", "profile:1", "-X", "client.id=profile")
    run("profile", "create", "q", "-b", "other:1", "-X", "client.id=other")
    assert connection_of(parsed())["bootstrap_servers"] == "localhost:9092"
    run("profile", "use", "p")
    assert connection_of(parsed()) == {"bootstrap_servers": "profile:1", "client_id": "profile"}
    monkeypatch.setenv("OTTLA_PROFILE", "q")
    assert connection_of(parsed()) == {"bootstrap_servers": "other:1", "client_id": "other"}
    assert connection_of(parsed("--profile", "p"))["client_id"] == "profile"
    (tmp_path / "of-environment.properties").write_text("bootstrap.servers=file:1\nclient.id=environment\n")
    monkeypatch.setenv("OTTLA_COMMAND_CONFIG", str(tmp_path / "of-environment.properties"))
    assert connection_of(parsed()) == {"bootstrap_servers": "file:1", "client_id": "environment"}
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "environment:1")
    assert connection_of(parsed())["bootstrap_servers"] == "environment:1"
    (tmp_path / "of-flag.properties").write_text("bootstrap.servers=flag:1\nclient.id=flag\n")
    by_file = ("--command-config", str(tmp_path / "of-flag.properties"))
    assert connection_of(parsed(*by_file)) == {"bootstrap_servers": "flag:1", "client_id": "flag"}
    assert connection_of(parsed(*by_file, "-b", "b:1"))["bootstrap_servers"] == "b:1"
    assert connection_of(parsed(*by_file, "-X", "client.id=x"))["client_id"] == "x"


def test_the_properties_of_a_java_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="ann" password="secret";\n'
        "group.id=g\n"
    )
    assert connection_of(parsed("--command-config", str(file))) == {
        "bootstrap_servers": "localhost:9092",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "secret",
    }
    assert "ignored, since not about connections: group.id" in capsys.readouterr().err


def test_a_java_client_s_properties_refer_to_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="ann" password="${env:OF_ANN}";\n'
    )
    with pytest.raises(
        CommandFailed, match=r"sasl\.jaas\.config: \${env:OF_ANN} gives no value: there is no"
    ):
        connection_of(parsed("--command-config", str(file)))
    monkeypatch.setenv("OF_ANN", "hunter2")
    given = connection_of(parsed("--command-config", str(file)))
    assert given["sasl_plain_password"] == "hunter2"
    assert "hunter2" not in repr(given)


def test_secrets_are_no_arguments() -> None:
    with pytest.raises(UsageError, match=r"-X sasl.password: .* could see it.*OTTLA_SASL_PASSWORD"):
        connection_of(parsed("-X", "sasl.password=hunter2"))


def test_a_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("-X", "sasl.username=ann")
    with pytest.raises(UsageError, match="OTTLA_SASL_PASSWORD"):
        connection_of(parsed(*words))
    monkeypatch.setenv("OTTLA_SASL_PASSWORD", "hunter2")
    given = connection_of(parsed(*words))
    assert given["sasl_plain_password"] == "hunter2"
    assert "hunter2" not in repr(given)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-X", "ssl.ca.locaton=x"), "did you mean 'ssl.ca.location'?"),
        (("-X", "nothing"), "-X takes key=value"),
        (("--profile", "nope"), "there is no profile 'nope'"),
        (("--command-config", "/nonexistent"), "cannot read /nonexistent"),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], message: str) -> None:
    with pytest.raises((UsageError, CommandFailed), match=message.replace("?", r"\?")):
        connection_of(parsed(*words))


def test_a_profile_is_kept_where_only_its_owner_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    password = tmp_path / "password"
    password.write_text("hunter2\nnever read\n")
    monkeypatch.chdir(tmp_path)
    words = ("-b", "h:1", "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN")
    run("profile", "create", "prod", *words, "-X", "sasl.username=ann", "--password-file", str(password))
    file = tmp_path / "config" / "profiles.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    assert json.loads(file.read_text())["profiles"]["prod"]["sasl.password"] == "hunter2"
    assert connection_of(parsed("--profile", "prod"))["sasl_plain_password"] == "hunter2"
    run("profile", "list")
    run("profile", "list", "-o", "json")
    shown = capsys.readouterr()
    assert "ann" in shown.out
    assert "hunter2" not in shown.out + shown.err
    assert main(["profile", "create", "prod", "-b", "h:2"]) == 1
    run("profile", "create", "prod", "-b", "h:2", "--replace")
    run("profile", "use", "prod")
    run("profile", "delete", "prod")
    assert json.loads(file.read_text()) == {"chosen": None, "profiles": {}}
    capsys.readouterr()
    run("profile", "list")
    assert "There are no profiles." in capsys.readouterr().err
    file.chmod(0o640)
    run("profile", "list")
    assert "others may read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a/b", "-b", "h:1"), "a profile is named by"),
        (("p", "-X", "ssl.ca.location=/nonexistent"), "needs security_protocol SSL"),
        (
            ("p", "-X", "security.protocol=SSL", "-X", "ssl.ca.location=/nonexistent"),
            "ssl_cafile: /nonexistent",
        ),
        (("p", "--password-file", "x"), "--password-file needs -X sasl.username"),
    ],
)
def test_a_profile_that_cannot_work_is_not_kept(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["profile", "create", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "config" / "profiles.json").exists()


def test_numbers_in_a_profile_keep_their_digits(tmp_path: Path) -> None:
    """The profile is a file that a user wrote by hand."""
    path = tmp_path / "profiles.json"
    path.write_text('{"profiles": {"a": {"sasl_plain_password": 12.50, "x": 1e3, "yes": true}}}')
    assert profiles.load(path).of("a") == {"sasl_plain_password": "12.50", "x": "1e3", "yes": "true"}


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"profiles": 7}', '{"profiles": {"a": 7}}', '{"profiles": {}, "chosen": ["a"]}'],
)
def test_a_damaged_file_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "profiles.json").write_text(content)
    with pytest.raises(CommandFailed, match=r"profiles.json is damaged"):
        connection_of(parsed())


def test_where_passwords_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_bytes("pä ss\r\nmore".encode())
    monkeypatch.setenv("VARIABLE", "of the environment")
    assert password_of(file, "VARIABLE", "?") == "pä ss"
    assert password_of(None, "VARIABLE", "?") == "of the environment"
    file.write_bytes(b"\n")
    for path, message in ((file, "is empty"), (tmp_path / "none", "cannot read"), (tmp_path, "cannot read")):
        with pytest.raises(CommandFailed, match=message):
            password_of(path, "VARIABLE", "?")
