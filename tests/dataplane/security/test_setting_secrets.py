"""Secrets among the settings of brokers: sealed for one broker and one setting, and opened for no other."""

from __future__ import annotations

import pytest

from ottla.dataplane.security.sealing import Sealer
from ottla.dataplane.security.setting_secrets import SettingSecrets
from ottla.protocol.credentials.sealed_text import sealed_bytes
from ottla.protocol.settings.config_key import ConfigError

OLD, NEW = b"old secret " * 4, b"new secret " * 4
SECRETS = SettingSecrets(Sealer([OLD]))
KEY, OTHER = "listener.name.a.ssl.key.password", "listener.name.b.ssl.key.password"


def test_a_secret_is_sealed_for_one_broker_and_one_setting() -> None:
    kept = SECRETS.seal("1", KEY, "hünter2")
    assert "nter2" not in kept
    assert sealed_bytes(kept) is not None
    assert SECRETS.open("1", KEY, kept) == "hünter2"
    for broker, name in (("2", KEY), ("1", OTHER), ("", KEY)):
        with pytest.raises(
            ConfigError, match=f"{name} cannot be read, set it again: .*belongs to something else"
        ):
            SECRETS.open(broker, name, kept)


def test_other_settings_are_as_they_are() -> None:
    assert SECRETS.seal("1", "log.segment.bytes", "5") == "5"
    assert SECRETS.open("1", "log.segment.bytes", "5") == "5"
    looks_sealed = SECRETS.seal("1", KEY, "x")
    assert SECRETS.open("1", "broker.rack", looks_sealed) == looks_sealed


def test_a_secret_whose_key_is_gone_is_named() -> None:
    kept = SECRETS.seal("1", KEY, "x")
    assert SettingSecrets(Sealer([NEW, OLD])).open("1", KEY, kept) == "x"
    with pytest.raises(ConfigError, match=f"{KEY} cannot be read, set it again"):
        SettingSecrets(Sealer([NEW])).open("1", KEY, kept)


@pytest.mark.parametrize("text", ["", "x", "sealed:", "sealed:???", "sealed:AAA"])
def test_what_is_not_sealed(text: str) -> None:
    assert sealed_bytes(text) is None
