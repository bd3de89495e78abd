"""`ottla config check`: reports how a node's file secures the node, before the node is started."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..failures import CommandFailed
from ..terminal.output import print_json, print_table
from ..terminal.text import say

if TYPE_CHECKING:
    from ..nodes.configuration_report import CertificateReport, ConfigurationReport, ListenerReport


def check(arguments: argparse.Namespace) -> None:
    """Print the report on a node's security by its settings file.

    Raises CommandFailed with the error that the node's start would raise.
    """
    from ...protocol.settings.config_fields import default_text
    from ..nodes.configuration_report import report_of
    from ..nodes.node import node_settings

    try:
        settings = node_settings(arguments.config, arguments.set)
        roles = settings.values.get("process.roles", default_text("process.roles"))
        role = arguments.role or ("broker" if "broker" in roles else "quorum")
        report = report_of(role, settings, datetime.now(UTC))
    except CommandFailed as error:
        if arguments.output == "json":
            print_json({"starts": False, "problem": str(error)})
        raise
    if arguments.output == "json":
        print_json({"starts": True} | asdict(report))
        return
    _print(report, is_wide=arguments.output == "wide")


def _print(report: ConfigurationReport, *, is_wide: bool) -> None:
    print_table(
        (
            "LISTENER",
            "ADDRESS",
            "ADVERTISED",
            "PROTOCOL",
            "LOGINS",
            "CLIENT CERTIFICATES",
            "CERTIFICATE",
            "EXPIRES",
        ),
        [_row(listener) for listener in report.listeners],
        spare=("EXPIRES", "ADVERTISED", "CLIENT CERTIFICATES"),
        wide=is_wide,
    )
    for line in _lines(report):
        say(line)


def _row(listener: ListenerReport) -> tuple[str, ...]:
    certificate = listener.certificate
    return (
        f"{listener.name} (brokers, too)" if listener.between_brokers else listener.name,
        listener.address,
        listener.advertised or "-",
        listener.protocol,
        ", ".join(f"{mechanism.name}: {mechanism.users}" for mechanism in listener.mechanisms) or "-",
        listener.client_certificates or "-",
        "-" if certificate is None else _whose(certificate),
        "-" if certificate is None else certificate.expires,
    )


def _whose(certificate: CertificateReport) -> str:
    return f"{certificate.subject} for {', '.join(certificate.names) or 'no name'}"


def _lines(report: ConfigurationReport) -> Iterator[str]:
    if report.authorizer is None:
        yield "authorizer: none"
    else:
        yield f"authorizer: StandardAuthorizer, super users: {', '.join(report.authorizer.super_users) or 'none'}"
    yield f"links between nodes: encryption {report.link_encryption}"
    if report.quorum_certificate is not None:
        shown = report.quorum_certificate
        yield f"certificate for the quorum: {_whose(shown)}, expires {shown.expires}"
    yield f"build: {report.build}"
    for remark in report.remarks:
        yield f"remark: {remark}"
    yield f"{report.role} node {report.node_id} would start"
