"""Ottla's rules for Kerberos principals give the same names as Kafka's, over random rules and principals."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest

from ottla.dataplane.security.kerberos_mapping import KerberosMapping
from ottla.dataplane.security.principal_mapping import NoMatchingRule
from tests import java

pytestmark = [
    pytest.mark.java,
    java.needs_java,
    pytest.mark.skipif(shutil.which("javac") is None, reason="needs javac"),
]

CASES = 20_000
FORMATS = ["$1", "$1@$0", "$2;$1", "$1$0", "x", "", "$", "$3", "a$1b", "$12"]
PATTERNS = [".*", "a+", "[ab]*", ".*@R", "b|a", "a.?b*", "(", "[^a]*", r"\w+", "a{2}", ""]
REPLACEMENTS = ["", "x", "$0", "$1", "$2", r"\$", "$", "[$0]", "A"]
NAMES = ["a", "b", "ab", "aab", "Bob", "admin", ""]


def random_rule(chance: random.Random) -> str:
    if chance.random() < 0.05:
        return chance.choice(["DEFAULT", "default", "RULE:", "RULE:[1:$1", "DEFAULTx"])
    rule = f"RULE:[{chance.choice(['1', '1', '2', '2', '0', '3', '', '01'])}:{chance.choice(FORMATS)}]"
    if chance.random() < 0.5:
        rule += f"({chance.choice(PATTERNS)})"
    if chance.random() < 0.5:
        pattern = chance.choice([*PATTERNS, "(a)(b)?", "(.)", "b*"])
        rule += f"s/{pattern}/{chance.choice(REPLACEMENTS)}/{chance.choice(['', 'g'])}"
    return rule + chance.choice(["", "", "", "/L", "/U", "L", "U", "/", "x"])


def random_principal(chance: random.Random) -> str:
    host = f"/{chance.choice(NAMES)}" if chance.random() < 0.5 else ""
    return f"{chance.choice(NAMES)}{host}@{chance.choice(['R', 'R', 'S'])}"


def ours(rule: str, principal: str) -> str:
    try:
        mapping = KerberosMapping(rule, "R")
    except ValueError:
        return "rule"
    try:
        return f"name {mapping.name_of(principal)}"
    except NoMatchingRule:
        return "none"


def is_stricter(rule: str, principal: str, mine: str, answer: str) -> bool:
    """Return whether Ottla refuses for one of the known reasons although Kafka does not.

    Ottla refuses a replacement or format without a group at once, Kafka only when it applies it. Ottla also refuses an
    empty name.
    """
    if mine == "rule":
        return answer == "none" or (
            answer != "rule" and any(f"/${place}/" in rule for place in ("", "1", "2"))
        )
    return (mine, answer) == ("none", "name ")


def test_kafka_makes_the_same_names() -> None:
    chance = random.Random(1)
    cases = [(random_rule(chance), random_principal(chance)) for _ in range(CASES)]
    done = subprocess.run(
        java.compiled_command("KerberosNames"),
        input="".join(f"{rule}\t{principal}\n" for rule, principal in cases),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = done.stdout.splitlines()
    assert len(theirs) == len(cases)
    both = [(*case, ours(*case), answer) for case, answer in zip(cases, theirs, strict=True)]
    assert not [row for row in both if row[2] != row[3] and not is_stricter(*row)]
    named = sum(mine == answer and mine.startswith("name") for _, _, mine, answer in both)
    assert named > CASES / 20
    assert {mine.split()[0] for _, _, mine, _ in both} == {"name", "none", "rule"}
