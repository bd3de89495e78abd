"""franz-go's own tests of share groups, unmodified."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cluster import RunningCluster
from tests.integration.foreign_builds import franz_tests, needs_go
from tests.programs.clients import cluster as cluster

pytestmark = [needs_go, pytest.mark.timeout(600)]
TESTS = {"TestShareGroupETL", "TestShareGroupAckOnClose", "TestShareGroupOffsetsAdmin"}
RECORDS = 20_000
_PASSED = re.compile(r"^--- PASS: (\w+)", re.MULTILINE)


def test_share_groups(cluster: RunningCluster, tmp_path: Path) -> None:
    settings = {"KGO_SEEDS": cluster.bootstrap, "KGO_TEST_RECORDS": str(RECORDS), "KGO_LOG_LEVEL": "none"}
    done = subprocess.run(
        [franz_tests(), "-test.v", "-test.run", f"^({'|'.join(sorted(TESTS))})$"],
        cwd=tmp_path,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert set(_PASSED.findall(done.stdout)) == TESTS
