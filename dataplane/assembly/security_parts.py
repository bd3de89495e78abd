"""The parts for the identity of clients, and for the secrets and certificates of the broker."""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.session.node_proof import NodeCredentials
from ..broker_settings import BrokerSettings
from ..configuration.config import BrokerConfig
from ..handlers.acls import AclHandlers
from ..handlers.authenticate_node import AuthenticateNodeHandlers
from ..handlers.delegation_tokens import DelegationTokenHandlers
from ..handlers.sasl import SaslHandlers
from ..handlers.scram_credentials import ScramCredentialHandlers
from ..quorum.session import QuorumSession
from ..runtime.clocks import wall_ms
from ..security.delegation_tokens import DelegationTokens
from ..security.listener_tls import ReloadedListener, reached_by_clients
from ..security.resealing import Resealer
from ..security.setting_secrets import SettingSecrets
from ..security.tls_reloading import TlsReloads
from .foundation import Foundation
from .logins import Logins
from .resealing import Resealing


class SecurityParts:
    """The parts for logins, delegation tokens, and encrypted secrets. They set the authentication of the server's SASL
    listeners.
    """

    def __init__(self, config: BrokerConfig, foundation: Foundation, session: QuorumSession) -> None:
        self._config = config
        self._server = foundation.server
        self._session = session
        self.tokens = (
            None
            if config.token_keys is None
            else DelegationTokens(config.token_keys, lambda: session.image.delegation_tokens, wall_ms)
        )
        self.logins = Logins(
            config.quorum.security.cluster,
            lambda: session.image.scram_credentials,
            foundation.acceptors,
            self.tokens,
        )
        self._server.authentication = {
            listener.name: self.logins.settings(listener.sasl)
            for listener in config.listeners
            if listener.sasl is not None
        }
        self.secrets = SettingSecrets(self.logins.sealer)
        self.resealer = Resealer(self.logins.sealer)
        self.resealing = Resealing(session, self.resealer)

    def handlers(self, credentials: NodeCredentials) -> Iterator[object]:
        """Yield the handlers of requests about authentication, credentials, ACLs and delegation tokens."""
        yield AuthenticateNodeHandlers(credentials)
        yield SaslHandlers(self._server.authentications)
        yield ScramCredentialHandlers(self._session, self.logins.sealer)
        yield AclHandlers(self._session, self._server.authorization)
        yield DelegationTokenHandlers(self._session, self.tokens, self._config.token_lifetimes)


def listener_reloads(config: BrokerConfig, foundation: Foundation, settings: BrokerSettings) -> TlsReloads:
    """Return the reloads of the keys and certificates of all listeners, and of those for connections to the quorum."""
    return TlsReloads(
        {
            listener.name: ReloadedListener(
                foundation.tls[listener.name],
                reached_by_clients(listener.advertised_host),
                listener.name == config.inter_broker_listener,
            )
            for listener in config.listeners
            if listener.name in foundation.tls
        }
        | _quorum_listener(foundation),
        settings.of_listeners,
        config.tls_reload_interval_ms,
    )


def _quorum_listener(foundation: Foundation) -> dict[str, ReloadedListener]:
    """Return the TLS for connections to the quorum in the form of a listener, by its name. The result is empty if they
    do not use TLS.
    """
    if foundation.quorum_tls is None:
        return {}
    own = ReloadedListener(foundation.quorum_tls, None, is_between_nodes=True)
    return {foundation.quorum_tls.loaded.settings.listener: own}
