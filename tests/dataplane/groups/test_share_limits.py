"""The settings of share groups that their coordinator reads."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.dataplane.groups import settings
from ottla.dataplane.groups.limits import ShareGroupLimits
from ottla.protocol.settings.config_key import ConfigError
from ottla.protocol.settings.config_share import share_settings

SERVED = {key.name: key for key in share_settings(1).nodes}


@pytest.fixture
def _keys_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "NODE_KEYS", SERVED)


@pytest.mark.usefixtures("_keys_are_declared")
def test_the_defaults_are_those_of_the_declared_keys() -> None:
    defaults: dict[str, Any] = {name: key.default for name, key in SERVED.items()}
    assert settings.share_group_limits(defaults) == settings.share_group_limits({}) == ShareGroupLimits()


@pytest.mark.usefixtures("_keys_are_declared")
def test_settings_are_read_and_checked_together() -> None:
    limits = settings.share_group_limits(
        {"group.share.max.size": "7", "group.share.session.timeout.ms": "50000"}
    )
    assert (limits.max_size, limits.session_timeout_ms) == (7, 50_000)
    with pytest.raises(ConfigError, match=r"group\.share\.session\.timeout\.ms is 1: .* from 45000 to 60000"):
        settings.share_group_limits({"group.share.session.timeout.ms": "1"})
    with pytest.raises(ConfigError, match=r"group\.share\.max\.size"):
        settings.share_group_limits({"group.share.max.size": "1001"})


def test_keys_that_are_not_declared_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "NODE_KEYS", {})
    assert settings.share_group_limits({"group.share.max.size": "7"}) == ShareGroupLimits()
