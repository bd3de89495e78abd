"""`ottla profile`: named connection settings, so that commands need no flags for them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ...client.foreign_names import is_secret
from ..arguments.options import (
    Actions,
    CommandParser,
    add_connection,
    add_output,
    carry_out,
    command_parser,
)
from ..connection.passwords import password_of
from ..connection.precedence import PASSWORD_VARIABLE, check_pairs, foreign_properties
from ..connection.profiles import check_name, load, path_of, save
from ..failures import CommandFailed, UsageError
from ..terminal.output import none_of, print_json, print_table
from ..terminal.text import say

HIDDEN = "[hidden]"


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla profile`."""
    options = command_parser(
        f"ottla {name}",
        "Save connection settings of clusters, in a file that only you can read.",
        "  ottla profile create prod -b broker-1:9093 -X security.protocol=SSL -X ssl.ca.location=ca.pem\n"
        "  ottla profile use prod\n"
        "  ottla profile list",
    )
    actions = Actions(options, __package__ or "")
    create = actions.add(
        "create",
        "profile:create_profile",
        "Save -b and -X under a name. Asks for a password if there is a sasl.username.",
        "  ottla profile create prod -b broker-1:9093 -X security.protocol=SSL -X ssl.ca.location=ca.pem\n"
        "  ottla profile create lab -b h:9092 -X security.protocol=SASL_SSL -X sasl.mechanism=PLAIN "
        "-X sasl.username=ann",
    )
    create.add_argument("name", metavar="NAME")
    create.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help=f"file whose first line is sasl.password (default: {PASSWORD_VARIABLE}, else a prompt)",
    )
    create.add_argument("--replace", action="store_true", help="replace an existing profile of this name")
    add_connection(create)
    use = actions.add(
        "use",
        "profile:use_profile",
        "Choose the profile that commands use by default.",
        "  ottla profile use prod",
    )
    use.add_argument("name", metavar="NAME")
    listing = actions.add("list", "profile:list_profiles", "List profiles.", "  ottla profile list")
    add_output(listing, "-o")
    delete = actions.add(
        "delete", "profile:delete_profile", "Delete a profile.", "  ottla profile delete prod"
    )
    delete.add_argument("name", metavar="NAME")
    return options


run = carry_out


def create_profile(arguments: argparse.Namespace) -> None:
    """Save the connection flags of the command line as a named profile."""
    check_name(arguments.name)
    if arguments.command_config is not None or arguments.profile is not None:
        raise UsageError("profile create keeps -b and -X; it takes no --command-config and no --profile")
    path = path_of(os.environ)
    profiles = load(path)
    if arguments.name in profiles.settings and not arguments.replace:
        raise CommandFailed(f"profile {arguments.name!r} exists already; --replace replaces it")
    settings = foreign_properties(arguments.x or ())
    if arguments.bootstrap is not None:
        settings["bootstrap.servers"] = arguments.bootstrap
    if "sasl.username" in settings:
        user = settings["sasl.username"]
        settings["sasl.password"] = password_of(
            arguments.password_file, PASSWORD_VARIABLE, f"password of {user}"
        )
    elif arguments.password_file is not None:
        raise UsageError("--password-file needs -X sasl.username=NAME")
    for name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.crl.location"):
        if name in settings:
            settings[name] = str(Path(settings[name]).absolute())
    check_pairs(settings)
    profiles.settings[arguments.name] = settings
    save(profiles, path)
    say(f"profile {arguments.name} was saved in {path}")


def use_profile(arguments: argparse.Namespace) -> None:
    """Choose the default connection profile."""
    path = path_of(os.environ)
    profiles = load(path)
    profiles.of(arguments.name)
    profiles.chosen = arguments.name
    save(profiles, path)


def list_profiles(arguments: argparse.Namespace) -> None:
    """Print the connection profiles without their secrets."""
    profiles = load(path_of(os.environ))
    named = os.environ.get("OTTLA_PROFILE") or profiles.chosen
    if arguments.output == "json":
        print_json(
            [
                {"name": name, "used": name == named, "settings": _shown(settings)}
                for name, settings in sorted(profiles.settings.items())
            ]
        )
        return
    rows = [
        (
            "*" if name == named else "",
            name,
            settings.get("bootstrap.servers", "-"),
            settings.get("security.protocol", "PLAINTEXT"),
            settings.get("sasl.username", "-"),
        )
        for name, settings in sorted(profiles.settings.items())
    ]
    print_table(
        ("USED", "NAME", "BOOTSTRAP", "PROTOCOL", "USER"),
        rows,
        empty=f"{none_of('profiles')} 'ottla profile create' saves one.",
        wide=arguments.output == "wide",
    )


def delete_profile(arguments: argparse.Namespace) -> None:
    """Delete a profile."""
    path = path_of(os.environ)
    profiles = load(path)
    profiles.of(arguments.name)
    del profiles.settings[arguments.name]
    if profiles.chosen == arguments.name:
        profiles.chosen = None
    save(profiles, path)


def _shown(settings: dict[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_secret(name) else value for name, value in settings.items()}
