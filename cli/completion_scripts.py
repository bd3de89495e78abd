"""Completion scripts for shells, from a tree of words. Pure: parsers in, text out."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its flags, what it is about, the values it takes (empty: any), and whether it takes one."""

    flags: tuple[str, ...]
    about: str
    choices: tuple[str, ...]
    takes_value: bool


@dataclass(frozen=True, slots=True)
class Word:
    """A command or action, its options, what may follow it."""

    name: str
    about: str
    options: tuple[Option, ...]
    following: tuple[Word, ...]
    choices: tuple[str, ...] = ()
    """Values of its first argument, where they are fixed."""


def words_of(name: str, parser: argparse.ArgumentParser, about: str | None = None) -> Word:
    """The tree of one command."""
    options: list[Option] = []
    following: list[Word] = []
    choices: tuple[str, ...] = ()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            abouts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            following += [words_of(key, one, abouts.get(key, "")) for key, one in action.choices.items()]
        elif action.option_strings:
            values = tuple(str(value) for value in action.choices or ())
            text = "" if action.help in (None, argparse.SUPPRESS) else (action.help or "").replace("%%", "%")
            options.append(Option(tuple(action.option_strings), text, values, action.nargs != 0))
        elif action.choices and not choices:
            choices = tuple(str(value) for value in action.choices)
    what = (parser.description or "") if about is None else about
    return Word(name, what, tuple(options), tuple(following), choices)


def bash(words: Sequence[Word]) -> str:
    """For bash: one function with the words of each place in a case statement; files where nothing is offered."""
    return f"""# bash completion for ottla
_ottla() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" place="" offered="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
{_places(words)}
    done
{_offers(words)}
    if [ -n "$offered" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$offered" -- "$current")
    fi
}}
complete -o default -F _ottla ottla
"""


def zsh(words: Sequence[Word]) -> str:
    """For zsh: the same function; it works from a folder in fpath and when sourced."""
    return f"""#compdef ottla
_ottla() {{
    local previous="${{words[CURRENT-1]}}" place="" offered="" word
    for word in "${{(@)words[2,CURRENT-1]}}"; do
{_places(words)}
    done
{_offers(words)}
    if [ -n "$offered" ]; then
        compadd -- ${{=offered}}
    else
        _files
    fi
}}
if [ "$funcstack[1]" = "_ottla" ]; then
    _ottla "$@"
else
    compdef _ottla ottla
fi
"""


def _places(words: Sequence[Word]) -> str:
    """Shell: go on to where `$word` leads from `$place`, if it leads anywhere."""
    known = "|".join(f'"{place}"' for place, _ in _walk(words))
    return f"""        case "${{place:+$place }}$word" in
        {known}) place="${{place:+$place }}$word" ;;
        esac"""


def _offers(words: Sequence[Word]) -> str:
    """Shell: what may stand at `$place`, or behind an option there that takes a value."""
    cases = [f'        "") offered="{" ".join(word.name for word in words)} --help" ;;']
    values = []
    for place, word in _walk(words):
        flags = [flag for option in word.options for flag in option.flags]
        offered = [one.name for one in word.following] + [*word.choices, *flags]
        cases.append(f'        "{place}") offered="{" ".join(offered)}" ;;')
        for option in word.options:
            if option.takes_value:
                pattern = "|".join(f'"{place} {flag}"' for flag in option.flags)
                values.append(f'        {pattern}) offered="{" ".join(option.choices)}" ;;')
    lines = [
        '    case "$place" in',
        *cases,
        "    esac",
        '    case "$place $previous" in',
        *values,
        "    esac",
    ]
    return "\n".join(lines)


def fish(words: Sequence[Word]) -> str:
    """For fish: a line for each word and option, each under the condition that it fits there."""
    lines = ["# fish completion for ottla", "complete -c ottla -f"]
    lines += [
        f"complete -c ottla -n __fish_use_subcommand -a {word.name} -d {_quoted(word.about)}"
        for word in words
    ]
    for path, word in _walk(words):
        seen = " ; and ".join(f"__fish_seen_subcommand_from {part}" for part in path.split())
        if word.following:
            others = " ".join(one.name for one in word.following)
            here = f"{seen} ; and not __fish_seen_subcommand_from {others}"
            lines += [
                f"complete -c ottla -n {_quoted(here)} -a {one.name} -d {_quoted(one.about)}"
                for one in word.following
            ]
        if word.choices:
            lines.append(f"complete -c ottla -n {_quoted(seen)} -a {_quoted(' '.join(word.choices))}")
        for option in word.options:
            lines.append(_fish_option(seen, option))
    return "\n".join(lines) + "\n"


def _fish_option(seen: str, option: Option) -> str:
    flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
    value = (
        f" -x -a {_quoted(' '.join(option.choices))}"
        if option.choices
        else " -r"
        if option.takes_value
        else ""
    )
    return f"complete -c ottla -n {_quoted(seen)} {flags}{value} -d {_quoted(option.about)}"


def _walk(words: Sequence[Word], before: str = "") -> list[tuple[str, Word]]:
    found: list[tuple[str, Word]] = []
    for word in words:
        path = f"{before} {word.name}".strip()
        found += [(path, word), *_walk(word.following, path)]
    return found


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: dict[str, Callable[[Sequence[Word]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
