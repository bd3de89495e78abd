"""Principals and their text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.security.principal import ANONYMOUS, Principal


@given(st.text(st.characters(exclude_characters=":"), min_size=1), st.text())
def test_the_text_is_read_back(kind: str, name: str) -> None:
    principal = Principal(kind, name)
    assert Principal.parse(str(principal)) == principal


@pytest.mark.parametrize("text", ["", "ann", ":ann", ":"])
def test_what_has_no_type_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(ValueError, match="has to be of the form type:name, like User:ann"):
        Principal.parse(text)


def test_names_are_compared_letter_by_letter() -> None:
    assert Principal.parse("User:ANONYMOUS") == ANONYMOUS
    assert Principal.parse("User:anonymous") != ANONYMOUS != Principal.parse("user:ANONYMOUS")
    assert Principal.parse("User:CN=a,OU=b:c").name == "CN=a,OU=b:c"
