"""Shell commands of `ottla` that make the same change or query as a page of the console. Pure.

Any client can choose names: so each word is quoted, and no name can pass for an option.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from ..client.records import TopicPartition

COMMAND_MAX: Final = 64 * 1024
"""The most characters of a shown command; a longer one does not suit a terminal."""


def command(
    *words: str,
    names: Sequence[str] = (),
    options: Sequence[str | bytes] = (),
    given: str | bytes | None = None,
) -> str:
    """Return the line `ottla WORDS NAMES OPTIONS`; empty if it has more than COMMAND_MAX characters.

    Names that look like options come last, after `--`. The command gets the text `given` on its standard input.
    """
    has_options = any(name.startswith("-") for name in names)
    rest = (*options, "--", *names) if has_options else (*names, *options)
    line = " ".join(map(quoted, ("ottla", *words, *rest)))
    if given is not None:
        line = f"printf %s {quoted(given)} | {line}"
    return line if len(line) <= COMMAND_MAX else ""


def option(flag: str, value: str) -> list[str]:
    """Return an option with its value, in one word if the value looks like an option itself."""
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]


def quoted(word: str | bytes) -> str:
    """Return a word quoted for a shell, which reads it back unchanged.

    Unprintable characters, and bytes that are no text, are escaped in the syntax of bash and zsh. A page could not show
    them, and a terminal could obey them.
    """
    text = word if isinstance(word, str) else word.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def offset_words(offsets: Mapping[TopicPartition, int]) -> list[str]:
    """Return offsets by partition in the syntax of the command line: `orders:0,2-4=50`."""
    partitions: dict[tuple[str, int], list[int]] = {}
    for partition, offset in sorted(offsets.items()):
        partitions.setdefault((partition.topic, offset), []).append(partition.partition)
    return [f"{topic}:{ranges(indexes)}={offset}" for (topic, offset), indexes in partitions.items()]


def ranges(indexes: Iterable[int]) -> str:
    """Format ascending partition numbers as ranges: `0,2-4`."""
    ordered = list(indexes)
    begins = [0, *(place for place, (index, other) in enumerate(pairwise(ordered), 1) if other > index + 1)]
    spans = [ordered[begin:end] for begin, end in pairwise([*begins, len(ordered)])]
    return ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
