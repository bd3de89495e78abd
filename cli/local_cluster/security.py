"""Security of a local cluster (`ottla up --secure`): its files, and the options of nodes and clients that name them.

DIR/tls/                     the authority and the certificates
DIR/client/admin.password    created once
DIR/client/profiles.json     connection options of `ottla` commands: OTTLA_CONFIG_DIR=DIR/client
DIR/client/admin.properties  the same options for Java's tools
DIR/client/admin.conf        the same options by librdkafka's names: kcat -F
DIR/client/metrics.token     created once; the bearer token for /metrics

Only the owner can read these files. Every run rewrites the client options, since ports may change.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...protocol.cluster.authorizer_settings import STANDARD_AUTHORIZER
from ...protocol.settings.security_protocol import SecurityProtocol
from ..connection.client_files import ClientFiles
from ..connection.passwords import new_password
from ..failures import CommandFailed
from ..files import write_atomically

ADMIN: Final = "admin"
PROTOCOLS: Final = tuple(
    protocol.value for protocol in SecurityProtocol if protocol is not SecurityProtocol.PLAINTEXT
)
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
"""The mechanisms that are enabled; the client files use the first."""


@dataclass(frozen=True, slots=True)
class ClusterSecurity:
    """The security files and settings of the local cluster in `directory`; `protocol` is the security protocol of its
    client listeners."""

    directory: Path
    protocol: SecurityProtocol

    @property
    def tls(self) -> Path:
        """The path of the folder with the cluster's certificates."""
        return self.directory / "tls"

    @property
    def clients(self) -> Path:
        """The path of the folder with the files for clients."""
        return self.directory / "client"

    @property
    def _client_files(self) -> ClientFiles:
        return ClientFiles(self.clients, ADMIN)

    @property
    def ca_file(self) -> Path:
        """The path of the certificate of the authority that clients trust."""
        return self.tls / "ca.pem"

    @property
    def password_file(self) -> Path:
        """The path of the file with the first user's password."""
        return self._client_files.password_file

    @property
    def metrics_token_file(self) -> Path:
        """The path of the file with the bearer token for the nodes' metrics, which name topics, groups and users."""
        return self.clients / "metrics.token"

    @property
    def java_file(self) -> Path:
        """The path of the properties file for Java clients."""
        return self._client_files.java_file

    @property
    def librdkafka_file(self) -> Path:
        """The path of the properties file for librdkafka."""
        return self._client_files.librdkafka_file

    @property
    def certificate_file(self) -> Path:
        """The path of the file with the first user's key and certificate, for authentication by certificate."""
        return self.tls / f"{ADMIN}.pem"

    @property
    def principal(self) -> str:
        """The first user's principal, as ACLs name it."""
        return f"User:{ADMIN}" if self.protocol.has_sasl else f"User:CN={ADMIN}"

    def files(self, brokers: Iterable[str]) -> Iterator[Path]:
        """Yield the paths of all security files that are written for these brokers and for clients."""
        for name in ("ca", ADMIN, *brokers):
            yield self.tls / f"{name}.pem"
        yield self.tls / "ca.key"
        yield from self._client_files.all()
        yield self.metrics_token_file

    def settings(self, role: str, name: str) -> dict[str, str]:
        """Return the security settings of a node of the local cluster, whose certificate is called `name`."""
        common = {
            "cluster.link.encryption": "required",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": self.principal,
            "metrics.bearer.token.file": str(self.metrics_token_file),
        }
        if role != "broker":
            return common
        if self.protocol.has_sasl:
            common["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        if self.protocol.has_tls:
            common |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.tls / f"{name}.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.ca_file),
            }
        if self.protocol is SecurityProtocol.SSL:
            common["ssl.client.auth"] = "required"
        return common

    def first_users(self) -> list[str]:
        """Return the `--add-scram` arguments of a quorum node of a cluster that is not formed yet."""
        if not self.protocol.has_sasl:
            return []
        return [f'{name}=[name={ADMIN},password-file="{self.password_file}"]' for name in MECHANISMS]

    def client_options(self, bootstrap: str) -> dict[str, str]:
        """Return the options with which a client connects as the first user, by librdkafka's names. Raises
        CommandFailed."""
        options = {"bootstrap.servers": bootstrap, "security.protocol": self.protocol.value}
        if self.protocol.has_tls:
            options["ssl.ca.location"] = str(self.ca_file)
        if self.protocol is SecurityProtocol.SSL:
            options["ssl.certificate.location"] = str(self.certificate_file)
            options["ssl.key.location"] = str(self.certificate_file)
        if self.protocol.has_sasl:
            options |= {
                "sasl.mechanism": MECHANISMS[0],
                "sasl.username": ADMIN,
                "sasl.password": self._password(),
            }
        return options

    def write_client_files(self, bootstrap: str, *, is_formed: bool) -> None:
        """Create the first user's password and the metrics token, unless they exist, and write the client files."""
        _make_private(self.clients)
        if self.protocol.has_sasl and not self.password_file.exists():
            if is_formed:
                raise CommandFailed(
                    f"{self.password_file} is gone, which has the password of {ADMIN}: put it back. Or write a new one "
                    "into it, and once the cluster runs: ottla security recover -c "
                    f"{self.directory}/config/quorum-101.properties --set-password {ADMIN} "
                    f"--password-file {self.password_file}"
                )
            write_atomically(self.password_file, new_password() + "\n", mode=0o600)
        if not self.metrics_token_file.exists():
            write_atomically(self.metrics_token_file, secrets.token_hex(32) + "\n", mode=0o600)
        self._client_files.write(self.client_options(bootstrap))

    def described(self) -> dict[str, str]:
        """Return the security section of cluster.json: protocol, first user, and the paths of files for clients."""
        found = {
            "protocol": self.protocol.value,
            "principal": self.principal,
            "client_config": str(self.clients),
            "java_properties": str(self.java_file),
            "librdkafka_properties": str(self.librdkafka_file),
            "metrics_token_file": str(self.metrics_token_file),
        }
        if self.protocol.has_tls:
            found["ca_file"] = str(self.ca_file)
        if self.protocol is SecurityProtocol.SSL:
            found["certificate_file"] = str(self.certificate_file)
        if self.protocol.has_sasl:
            found |= {"mechanism": MECHANISMS[0], "user": ADMIN, "password_file": str(self.password_file)}
        return found

    def told(self, bootstrap: str, needed_ports: str | None) -> Iterator[str]:
        """Yield lines that tell a user how to connect to the secured cluster: files, addresses, and commands to try
        next.

        `needed_ports` are the ports for other machines, None for a cluster on loopback.
        """
        yield ""
        yield f"clients use {self.protocol.value}; users other than {ADMIN} may do nothing until an ACL allows it"
        yield f"  bootstrap     {bootstrap}"
        if needed_ports is not None:
            yield f"  firewall      {needed_ports}"
        if self.protocol.has_tls:
            yield f"  authority     {self.ca_file}"
        if self.protocol.has_sasl:
            yield f"  first user    {ADMIN}, by {' or '.join(MECHANISMS)}"
            yield f"  its password  {self.password_file}"
        else:
            yield f"  first user    {self.principal}, by the certificate {self.certificate_file}"
        yield f"  metrics       with the token in {self.metrics_token_file}"
        yield ""
        yield "next, in another terminal:"
        yield f"  export OTTLA_CONFIG_DIR={shlex.quote(str(self.clients))}"
        yield "  ottla topic create orders"
        yield "  seq 1 10 | ottla produce orders"
        yield "  ottla consume orders -o beginning -e"
        if self.protocol.has_sasl:
            yield "  ottla user create ann --client-files ann"
        principal = "User:ann" if self.protocol.has_sasl else "User:CN=ann"
        yield f"  ottla acl create --principal {principal} --operation READ --topic orders"
        yield "with other clients:"
        yield f"  kcat -F {shlex.quote(str(self.librdkafka_file))} -L"
        java = shlex.quote(str(self.java_file))
        yield f"  kafka-topics.sh --bootstrap-server {bootstrap} --command-config {java} --list"

    def issue(self, brokers: Sequence[str], hosts: tuple[str, ...], cluster_id: str) -> list[str]:
        """Issue missing certificates for `brokers`, which clients reach under the names `hosts`.

        Returns the names of the brokers whose certificate was replaced.
        """
        _make_private(self.tls)
        if not self.protocol.has_tls:
            return []
        from datetime import UTC, datetime

        from ...network.tls.issuing import CertificateOwner
        from ..certificate_authority import issue_missing

        owners = [CertificateOwner(name, hosts) for name in brokers]
        if self.protocol is SecurityProtocol.SSL:
            owners.append(CertificateOwner(ADMIN))
        replaced = issue_missing(self.tls, cluster_id, owners, datetime.now(UTC))
        return [owner.name for owner in replaced if owner.hosts]

    def _password(self) -> str:
        try:
            password = self.password_file.read_text(encoding="utf-8").split("\n", 1)[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailed(f"cannot read {self.password_file}: {error}") from None
        if not password:
            raise CommandFailed(
                f"the first line of {self.password_file} is empty: it is the password of {ADMIN}"
            )
        return password


def _make_private(folder: Path) -> None:
    """Make a folder that only its owner can read."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
