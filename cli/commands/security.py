"""`ottla security`: certificates of a cluster, and `ottla security recover`, which restores access to a cluster after a
lock-out, by means of the cluster's secret."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...protocol.credentials.scram import DEFAULT_ITERATIONS, DEFAULT_MECHANISM, SALT_BYTES
from ..arguments.options import Actions, CommandParser, add_output, add_yes, carry_out, command_parser
from ..connection.passwords import password_of
from ..failures import CommandFailed, UsageError
from ..terminal.confirmation import confirm
from ..terminal.output import print_json, print_table
from ..terminal.progress import ProgressLine
from .acl import acls_of, add_resource, filter_of, print_acls
from .certificate import add_certificate_actions
from .user import MECHANISMS, NEW_PASSWORD_VARIABLE

if TYPE_CHECKING:
    from ...network.tls.nodes import NodeTls
    from ...protocol.messages.command import Command, CommandResult
    from ...protocol.messages.quorum_session import CommandReply
    from ...protocol.session.node_secrets import Secrets

WAIT_S = 30.0
_LINK_TIMEOUT_S = 5.0
_PAUSE_S = 0.1
ResultT = TypeVar("ResultT", bound="CommandResult")


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla security`."""
    options = command_parser(
        f"ottla {name}",
        "Make certificates of a cluster, or restore access to it after a lock-out.",
        "  ottla security authority authority --name production\n"
        "  ottla security certificate broker-1 --host 10.0.0.1 --ca authority --into broker-1\n"
        "  ottla security recover -c quorum.yaml --set-password admin",
    )
    actions = Actions(options, __package__ or "")
    add_certificate_actions(actions)
    recover = actions.add(
        "recover",
        "security:recover",
        "Set a password or change ACLs, by means of the cluster's secret. Every quorum node logs it.",
        "  ottla security recover -c quorum.yaml --set-password admin\n"
        "  ottla security recover -c quorum.yaml --create-acl --principal User:admin --operation ALL --cluster\n"
        "  ottla security recover -c quorum.yaml --delete-acl --principal User:admin",
    )
    recover.add_argument(
        "-c", "--config", type=Path, required=True, metavar="FILE", help="settings of a node of the cluster"
    )
    what = recover.add_mutually_exclusive_group(required=True)
    what.add_argument("--set-password", dest="name", metavar="NAME", help="give this user a password")
    what.add_argument("--create-acl", action="store_true", help="create the ACLs that the options describe")
    what.add_argument("--delete-acl", action="store_true", help="remove the ACLs that match the options")
    recover.add_argument(
        "--mechanism",
        action="append",
        choices=MECHANISMS,
        help=f"mechanism of the password ({DEFAULT_MECHANISM})",
    )
    recover.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help=f"file whose first line is the password (default: {NEW_PASSWORD_VARIABLE}, else a prompt)",
    )
    add_resource(recover, required=False)
    recover.add_argument(
        "--principal", metavar="TYPE:NAME", help="such as User:ann; User:* stands for every user"
    )
    recover.add_argument(
        "--operation", metavar="NAME", action="append", help="such as READ; ALL stands for every operation"
    )
    recover.add_argument(
        "--host", metavar="HOST", help="hosts of clients: *, an address, or a network such as 10.0.0.0/8"
    )
    patterns = recover.add_mutually_exclusive_group()
    patterns.add_argument(
        "--prefixed", action="store_true", help="ACLs for all names that begin with the given name"
    )
    patterns.add_argument(
        "--literal", action="store_true", help="with --delete-acl: only ACLs for exactly the given name"
    )
    permissions = recover.add_mutually_exclusive_group()
    permissions.add_argument("--allow", action="store_true", help="with --delete-acl: only ACLs that allow")
    permissions.add_argument(
        "--deny", action="store_true", help="ACLs that deny the operations (--create-acl), or only these"
    )
    recover.set_defaults(covering=False)
    add_yes(recover)
    add_output(recover, "-o")
    return options


run = carry_out


def recover(arguments: argparse.Namespace) -> None:
    """Set a user's password, create ACLs or delete ACLs directly in the quorum, as the options say."""
    quorum = _Quorum.of_file(arguments.config)
    if arguments.name is not None:
        _set_password(arguments, quorum)
    elif arguments.create_acl:
        _create_acls(arguments, quorum)
    else:
        _delete_acls(arguments, quorum)


def _set_password(arguments: argparse.Namespace, quorum: _Quorum) -> None:
    from ...protocol.credentials.scram import SCRAM_MECHANISMS, ScramCredential
    from ...protocol.messages.user_commands import AlterScramCredentials
    from ..nodes.first_users import sealed_change

    password = password_of(
        arguments.password_file, NEW_PASSWORD_VARIABLE, f"new password of {arguments.name}", twice=True
    )
    names = list(dict.fromkeys(arguments.mechanism or [DEFAULT_MECHANISM]))
    changes = []
    for mechanism in (SCRAM_MECHANISMS[name] for name in names):
        credential = ScramCredential.of_password(
            mechanism, password, os.urandom(SALT_BYTES), DEFAULT_ITERATIONS
        )
        changes.append(sealed_change(quorum.secrets, arguments.name, mechanism, credential))
    result = quorum.submit(AlterScramCredentials(changes=changes))
    _check(*((change.error_code, change.error_message) for change in result.changes))
    if arguments.output == "json":
        print_json([{"user": arguments.name, "mechanism": name, "result": "set"} for name in names])
    else:
        print_table(("USER", "MECHANISM", "RESULT"), [(arguments.name, name, "set") for name in names])


def _create_acls(arguments: argparse.Namespace, quorum: _Quorum) -> None:
    from ...protocol.messages.acl_commands import AclEntry, CreateAcls

    if arguments.principal is None or not arguments.operation:
        raise UsageError("--create-acl needs --principal and --operation")
    acls = acls_of(arguments)
    result = quorum.submit(CreateAcls(acls=[AclEntry(**acl._asdict()) for acl in acls]))
    _check(*((answer.error_code, answer.error_message) for answer in result.results))
    print_acls(arguments, acls)


def _delete_acls(arguments: argparse.Namespace, quorum: _Quorum) -> None:
    from ...protocol.cluster.acls import Acl
    from ...protocol.messages.acl_commands import AclFilterEntry, DeleteAcls

    operations = arguments.operation or [None]
    if len(operations) > 1:
        raise UsageError("--delete-acl takes one --operation")
    arguments.operation = operations[0]
    wanted = filter_of(arguments)
    confirm("Remove all ACLs that match these options?", yes=arguments.yes)
    result = quorum.submit(DeleteAcls(filters=[AclFilterEntry(**wanted._asdict())]))
    _check(*((answer.error_code, answer.error_message) for answer in result.results))
    print_acls(arguments, [Acl.of(acl) for answer in result.results for acl in answer.acls], wanted)


def _check(*outcomes: tuple[int, str]) -> None:
    from ...protocol.errors import ErrorCode

    for code, message in outcomes:
        if code:
            raise CommandFailed(f"{message} ({ErrorCode.of(code).name})")


class _Quorum:
    """A connection to the quorum of a cluster, authenticated with the cluster's secret."""

    def __init__(
        self,
        voters: Mapping[int, tuple[str, int]],
        cluster_id: str,
        secrets: Secrets,
        tls: NodeTls | None = None,
    ) -> None:
        self._tls = tls
        self._voters = voters
        self._cluster_id = cluster_id
        self.secrets = secrets

    @classmethod
    def of_file(cls, file: Path) -> _Quorum:
        """Return a connection to the quorum that the settings file of a quorum node or broker names.

        Raises CommandFailed.
        """
        from ...metadata_quorum.config import parse_voters
        from ...protocol.session.node_secrets import read_secrets
        from ...protocol.settings.config_key import ConfigError
        from ..nodes.node import node_settings
        from ..nodes.quorum_tls import quorum_tls

        values = node_settings(file, ()).values
        keys = ("controller.quorum.voters", "cluster.id", "cluster.secret.file")
        for key in keys:
            if not values.get(key, "").strip():
                raise CommandFailed(f"{file}: {key} is missing")
        try:
            voters = parse_voters(values[keys[0]])
            secrets = read_secrets(keys[2], values[keys[2]].strip())
            return cls(voters, values[keys[1]].strip(), secrets, quorum_tls(values, None))
        except ConfigError as error:
            raise CommandFailed(str(error)) from None

    def submit(self, command: Command[ResultT]) -> ResultT:
        """Find the quorum's leader, submit the command to it, and return the command's result. Raises CommandFailed."""
        from ...protocol.messages.quorum_commands import decode_result
        from ...protocol.messages.quorum_session import CommandStatus
        from ...protocol.session.handshake import HandshakeError

        deadline = time.monotonic() + WAIT_S
        ids, reasons = list(self._voters), dict.fromkeys(self._voters, "not asked")
        unauthenticated: set[int] = set()
        with ProgressLine() as line:
            while time.monotonic() < deadline and len(unauthenticated) < len(ids):
                line.show(f"waiting for the quorum: {_joined(reasons)}")
                node_id = ids.pop(0)
                ids.append(node_id)
                try:
                    reply, reasons[node_id] = self._ask(node_id, command)
                except HandshakeError as error:
                    unauthenticated.add(node_id)
                    reasons[node_id] = error.reason
                    continue
                if reply is None:
                    time.sleep(_PAUSE_S)
                elif reply.status == CommandStatus.APPLIED:
                    result = decode_result(command, reply.result)
                    _check((result.error_code, result.error_message))
                    return result
                elif reply.status == CommandStatus.INVALID:
                    raise CommandFailed(
                        f"quorum node {node_id} does not know this command: is its version older?"
                    )
                elif reply.leader_id in self._voters and reply.leader_id != node_id:
                    ids.remove(reply.leader_id)
                    ids.insert(0, reply.leader_id)
                else:
                    time.sleep(_PAUSE_S)
        raise CommandFailed(f"the quorum did not carry out the command: {_joined(reasons)}")

    def _ask(self, node_id: int, command: Command[ResultT]) -> tuple[CommandReply | None, str]:
        """Send a command to one quorum node. Return its reply, or None and the reason.

        Raises HandshakeError if authentication fails.
        """
        from ...protocol.messages.quorum_commands import encode_command
        from ...protocol.messages.quorum_session import CommandReply, SubmitCommand
        from ...protocol.session.frames import FrameError
        from ...protocol.session.handshake import LinkSecurity, Role
        from ...protocol.wire.codec import MalformedMessage
        from ..connection.plain_quorum_link import PlainQuorumLink

        security = LinkSecurity(self.secrets, requires_encryption=True)
        address = self._voters[node_id]
        try:
            with PlainQuorumLink(
                address, security, self._cluster_id, Role.ADMIN, _LINK_TIMEOUT_S, self._tls
            ) as link:
                link.send(SubmitCommand(sequence=0, command=encode_command(None, command)))
                reply = link.receive()
        except (OSError, FrameError, MalformedMessage) as error:
            return None, str(error)
        if not isinstance(reply, CommandReply):
            return None, f"it answers with {type(reply).__name__}"
        return reply, "it does not lead"


def _joined(reasons: Mapping[int, str]) -> str:
    return "; ".join(f"node {node_id}: {reason}" for node_id, reason in reasons.items())
