"""The code of versions of the past, out of the history of this repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.faults.node_cluster import ROOT

BEFORE_SECURITY = "7333cd2"
"""The last commit whose brokers know no listener but PLAINTEXT, no user and no ACL."""
BEFORE_TOKENS = "b099408"
"""The last commit with users and ACLs that knows no delegation token: ottla.security.version has one level."""


def code_of(commit: str, folder: Path) -> Path:
    """Unpack a version there. Skips the test where the history is not at hand."""
    known = subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False
    )
    if known.returncode:
        pytest.skip(f"needs commit {commit}, which a shallow clone or an archive of the sources has not")
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder
