"""The commands for certificates in docs/OPERATIONS.md, run as they stand there, and the listeners beside them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.commands import run_ottla

PAGE = Path(__file__).resolve().parents[2] / "docs" / "OPERATIONS.md"


def block(kind: str, begins: str) -> str:
    found = re.search(rf"^```{kind}\n({begins}.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, begins
    return found[1]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_broker_would_start_with_the_certificates_that_the_page_makes(tmp_path: Path) -> None:
    subprocess.run(["bash", "-e"], cwd=tmp_path, input=block("", "openssl genpkey"), text=True, check=True)
    secret = tmp_path / "cluster.secret"
    secret.write_text("0123456789abcdef" * 2)
    secret.chmod(0o600)
    settings = tmp_path / "broker.properties"
    settings.write_text(
        block("properties", "listeners=CLIENTS").replace("/etc/ottla/tls", str(tmp_path))
        + "node.id=1\nprocess.roles=broker\ncluster.id=c\ncontroller.quorum.voters=101@10.0.0.1:9093\n"
        + f"cluster.secret.file={secret}\nlog.dirs={tmp_path / 'data'}\n"
    )
    checked = run_ottla("config", "check", "-c", str(settings))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for listener in ("CLIENTS", "BROKERS"):
        (line,) = [one for one in checked.stdout.splitlines() if one.startswith(listener)]
        assert "CN=broker-1,O=Example for kafka1.example.com, 10.0.0.1" in line
    assert "certificate" not in "".join(re.findall("^remark: .*", checked.stdout, re.MULTILINE))
