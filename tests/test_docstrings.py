"""Docstrings and comments have one form: code in single backticks, errors in sentences ("Raises ValueError if ...").

Roles of Sphinx, double backticks and sections like `Raises:` say the same in another form.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.imports import FOLDERS, ROOT

OTHER_FORMS = {
    "a role": re.compile(r":[a-z]+:`"),
    "double backticks": re.compile(r"(?<!`)``(?!`)"),
    "a section": re.compile(r"^ *(Args|Arguments|Parameters|Raises|Returns|Yields):$", re.MULTILINE),
}

FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in (*FOLDERS, "benchmarks", "examples", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def test_docstrings_have_one_form() -> None:
    found = [f"{file}:{form}" for file in FILES for form in other_forms((ROOT / file).read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("See :class:`Core`.", "a role"),
        ("See ``Core``.", "double backticks"),
        ("Reads.\n\n    Raises:\n        ValueError: it is none.", "a section"),
        ("Reads `Core`. Raises ValueError if it is none.", None),
    ],
)
def test_other_forms_are_found(said: str, found: str | None) -> None:
    expected = [] if found is None else [f"1: {found}"]
    assert other_forms(f'"""{said}"""\n') == expected
    if "\n" not in said:
        assert other_forms(f"# {said}\n") == expected


def other_forms(source: str) -> list[str]:
    """Return the lines where docstrings or comments use another form, each with the name of the form."""
    return [
        f"{line}: {form}"
        for line, text in sorted(_told(source))
        for form, pattern in OTHER_FORMS.items()
        if pattern.search(text)
    ]


def _told(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, including attribute docstrings, and the comments, each with its line."""
    if not any(pattern.search(source.replace('"""', "   ")) for pattern in OTHER_FORMS.values()):
        return  # Parsing and tokenizing take much longer than a search of the plain source.
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
