"""Logins of the peers of each listener, from a broker's configuration and the users in the quorum's metadata."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from ...protocol.cluster.cluster_image import ClusterImage, ScramKey, SealedCredential
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.credentials.scram import SCRAM_MECHANISMS, SCRAM_MECHANISMS_BY_CODE
from ...protocol.session.node_secrets import Secrets
from ..runtime.clocks import monotonic_ms, wall_ms
from ..security.delegation_tokens import DelegationTokens
from ..security.peer_session import PeerSession
from ..security.sasl.login import Mechanism
from ..security.sasl.scram import ScramCredentials, ScramLogins
from ..security.sasl.scram_passwords import ScramPasswords
from ..security.sasl.unknown_users import UnknownUsers
from ..security.sealing import Sealer
from ..server.authentication import AuthenticationSettings
from ..server.authentications import Authentications
from .bearer_logins import BearerLogins

if TYPE_CHECKING:
    # loaded late: only brokers whose listeners have SASL need them
    from ..configuration.sasl import MechanismConfig, SaslConfig
    from ..security.sasl.kerberos_acceptor import KerberosAcceptor, KerberosSettings

_NODE_KEY_LABEL = b"unknown users\0"


class Logins:
    """The SASL mechanisms of all listeners, and the credentials that they check logins by."""

    def __init__(
        self,
        secrets: Secrets,
        users: Callable[[], dict[ScramKey, SealedCredential]],
        acceptors: Mapping[KerberosSettings, KerberosAcceptor],
        tokens: DelegationTokens | None,
    ) -> None:
        """`secrets`: the cluster secrets. `users`: returns the users of the current image. `acceptors`: Kerberos
        acceptors of listeners with GSSAPI. `tokens`: None if delegation tokens are not enabled."""
        self.sealer = Sealer(secrets.accepted)
        self._credentials = ScramCredentials(self.sealer, users)
        self._unknown_users = UnknownUsers(hmac.digest(secrets.first, _NODE_KEY_LABEL, sha256), users)
        self._passwords = ScramPasswords(
            self._credentials, self._unknown_users, lambda: monotonic_ms() / 1000
        )
        self._acceptors = acceptors
        self._tokens = tokens
        self.by_token = BearerLogins()

    def settings(self, config: SaslConfig) -> AuthenticationSettings:
        """Return the settings by which one listener authenticates its peers."""
        mechanisms = [self._mechanism(mechanism) for mechanism in config.mechanisms]
        return AuthenticationSettings(
            {mechanism.name: mechanism for mechanism in mechanisms},
            {mechanism.name: mechanism.reauthentication_max_ms for mechanism in config.mechanisms},
            config.failure_delay_ms,
            config.timeout_ms,
            config.request_max_bytes,
        )

    def close(self) -> None:
        """Begin no more Kerberos logins."""
        for acceptor in self._acceptors.values():
            acceptor.close()

    def _mechanism(self, config: MechanismConfig) -> Mechanism:
        from ..configuration.sasl import VERIFY_BY_SCRAM
        from ..security.sasl.plain import ListedUsers, PlainMechanism

        if config.bearer is not None:
            return self.by_token.mechanism(config.bearer)
        if config.kerberos is not None:
            from ..security.sasl.kerberos import KerberosLogins

            acceptor = self._acceptors[config.kerberos]
            return KerberosLogins(acceptor.context, acceptor.mapping, acceptor.threads, wall_ms)
        if config.name in SCRAM_MECHANISMS:
            return ScramLogins(
                SCRAM_MECHANISMS[config.name], self._credentials, self._unknown_users, self._tokens
            )
        if config.verify == VERIFY_BY_SCRAM:
            return PlainMechanism(self._passwords.check)
        assert config.module is not None, "the configuration has been checked"
        return PlainMechanism(ListedUsers(config.module).check)


class EndedCredentials:
    """A follower of the image that ends the sessions of users whose credential was changed or deleted."""

    def __init__(self, authentications: Authentications) -> None:
        self._authentications = authentications

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Close the connections of users whose credential has changed, once their requests are answered."""
        if not delta.scram_credentials:
            return
        from ..security.sasl.plain import PLAIN

        changed = {
            (name, SCRAM_MECHANISMS_BY_CODE[mechanism].name) for name, mechanism in delta.scram_credentials
        }
        users = {name for name, _ in changed}

        def concerns(session: PeerSession) -> bool:
            if session.token_id is not None:
                return False  # A token has its own end.
            by_password = session.mechanism == PLAIN and session.principal.name in users
            return by_password or (session.principal.name, session.mechanism) in changed

        self._authentications.end(concerns, "the credential of its user was changed or deleted")


class EndedTokens:
    """A follower of the image that ends sessions whose delegation token was removed, and limits other sessions to the
    expiry of their token.
    """

    def __init__(self, authentications: Authentications) -> None:
        self._authentications = authentications

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Close the connections of removed tokens, once their requests are answered, and limit the lifetimes of the
        others."""
        if not delta.delegation_tokens:
            return
        tokens = image.delegation_tokens
        gone = delta.delegation_tokens - tokens.keys()
        if gone:
            self._authentications.end(
                lambda session: session.token_id in gone, "its delegation token was removed"
            )
        left = delta.delegation_tokens - gone

        def end_of(session: PeerSession) -> int | None:
            of_it = session.token_id
            return tokens[of_it].expires_at_ms if of_it in left else None

        self._authentications.bound_lives(end_of)
