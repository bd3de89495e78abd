"""Commands of the console as text: quoted for a shell, with offsets by partition."""

from __future__ import annotations

import subprocess

import pytest

from ottla.client.records import TopicPartition
from ottla.console.commands import COMMAND_MAX, command, offset_words, option, quoted
from ottla.console.formats import shown
from ottla.console.key_values import set_and_unset
from ottla.console.pages.messages.sending import OneRecord


@pytest.mark.parametrize(
    "word",
    [
        "plain",
        "it's",
        '"$HOME" `id` \\',
        "a\nb\r\t\x1b[0m\x07",
        "\u202eb\u200f\u00a0\u00e9\u2028",
        "",
        "-",
        b"\xff\xfe1\xc3\xa9'",
        "\\x41",
    ],
)
def test_a_shell_reads_a_word_back_as_it_is(word: str | bytes) -> None:
    text = quoted(word)
    assert shown(text) == text, "a page shows it as it is"
    done = subprocess.run(["bash", "-c", f"printf '%s.' {text}"], capture_output=True, check=True, timeout=60)
    assert done.stdout == (word if isinstance(word, bytes) else word.encode()) + b"."


def test_names_that_look_like_options_come_last() -> None:
    assert command("topic", "trim", names=["a:0=1"], options=["--yes"]) == "ottla topic trim a:0=1 --yes"
    assert command("topic", "trim", names=["-a:0=1"], options=["--yes"]) == "ottla topic trim --yes -- -a:0=1"
    assert option("--user", "ann") == ["--user", "ann"]
    assert option("--user", "-ann") == ["--user=-ann"]


def test_offsets_by_partition() -> None:
    offsets = {TopicPartition("b", 0): 7}
    offsets |= {TopicPartition("a", index): 5 for index in (0, 2, 3, 4, 6)} | {TopicPartition("a", 1): 0}
    assert offset_words(offsets) == ["a:0,2-4,6=5", "a:1=0", "b:0=7"]
    assert offset_words({}) == []


def test_a_command_that_is_too_long_is_not_shown_in_part() -> None:
    offsets = {TopicPartition("t" * 200, index): index for index in range(1_000)}
    assert command("topic", "trim", names=offset_words(offsets)) == ""
    long = {"key": "v" * COMMAND_MAX, "gone": None}
    assert set_and_unset(["config"], [], long) == ""
    assert set_and_unset(["config"], [], {"gone": None}) == "ottla config unset gone"


def test_records_that_no_line_of_a_shell_can_have() -> None:
    assert (
        OneRecord(None, b"k", b"v", ()).command("t")
        == "printf %s v | ottla produce t /dev/stdin --whole-files --key=k"
    )
    for record in (
        OneRecord(None, b"k\0", b"v", ()),
        OneRecord(None, b"k", b"\0", ()),
        OneRecord(None, b"", None, ()),
        OneRecord(None, None, b"x" * COMMAND_MAX, ()),
    ):
        assert record.command("t") == ""
