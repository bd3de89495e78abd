"""Kafka's own tools on a secured cluster of Apache Kafka: its answers equal those of Ottla's brokers to the same
scenes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import java
from tests.compat.secured import PASSWORD, USER, secured_kafka
from tests.integration.secured_tools import SCENES, SecuredShell, client_config


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredShell]:
    """Return an administrator's shell."""
    folder = tmp_path_factory.mktemp("tools")
    with (
        secured_kafka(folder, {"super.users": f"User:ANONYMOUS;User:{USER}"}) as kafka,
        java.Tools() as tools,
    ):
        config = client_config(folder / "admin.properties", USER, PASSWORD, kafka.authority.file)
        yield SecuredShell(tools, kafka.cluster.listeners["SASL_SSL"], config)


@pytest.mark.parametrize("scene", SCENES)
def test_an_administrator(scene: Callable[[SecuredShell], None], shell: SecuredShell) -> None:
    scene(shell)
