"""The pages of docs/reference/ are those that the code makes, and everything in them has a type and a meaning."""

from __future__ import annotations

import re

import pytest

from ottla.client.admin.options import ADMIN_OPTIONS
from ottla.client.consuming.options import CONSUMER_OPTIONS
from ottla.client.declared_options import DeclaredOption
from ottla.client.exactly_once.options import EXACTLY_ONCE_OPTIONS
from ottla.client.producing.options import PRODUCER_OPTIONS
from ottla.client.sharing.options import SHARE_OPTIONS
from ottla.client.worker.options import WORKER_OPTIONS
from ottla.spark_integration.options import OptionRow
from ottla.spark_integration.sink import options as sink
from ottla.spark_integration.source import option_table
from tests import render_reference
from tests.reference import command_line

CLIENT_OPTIONS = {
    *PRODUCER_OPTIONS,
    *CONSUMER_OPTIONS,
    *ADMIN_OPTIONS,
    *EXACTLY_ONCE_OPTIONS,
    *WORKER_OPTIONS,
    *SHARE_OPTIONS,
}
SENTENCE = re.compile(r"[A-Z].*\.", re.DOTALL)
SIZES = re.compile(r"_(bytes|memory|size)(_max)?$|^(batch|buffer|max_request)_")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return render_reference.render()


def test_pages_are_up_to_date(pages: dict[str, str]) -> None:
    written = {path.name: path.read_text() for path in render_reference.FOLDER.glob("*.md")}
    stale = sorted(name for name in {*pages, *written} if pages.get(name) != written.get(name))
    assert not stale, "run: make reference"


@pytest.mark.parametrize(
    "option", sorted(CLIENT_OPTIONS, key=lambda option: option.name), ids=lambda option: option.name
)
def test_client_options_have_type_unit_and_meaning(option: DeclaredOption) -> None:
    assert option.type_text
    assert SENTENCE.fullmatch(option.meaning), "write the meaning in the option's declaration"
    assert bool(option.unit) or not SIZES.search(option.name), "name the unit: bytes"


@pytest.mark.parametrize("row", [*option_table.OPTIONS, *sink.OPTIONS], ids=lambda row: row.name)
def test_options_of_spark_have_type_and_meaning(row: OptionRow) -> None:
    assert row.type
    assert SENTENCE.fullmatch(row.meaning)


def test_options_of_commands_have_a_meaning() -> None:
    silent = [
        f"{action.words} {option}"
        for command in command_line.commands()
        for action in command.all()
        for option, meaning in action.options
        if not meaning
    ]
    assert not silent, "give help= to the argument"


def test_every_command_and_action_is_on_the_page(pages: dict[str, str]) -> None:
    words = [action.words for command in command_line.commands() for action in command.all()]
    assert len(words) > 70
    headings = re.findall(r"^#+ (ottla .*)$", pages["command-line.md"], re.MULTILINE)
    assert headings == words


def test_every_page_is_in_the_index(pages: dict[str, str]) -> None:
    linked = re.findall(r"\]\(([a-z-]+\.md)\)", pages["README.md"])
    assert sorted(linked) == sorted(pages.keys() - {"README.md"})


def test_pages_do_not_depend_on_the_terminal(pages: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "33")
    assert render_reference.render() == pages
