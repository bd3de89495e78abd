"""`ottla user create --client-files`: refusals before it asks a cluster, and files of a password in doubt."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import ottla.client.admin
from ottla.cli.main import main
from ottla.client.failures import ConnectionLost, NoBrokerReachable
from ottla.protocol.errors import ErrorCode, KafkaError

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


class FailingAdmin:
    """The admin client of a cluster that cannot be reached, or that does not set a password."""

    unreachable: KafkaError | None = None
    failure: BaseException

    def __init__(self, **connection: object) -> None:
        pass

    async def __aenter__(self) -> FailingAdmin:
        if self.unreachable is not None:
            raise self.unreachable
        return self

    async def __aexit__(self, *failure: object) -> None:
        pass

    async def alter_scram_credentials(self, upserts: object, deletions: object) -> None:
        raise self.failure


def created(folder: Path, monkeypatch: pytest.MonkeyPatch, **failures: BaseException) -> int:
    """Run the command on a cluster that fails so, and return its exit code."""
    monkeypatch.setattr(ottla.client.admin, "Admin", type("Failing", (FailingAdmin,), failures))
    return main(["user", "create", "ann", "-b", "h:1", "--client-files", str(folder), *SECURED])


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ConnectionLost("h:1 closed the connection"), 1),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the quorum has not answered"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_password_that_the_cluster_may_have_stays_in_the_files(
    failure: BaseException,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "ann"
    assert created(folder, monkeypatch, failure=failure) == code
    assert len((folder / "ann.password").read_text()) > 20
    assert f"--password-file {folder / 'ann.password'}' sets it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("failures", "code"),
    [
        ({"failure": KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed")}, 1),
        ({"failure": ValueError("a user has a name")}, 2),
        ({"unreachable": NoBrokerReachable("h:1 does not answer")}, 1),
    ],
)
def test_no_files_stay_of_a_user_who_was_refused(
    failures: dict[str, BaseException],
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "ann"
    assert created(folder, monkeypatch, **failures) == code
    assert not folder.exists()
    assert "sets it again" not in capsys.readouterr().err


def test_no_files_stay_if_one_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.commands.user_files.write_atomically", _no_space)
    monkeypatch.setattr(ottla.client.admin, "Admin", FailingAdmin)
    folder = tmp_path / "ann"
    assert main(["user", "create", "ann", "-b", "h:1", "--client-files", str(folder), *SECURED]) == 1
    assert f"cannot write in {folder}: No space left on device" in capsys.readouterr().err
    assert not folder.exists()


def _no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
