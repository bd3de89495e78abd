"""JAAS texts: Kafka's usual ones are read, and the error names an unsupported part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.credentials.jaas import JaasMalformed, LoginModule, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_the_form_that_kafka_documents() -> None:
    text = f"""{PLAIN} required \\
      username="admin" password="admin-secret"
      user_admin="admin-secret" user_alice="al\\"ice\\\\";"""
    (module,) = parse_jaas(text.replace("\\\n", "\n"))
    assert (module.class_name, module.name, module.flag) == (PLAIN, "PlainLoginModule", "required")
    assert module.options == {
        "username": "admin",
        "password": "admin-secret",
        "user_admin": "admin-secret",
        "user_alice": 'al"ice\\',
    }


def test_several_modules_and_bare_values() -> None:
    first, second = parse_jaas("a.B requisite useKeyTab=true; a.C OPTIONAL;")
    assert first == LoginModule("a.B", "requisite", {"useKeyTab": "true"})
    assert second == LoginModule("a.C", "optional", {})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no login module"),
        ("a.B", "line 1, column 4: a control flag is missing"),
        ("a.B must x=1;", "there are required, requisite, sufficient, optional"),
        ("a.B required x=1", "an option of a.B or ';' is missing"),
        ("a.B required x 1;", "option 1 of a.B has no '='"),
        ("a.B required user=a password=my hunter2;", "option 3 of a.B has no '='"),
        ('a.B required x="1', "quote that never ends"),
        ('a.B required x=1 x="2";', "'x' of a.B stands twice"),
        ("a.B required\n  x=;", "line 2, column 5: the value of option 'x' is missing"),
        ("a.B required; =", "the class of a login module is missing"),
    ],
)
def test_malformed_texts_are_refused_where_they_break(text: str, complaint: str) -> None:
    with pytest.raises(JaasMalformed, match=complaint):
        parse_jaas(text)


def test_values_are_not_shown() -> None:
    (module,) = parse_jaas('a.B required password="geheim";')
    assert "geheim" not in repr(module)
    with pytest.raises(JaasMalformed) as caught:
        parse_jaas('a.B required password="geheim" =;')
    assert "geheim" not in str(caught.value)


@given(st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_.-]*", fullmatch=True), st.text(), max_size=5))
def test_quoted_values_are_read_as_they_were_written(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = " ".join(f"{key}={quoted(value)}" for key, value in options.items())
    (module,) = parse_jaas(f"{PLAIN} required {text};")
    assert module.options == options


@given(st.text(alphabet='aB.= ;"\\\n', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert parse_jaas(text)
    except JaasMalformed:
        pass
