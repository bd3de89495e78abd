"""Docstrings in words that a new reader understands without the code.

A docstring that begins with a question word, a fragment without a noun, and a sentence of pronouns do not name their
subject. The limits are shares, since a few such sentences are good English.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.imports import FOLDERS, ROOT

QUESTION = re.compile(r"^(What|Who|Whether|How|Where|Whose|When|Which|That|Those|Whoever)\b")
FRAGMENT = re.compile(r"^(Of|From|In|By|With|Behind|Instead|As|The same)\b")
PRONOUNS = re.compile(
    r"\b(who|what|whoever|whatever|that|those|one|ones|others|it|which|whose|these|them|there|so|as)\b",
    re.IGNORECASE,
)
PRIVATE = re.compile(r"\b(whoever|nobody|anew|of ours|of its own|so many|for so long)\b", re.IGNORECASE)
SENTENCE_WORDS_MIN = 6
PRONOUN_SHARE = 0.25


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each docstring of the repository, attribute docstrings included."""
    for folder in (*FOLDERS, "benchmarks", "examples", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                    continue
                for statement in node.body:
                    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                        text = statement.value.value
                        if isinstance(text, str):
                            place = f"{path.relative_to(ROOT)}:{statement.lineno}"
                            yield place, " ".join(text.split())


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    return list(docstrings())


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
