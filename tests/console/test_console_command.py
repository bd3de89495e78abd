"""`ottla console` and `ottla up --console`: what they say when they cannot start."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.console import requirements


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--listen", "here"], "HOST:PORT with a port up to 65535, not 'here'"),
        (["--listen", "0.0.0.0:9280"], "needs --token-file FILE"),
        (["--metrics", "127.0.0.1:9644"], "--metrics takes http://HOST:PORT/metrics"),
        (["--public", "console.example.com"], "a public address is http://HOST[:PORT]"),
        (["--schema-registry", "registry:8081"], "--schema-registry: a schema registry is http://HOST:PORT"),
        (
            ["--schema-registry", "http://me:secret@registry"],
            "has no user and no password: a file has the login",
        ),
        (["--login"], "--login needs a cluster that has users with passwords"),
        (["--alow-changes"], "did you mean --allow-changes?"),
    ],
)
def test_options_that_do_not_fit(capsys: pytest.CaptureFixture[str], options: list[str], reason: str) -> None:
    assert main(["console", "-b", "127.0.0.1:1", *options]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert "secret" not in said


def test_a_token_that_is_short(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert main(["console", "-b", "127.0.0.1:1", "--token-file", str(file)]) == 2
    said = capsys.readouterr().err
    assert "the token has 6 characters; 16 is the least" in said
    assert main(["console", "--token-file", str(tmp_path / "none")]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_a_cluster_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "-b", "127.0.0.1:1", "--listen", "127.0.0.1:0"]) == 1
    assert "Is the cluster up?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["console"], ["up", "--console"]])
def test_without_the_extra_it_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == "jinja2" else True)
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    assert "the console needs jinja2: pip install '.[console]' in a checkout" in capsys.readouterr().err
    assert not (tmp_path / "ottla-data" / "cluster.json").exists()


def test_without_what_reads_schemas_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name.startswith("google") else True)
    assert main(["console", "-b", "127.0.0.1:1", "--schema-registry", "http://127.0.0.1:1"]) == 1
    assert (
        "the console needs google.protobuf: pip install '.[console]' in a checkout" in capsys.readouterr().err
    )
