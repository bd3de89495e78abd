"""Docstrings and names in words that a new reader understands without the code.

A docstring that begins with a question word, a fragment without a noun, and a sentence of pronouns do not name their
subject. The limits are shares, since a few such sentences are good English.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.imports import FOLDERS, ROOT, parsed

QUESTION = re.compile(r"^(What|Who|Whether|How|Where|Whose|When|Which|That|Those|Whoever)\b")
FRAGMENT = re.compile(r"^(Of|From|In|By|With|Behind|Instead|As|The same)\b")
PRONOUNS = re.compile(
    r"\b(who|what|whoever|whatever|that|those|one|ones|others|it|which|whose|these|them|there|so|as)\b",
    re.IGNORECASE,
)
PRIVATE = re.compile(r"\b(whoever|nobody|anew|of ours|of its own|so many|for so long)\b", re.IGNORECASE)
TEMPLATE_LOOP = re.compile(r"\{%-?\s*for\s[^%]*\bone\b[^%]*\sin\s[^%]*%\}")
SENTENCE_WORDS_MIN = 6
PRONOUN_SHARE = 0.25


class Words(NamedTuple):
    """The checked words of a file, each with its line."""

    docstrings: list[tuple[int, str]]
    element_names: list[tuple[int, str]]


@cache
def words() -> dict[Path, Words]:
    """Return the words of the repository's Python files, by their paths from the root. The syntax trees are dropped."""
    found = {}
    for folder in (*FOLDERS, "benchmarks", "examples", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            nodes = list(ast.walk(parsed(path)))
            found[path.relative_to(ROOT)] = Words(list(docstrings(nodes)), list(element_names(nodes)))
    return found


def docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, attribute docstrings included."""
    for node in nodes:
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for statement in node.body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str):
                    yield statement.lineno, " ".join(text.split())


def element_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each variable of a loop or comprehension, and of each parameter of a lambda."""
    for node in nodes:
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            for target in ast.walk(node.target):
                if isinstance(target, ast.Name):
                    yield target.lineno, target.id
        elif isinstance(node, ast.Lambda):
            parameters = node.args
            for parameter in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
                yield parameter.lineno, parameter.arg


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    return [(f"{path}:{line}", text) for path, found in words().items() for line, text in found.docstrings]


def sentences(text: str) -> list[str]:
    """Return the sentences that are long enough to count pronouns in."""
    return [part for part in re.split(r"(?<=[.!?])\s+", text) if len(part.split()) >= SENTENCE_WORDS_MIN]


def is_made_of_pronouns(sentence: str) -> bool:
    return len(PRONOUNS.findall(sentence)) / len(sentence.split()) >= PRONOUN_SHARE


def begins_with_a_question(text: str) -> bool:
    return QUESTION.match(text) is not None


def is_a_fragment(text: str) -> bool:
    return FRAGMENT.match(text) is not None


@pytest.mark.parametrize(
    ("fault", "limit"),
    [(begins_with_a_question, 0.01), (is_a_fragment, 0.005)],
    ids=lambda value: str(value)[:30],
)
def test_docstrings_name_their_subject(
    texts: list[tuple[str, str]], fault: Callable[[str], bool], limit: float
) -> None:
    found = [f"{place}: {text[:110]}" for place, text in texts if fault(text)]
    assert len(found) <= limit * len(texts), "\n".join(found)


def test_sentences_name_things_instead_of_pronouns(texts: list[tuple[str, str]]) -> None:
    every = [(place, sentence) for place, text in texts for sentence in sentences(text)]
    found = [f"{place}: {sentence[:110]}" for place, sentence in every if is_made_of_pronouns(sentence)]
    assert len(found) <= 0.01 * len(every), "\n".join(found)


def test_docstrings_use_the_words_of_the_field(texts: list[tuple[str, str]]) -> None:
    found = [f"{place}: {text[:110]}" for place, text in texts if PRIVATE.search(text)]
    assert len(found) <= 0.005 * len(texts), "\n".join(found)


def test_loop_variables_are_nouns() -> None:
    """`one` says nothing of the element: `for topic in topics` does."""
    found = [
        f"{path}:{line}: {name}"
        for path, words_of_file in words().items()
        for line, name in words_of_file.element_names
        if name == "one"
    ]
    found += [
        f"{path.relative_to(ROOT)}: {loop.group()}"
        for path in sorted((ROOT / "console" / "templates").glob("*.html"))
        for loop in TEMPLATE_LOOP.finditer(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("for one, (other, *rest) in pairs: pass", {"one", "other", "rest"}),
        (
            "[len(one) for one in sorted(texts, key=lambda text, /, at=0, *, by=1: text)]",
            {"one", "text", "at", "by"},
        ),
        ("one = next(iter(topics))", set()),
    ],
)
def test_names_of_elements_are_found(text: str, names: set[str]) -> None:
    assert {name for _, name in element_names(ast.walk(ast.parse(text)))} == names


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        ("Return the topic if its leader epochs still equal the checked ones.", True),
        ("What is automatic commits what is finished.", False),
        ("Of one group.", False),
    ],
)
def test_the_counts_tell_plain_words_from_others(text: str, is_plain: bool) -> None:
    assert (not begins_with_a_question(text) and not is_a_fragment(text)) is is_plain


def test_pronouns_are_counted_by_sentence() -> None:
    assert is_made_of_pronouns("As it is, if it is as it was looked at.")
    assert not is_made_of_pronouns("Return the leaders of these partitions.")
