"""The commands for certificates in docs/OPERATIONS.md, run as they stand there, and the listeners beside them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ottla.cli.main import main
from tests.commands import run_ottla

PAGE = Path(__file__).resolve().parents[2] / "docs" / "OPERATIONS.md"


def block(kind: str, begins: str) -> str:
    found = re.search(rf"^```{kind}\n({begins}.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, begins
    return found[1]


def test_a_broker_would_start_with_the_certificates_that_the_page_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in block("", "ottla security authority").splitlines():
        assert main(shlex.split(line)[1:]) == 0
    broker = tmp_path / "broker-1"
    page = PAGE.read_text()
    for file in [*broker.iterdir(), tmp_path / "authority/ca.key"]:
        assert f"`{file.relative_to(tmp_path)}`" in page
    shown = [
        line for line in block("properties", "listeners=CLIENTS").splitlines() if line.startswith("ssl.")
    ]
    assert [
        line for line in (broker / "broker-1.properties").read_text().splitlines() if line[0] != "#"
    ] == shown
    secret = tmp_path / "cluster.secret"
    secret.write_text("0123456789abcdef" * 2)
    secret.chmod(0o600)
    settings = tmp_path / "broker.properties"
    settings.write_text(
        block("properties", "listeners=CLIENTS").replace("/etc/ottla/tls", str(broker))
        + "node.id=1\nprocess.roles=broker\ncluster.id=c\ncontroller.quorum.voters=101@10.0.0.1:9093\n"
        + f"cluster.secret.file={secret}\nlog.dirs={tmp_path / 'data'}\n"
    )
    checked = run_ottla("config", "check", "-c", str(settings))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for listener in ("CLIENTS", "BROKERS"):
        (line,) = [text for text in checked.stdout.splitlines() if text.startswith(listener)]
        assert "CN=broker-1,OU=Ottla node for kafka1.example.com, 10.0.0.1" in line
    assert "certificate" not in "".join(re.findall("^remark: .*", checked.stdout, re.MULTILINE))
