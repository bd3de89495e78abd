"""`ottla user create --client-files` refuses what would be of no use, before it asks a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.main import main

SECURED = (
    "-X",
    "security.protocol=SASL_SSL",
    "-X",
    "sasl.mechanism=SCRAM-SHA-512",
    "-X",
    "sasl.username=admin",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("OTTLA_SASL_PASSWORD", "of admin")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no user logs in by PLAINTEXT"),
        (("-X", "security.protocol=SSL"), "no user logs in by SSL"),
        ((*SECURED, "--installed-in", "here"), "--installed-in takes the whole path"),
    ],
)
def test_a_connection_without_logins_and_a_place_without_a_path(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ann"
    assert main(["user", "create", "ann", "-b", "h:1", "--client-files", str(folder), *words]) == 2
    assert message in capsys.readouterr().err
    assert not folder.exists()


def test_a_name_that_no_file_can_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "f"
    assert main(["user", "create", "../ann", "-b", "h:1", "--client-files", str(folder), *SECURED]) == 2
    assert "'../ann'" in capsys.readouterr().err
    assert not folder.exists()


def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f"
    file.write_text("mine")
    assert main(["user", "create", "ann", "-b", "h:1", "--client-files", str(file), *SECURED]) == 2
    assert "Not a directory" in capsys.readouterr().err
    assert file.read_text() == "mine"


@pytest.mark.parametrize("password", [" x", "x ", "a\tb"])
def test_a_password_that_the_files_would_lose(
    password: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_NEW_PASSWORD", password)
    folder = tmp_path / "f"
    assert main(["user", "create", "ann", "-b", "h:1", "--client-files", str(folder), *SECURED]) == 2
    assert "is lost in the files of clients" in capsys.readouterr().err
    assert not folder.exists()


def test_the_place_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["user", "create", "ann", "-b", "h:1", *SECURED, "--installed-in", str(tmp_path)]) == 2
    assert "--installed-in goes with --client-files" in capsys.readouterr().err
