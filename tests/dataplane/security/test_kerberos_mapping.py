"""Rules that make a name of a Kerberos principal, as Kafka's do."""

from __future__ import annotations

import pytest

from ottla.dataplane.security.kerberos_mapping import KerberosMapping
from ottla.dataplane.security.principal_mapping import NoMatchingRule

REALM = "FIRM.TEST"


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        ("", f"ann@{REALM}", "ann"),
        ("DEFAULT", f"ann/host.firm.test@{REALM}", "ann"),
        ("RULE:[1:$1@$0](.*@OTHER.TEST)s/@.*//,DEFAULT", "bob@OTHER.TEST", "bob"),
        ("RULE:[1:$1@$0](.*@OTHER.TEST)s/@.*// , DEFAULT", f"bob@{REALM}", "bob"),
        ("RULE:[2:$1;$2](^.*;admin$)s/;admin$//", f"ops/admin@{REALM}", "ops"),
        ("RULE:[2:$2.$1]/U", f"ops/admin@{REALM}", "ADMIN.OPS"),
        ("RULE:[1:$1]L", f"Ann@{REALM}", "ann"),
        ("RULE:[1:$1](.*)s/a/b/", f"aaa@{REALM}", "baa"),
        ("RULE:[1:$1](.*)s/a/b/g", f"aaa@{REALM}", "bbb"),
        ("RULE:[1:$1](.*)s/a/b/g/U", f"aaa@{REALM}", "BBB"),
        ("RULE:[1:$1]s/(a)(b)/$2$1/", f"abc@{REALM}", "bac"),
        ("RULE:[1:$1](a{1,2})", f"aa@{REALM}", "aa"),
        ("RULE:[1:x]", f"ann@{REALM}", "x"),
        ("RULE:[3:$3],RULE:[1:$1]", f"ann@{REALM}", "ann"),
    ],
)
def test_names(rules: str, principal: str, name: str) -> None:
    assert KerberosMapping(rules, REALM).name_of(principal) == name


@pytest.mark.parametrize(
    ("rules", "principal", "complaint"),
    [
        ("DEFAULT", "bob@OTHER.TEST", r"no rule applies to 'bob@OTHER.TEST', .* the default realm is 'FIRM"),
        ("RULE:[2:$1]", f"ann@{REALM}", "no rule applies"),
        ("RULE:[1:$1](an)", f"ann@{REALM}", "no rule applies"),
        ("RULE:[1:$1@$0],DEFAULT", f"ann@{REALM}", "make 'ann@FIRM.TEST' of .*: a short name has"),
        ("RULE:[1:$1]s/.*//", f"ann@{REALM}", "make '' of"),
        ("DEFAULT", f"/host@{REALM}", "make '' of"),
        ("DEFAULT", f"a/b/c@{REALM}", "is not of the form NAME@REALM"),
        ("DEFAULT", "ann", "is not of the form NAME@REALM"),
        ("DEFAULT", rf"a\/b@{REALM}", "is not of the form"),
        ("RULE:[1:$1](.*)", f"a\n@{REALM}", "is not of the form"),
        ("DEFAULT", "a" * 2000 + f"@{REALM}", "a principal of 2010 characters, at most 1024"),
    ],
)
def test_who_is_not_let_in(rules: str, principal: str, complaint: str) -> None:
    with pytest.raises(NoMatchingRule, match=complaint):
        KerberosMapping(rules, REALM).name_of(principal)


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ("default", "'default' is no rule: allowed are DEFAULT and RULE:"),
        ("DEFAULT,RULE:[1:$1", r"'RULE:\[1:\$1' is no rule"),
        ("RULE:[:$1]", "is no rule"),
        ("RULE:[1:$1]X", "is no rule"),
        ("RULE:[1:$1](a)(b)", "is no rule"),
        ("RULE:[1:$1](()", r"the pattern '\(' cannot be used"),
        ("RULE:[1:$1]s/[/x/", r"the pattern '\[' cannot be used"),
        ("RULE:[1:$2]", r"has \$2: a principal of 1 components has \$0, its realm, to \$1"),
        ("RULE:[1:$]", r"has \$: a principal"),
        ("RULE:[1:$1]s/a/$1/", r"the replacement '\$1' has \$1, and the pattern 'a' has 0 groups"),
        ("RULE:[1:$1]s/a/$/", r"has a \$ without the number"),
    ],
)
def test_rules_that_cannot_be_read_are_named(rules: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=rf"^sasl\.kerberos\.principal\.to\.local\.rules: .*{complaint}"):
        KerberosMapping(rules, REALM)
