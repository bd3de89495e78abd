"""Rules that make a name of a subject, as Kafka's do."""

from __future__ import annotations

import pytest

from ottla.dataplane.security.principal_mapping import NoMatchingRule, PrincipalMapping

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("", DUKE, DUKE),
        ("DEFAULT", DUKE, DUKE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DUKE, "duke"),
        ("RULE:^CN=(.*?),.*$/$1@$2/U", DUKE, "DUKE@$2"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L , DEFAULT", DUKE, "duke@serviceusers"),
        ("RULE:^OU=.*$/other/, RULE:^CN=(.*?),.*$/$1/", DUKE, "Duke"),
        ("RULE:CN=Duke.*/one\\/two/", DUKE, "one/two"),
        ("RULE:CN=a\\/b/x/", "CN=a/b", "x"),
        ("RULE:^CN=(\\w+).*$/$12/", DUKE, "Duke2"),
        ("RULE:^CN=(\\w+).*$/\\$1/", DUKE, "$1"),
        ("RULE:^CN=(\\w+).*$/$0!/", "CN=a", "CN=a!"),
        ("RULE:.*/x/", "CN=a", "xx"),
        ("RULE:CN=(a)?b/[$1]/", "CN=b", "[]"),
    ],
)
def test_names(rules: str, subject: str, name: str) -> None:
    assert PrincipalMapping(rules).name_of(subject) == name


@pytest.mark.parametrize("subject", ["OU=x", "CN=Duke,OU=x", "x CN=Duke", "CN=Duke\n"])
def test_a_pattern_has_to_match_all_of_the_subject(subject: str) -> None:
    with pytest.raises(NoMatchingRule, match="no rule applies to"):
        PrincipalMapping("RULE:CN=[A-Za-z]+/x/").name_of(subject)


def test_subjects_are_bounded() -> None:
    with pytest.raises(NoMatchingRule, match="at most 4096"):
        PrincipalMapping("DEFAULT").name_of("C" * 4097)


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ("DEFAUL", "'DEFAUL' is no rule"),
        ("DEFAULT/L", "'DEFAULT/L' is no rule"),
        ("RULE:a/b", "is no rule"),
        ("RULE:a/b/X", "is no rule"),
        ("DEFAULT, RULE:a/b/LU", "'RULE:a/b/LU' is no rule"),
        ("RULE:(a/b/", "the pattern '[(]a' cannot be used"),
        ("RULE:[a&&b]/b/", "cannot be used"),
        ("RULE:a/$x/", "without the number of a group"),
    ],
)
def test_rules_that_cannot_be_read_are_named(rules: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"listener.name.x.ssl.principal.mapping.rules: .*{complaint}"):
        PrincipalMapping(rules, "listener.name.x.ssl.principal.mapping.rules")
