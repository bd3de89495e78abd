"""Settings of the authorizer: an invalid one prevents a node's start."""

from __future__ import annotations

import pytest

from ottla.protocol.cluster.authorizer_settings import STANDARD_AUTHORIZER, AuthorizerSettings
from ottla.protocol.settings.config_key import ConfigError


def test_without_a_class_there_is_no_authorizer() -> None:
    assert AuthorizerSettings.from_properties({}) is None
    assert AuthorizerSettings.from_properties({"authorizer.class.name": " ", "super.users": "User:a"}) is None


def test_super_users_stand_with_semicolons_between() -> None:
    found = AuthorizerSettings.from_properties(
        {
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:CN=a,O=b; User:c;",
            "allow.everyone.if.no.acl.found": "TRUE",
        }
    )
    assert found == AuthorizerSettings(frozenset({"User:CN=a,O=b", "User:c"}), open_without_acls=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
        ("super.users", "ann"),
        ("allow.everyone.if.no.acl.found", "maybe"),
    ],
)
def test_what_is_wrong_is_named(key: str, value: str) -> None:
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER, key: value}
    with pytest.raises(ConfigError, match=key) as caught:
        AuthorizerSettings.from_properties(properties)
    assert value in str(caught.value)
