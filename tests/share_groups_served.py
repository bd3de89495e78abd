"""Nodes that serve share groups, while the program itself does not yet.

python -m tests.share_groups_served up --data /tmp/cluster
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.protocol import features

if TYPE_CHECKING:
    from ottla.testing.processes import Process

ROOT = Path(__file__).resolve().parents[1]


def serve_share_groups() -> None:
    """Change this process, before it has loaded the settings of share groups."""
    if features.SHARE_SERVED:
        return
    assert "ottla.protocol.settings.config_share" not in sys.modules
    features.SHARE_SERVED = features.SHARE_GROUPS  # type: ignore[misc]
    features.OURS = (*features.OURS, features.SHARE)  # type: ignore[misc]
    feature = features.Feature(features.SHARE, 0, features.SHARE_GROUPS, 0)
    features.FEATURES = {**features.FEATURES, features.SHARE: feature}


def with_share_groups(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int) -> Process:
    """Start a process of `ottla`, whose nodes serve share groups."""
    from ottla.testing.processes import executed

    path = os.pathsep.join([str(cwd), str(ROOT), env.get("PYTHONPATH", "")])
    python, module, program, *words = argv
    assert (module, program) == ("-m", "ottla")
    return executed(
        [python, "-m", "tests.share_groups_served", *words],
        cwd=cwd,
        env={**env, "PYTHONPATH": path},
        output=output,
    )


if __name__ == "__main__":
    serve_share_groups()
    from ottla.cli.main import main

    sys.exit(main(sys.argv[1:]))
