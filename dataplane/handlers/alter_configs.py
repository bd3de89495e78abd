"""IncrementalAlterConfigs (0-1) and AlterConfigs (0-2): settings of topics, brokers, groups and so on.

The quorum keeps all settings except the levels of loggers, which only this process keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from ...protocol.cluster.acls import AclOperation
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import config_commands
from ...protocol.messages.command import refusal
from ...protocol.messages.config_commands import ConfigOperation, ResourceType
from ...protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ReplaceConfigsResource,
)
from ...protocol.settings.config_keys import IGNORED_AT_START, NODE_KEYS, ConfigError, is_dynamic, node_key
from ...protocol.settings.config_listeners import is_tls_of_listener, listener_of
from ...protocol.settings.config_resources import GROUP_KEYS, check_group_bounds, client_patterns
from ..broker_settings import BrokerSettings
from ..patterns import compile_pattern
from ..quorum.access import Quorum
from ..runtime.time_slices import in_time_slices, pieces
from ..security.authorization.needs import handler_asks
from ..security.peer_session import PeerSession
from ..security.setting_secrets import SettingSecrets
from ..security.tls_reloading import TlsReloads
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles
from ..storage.folder_settings import CORDONED, check_cordoned
from .settings.broker_loggers import BrokerLoggers
from .settings.config_rights import check_config_right
from .settings.withheld import sent_value

_NEEDS = handler_asks("ALTER_CONFIGS Topic, Group or Cluster")
_BROKER_LOGGER = 8
_RESOURCES_PER_COMMAND = 250
_OPERATIONS = frozenset(ConfigOperation)
_KEPT = frozenset(ResourceType)


class _Resource(Protocol):
    resource_type: int
    resource_name: str


class _Config(Protocol):
    name: str
    value: str | None


def _responses(
    resources: Sequence[_Resource], errors: Iterable[KafkaError | None]
) -> list[AlterConfigsResourceResponse]:
    return [
        AlterConfigsResourceResponse(
            error_code=error.code if error else ErrorCode.NONE,
            error_message=error.message if error else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, error in zip(resources, errors, strict=True)
    ]


class AlterConfigsHandlers:
    """Refuses changes that are wrong in any case, and passes other changes on to the quorum, which decides."""

    def __init__(
        self,
        quorum: Quorum,
        broker: BrokerSettings,
        secrets: SettingSecrets,
        log_dirs: Sequence[Path] = (),
        tls_reloads: TlsReloads | None = None,
    ) -> None:
        self._quorum = quorum
        self._tls_reloads = tls_reloads
        self._log_dirs = log_dirs
        self._broker = broker
        self._secrets = secrets
        self._loggers = BrokerLoggers()

    @handles(
        IncrementalAlterConfigsRequest,
        0,
        1,
        errors=ErrorAnswers(arrays={"resources": "responses"}),
        needs=_NEEDS,
    )
    async def incremental_alter_configs(
        self, request: ClientRequest, message: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Set or delete single settings, or append to and subtract from their lists, each resource separately."""
        changes = [
            config_commands.ConfigResource(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                changes=[
                    config_commands.ConfigChange(
                        name=c.name, operation=c.config_operation, value=self._sent(resource, c)
                    )
                    for c in resource.configs
                ],
            )
            for resource in message.resources
        ]
        errors = await self._alter(
            request, changes, kinds=_KEPT | {_BROKER_LOGGER}, validate_only=message.validate_only
        )
        return IncrementalAlterConfigsResponse(responses=_responses(message.resources, errors))

    @handles(
        AlterConfigsRequest,
        0,
        2,
        errors=ErrorAnswers(arrays={"resources": "responses"}),
        needs=_NEEDS,
    )
    async def alter_configs(
        self, request: ClientRequest, message: AlterConfigsRequest
    ) -> AlterConfigsResponse:
        """Replace all dynamic settings of a resource by the given settings."""
        changes = [
            config_commands.ConfigResource(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                changes=self._replacement(resource),
            )
            for resource in message.resources
        ]
        errors = await self._alter(request, changes, kinds=_KEPT, validate_only=message.validate_only)
        return AlterConfigsResponse(responses=_responses(message.resources, errors))

    def _sent(self, resource: _Resource, config: _Config) -> str | None:
        """Return the value of a setting in the form for the quorum: a refused secret is emptied, and a broker's secret
        is sealed."""
        value = sent_value(resource.resource_type, config.name, config.value)
        if value is None or resource.resource_type != ResourceType.BROKER:
            return value
        return self._secrets.seal(resource.resource_name, config.name, value)

    def _replacement(self, resource: ReplaceConfigsResource) -> list[config_commands.ConfigChange]:
        """Return changes that set the named settings, and delete all other settings that this broker knows of.

        The quorum does not delete a setting that another client has given another value meanwhile.
        """
        named = {config.name for config in resource.configs}
        present = self._quorum.image.configs.get((resource.resource_type, resource.resource_name), {})
        return [
            *(
                config_commands.ConfigChange(
                    name=c.name, operation=ConfigOperation.SET, value=self._sent(resource, c)
                )
                for c in resource.configs
            ),
            *(
                config_commands.ConfigChange(name=name, operation=ConfigOperation.DELETE, replaces=value)
                for name, value in present.items()
                if name not in named
            ),
        ]

    async def _alter(
        self,
        request: ClientRequest,
        resources: list[config_commands.ConfigResource],
        *,
        kinds: frozenset[int],
        validate_only: bool,
    ) -> list[KafkaError | None]:
        """Return the outcome of each resource. Resources that are wrong in themselves do not reach the quorum."""
        times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
        errors: list[KafkaError | None] = []
        async for resource in in_time_slices(resources):
            try:
                if times[resource.resource_type, resource.resource_name] > 1:
                    raise _refusal("Each resource must appear at most once.")
                if resource.resource_type not in kinds:
                    raise _refusal(f"Unknown resource type {resource.resource_type}")
                check_config_right(
                    request.access, AclOperation.ALTER_CONFIGS, resource.resource_type, resource.resource_name
                )
                self._check(resource)
                await self._check_listeners(resource)
                if resource.resource_type == ResourceType.CLIENT_METRICS:
                    await _check_client_metrics(resource)
                errors.append(None)
            except KafkaError as error:
                errors.append(error)
        sound = [resource for resource, error in zip(resources, errors, strict=True) if error is None]
        if not validate_only:
            for resource in sound:
                if resource.resource_type == _BROKER_LOGGER:
                    self._loggers.change(resource.changes)
        kept = [resource for resource in sound if resource.resource_type != _BROKER_LOGGER]
        if kept:
            failures = await self._submit(request.session, kept, validate_only=validate_only)
            errors = [
                error or failures.get(id(resource)) for resource, error in zip(resources, errors, strict=True)
            ]
            if not validate_only and self._tls_reloads is not None:
                done = [resource for resource, error in zip(resources, errors, strict=True) if error is None]
                await self._reload_listeners(self._tls_reloads, done)
        return errors

    async def _check_listeners(self, resource: config_commands.ConfigResource) -> None:
        """Check changed keys and certificates of this broker's listeners. Raises KafkaError.

        They belong to a single broker. This broker does not know the files of another broker, which keeps its old keys
        if it cannot use the new.
        """
        changes = _of_listeners(resource)
        if not changes:
            return
        if not resource.resource_name:
            raise _refusal(
                "Cannot update these configs at default cluster level, "
                f"broker id must be specified: [{', '.join(change.name for change in changes)}]"
            )
        if self._tls_reloads is None or resource.resource_name != str(self._broker.broker_id):
            return
        changed = {
            change.name: change.value if change.operation == ConfigOperation.SET else None
            for change in changes
            if change.operation in (ConfigOperation.SET, ConfigOperation.DELETE)
        }
        try:
            await self._tls_reloads.check(self._broker.of_listeners(changed))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None

    async def _reload_listeners(
        self, reloads: TlsReloads, resources: Sequence[config_commands.ConfigResource]
    ) -> None:
        """Reload the changed listeners, even if a setting got the value that it had: in Kafka that reloads a file."""
        own = [resource for resource in resources if resource.resource_name == str(self._broker.broker_id)]
        for name in {listener_of(change.name) for resource in own for change in _of_listeners(resource)}:
            if name is not None:
                await reloads.reload_named(name)

    async def _submit(
        self, author: PeerSession, resources: list[config_commands.ConfigResource], *, validate_only: bool
    ) -> dict[int, KafkaError | None]:
        """Return the quorum's outcome for each resource, by the `id` of the resource.

        The commands are small enough not to hold the quorum up. An error of a command applies to all later commands,
        too.
        """
        failures: dict[int, KafkaError | None] = {}
        refused: KafkaError | None = None
        for some in pieces(resources, _RESOURCES_PER_COMMAND):
            if refused is None:
                command = config_commands.AlterConfigs(resources=list(some), validate_only=validate_only)
                try:
                    outcome = await self._quorum.submit(command, author=author)
                except KafkaError as error:
                    refused = error
                else:
                    found = zip(some, outcome.resources, strict=True)
                    failures |= {id(resource): refusal(result) for resource, result in found}
            if refused is not None:
                failures |= {id(resource): refused for resource in some}
        return failures

    def _check(self, resource: config_commands.ConfigResource) -> None:
        """Raises KafkaError for errors that do not depend on the settings that the quorum has."""
        names = [change.name for change in resource.changes]
        if len(set(names)) < len(names):
            raise _refusal("Error due to duplicate config keys")
        nulls = [
            change.name
            for change in resource.changes
            if change.value is None and change.operation != ConfigOperation.DELETE
        ]
        if nulls:
            raise _refusal(f"Null value not supported for : {','.join(nulls)}")
        for change in resource.changes:
            if change.operation not in _OPERATIONS:
                raise _refusal(f"{change.name}: unknown operation {change.operation}")
        match resource.resource_type:
            case ResourceType.BROKER:
                _check_dynamic(names)
                self._check_cordoned(resource)
            case ResourceType.GROUP:
                self._check_group(resource)
            case number if number == _BROKER_LOGGER:
                self._check_loggers(resource)

    def _check_cordoned(self, resource: config_commands.ConfigResource) -> None:
        """Check the folders in `cordoned.log.dirs` of this broker. Raises KafkaError.

        Folders belong to a single broker. Another broker ignores folders that it does not have.
        """
        for change in resource.changes:
            if change.name != CORDONED or change.operation in (
                ConfigOperation.DELETE,
                ConfigOperation.SUBTRACT,
            ):
                continue
            name, value = resource.resource_name, change.value or ""
            if not name:
                raise _refusal(
                    "Cannot update these configs at default cluster level, "
                    f"broker id must be specified: [{CORDONED}]"
                )
            if name != str(self._broker.broker_id):
                continue
            if change.operation == ConfigOperation.APPEND:
                present = self._quorum.image.configs.get((ResourceType.BROKER, name), {}).get(CORDONED)
                given = [item for item in value.split(",") if item not in (present or "").split(",")]
                value = ",".join(filter(None, [present, *given]))
            try:
                check_cordoned(value, self._log_dirs)
            except ConfigError as error:
                raise _refusal(str(error)) from None

    def _check_group(self, resource: config_commands.ConfigResource) -> None:
        allowed = {
            name: text
            for name in NODE_KEYS
            if name.startswith(("group.consumer.", "group.share."))
            and (text := self._broker.text(name)) is not None
        }
        for change in resource.changes:
            if change.operation == ConfigOperation.SET and change.name in GROUP_KEYS:
                try:
                    check_group_bounds(change.name, change.value or "", allowed)
                except ConfigError as error:
                    raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def _check_loggers(self, resource: config_commands.ConfigResource) -> None:
        name, own = resource.resource_name, self._broker.broker_id
        if not name.removeprefix("-").isdecimal():
            raise _refusal(f"Node id must be an integer, but it is: {name}")
        if name != str(own):
            raise _refusal(f"Unexpected node id. Expected {own}, but received {name}")
        self._loggers.check(resource.changes)


def _of_listeners(resource: config_commands.ConfigResource) -> list[config_commands.ConfigChange]:
    """Return the changes that concern keys and certificates (TLS) of a broker's listeners."""
    if resource.resource_type != ResourceType.BROKER:
        return []
    return [change for change in resource.changes if is_tls_of_listener(change.name)]


def _check_dynamic(names: list[str]) -> None:
    fixed = [
        name
        for name in names
        if name in IGNORED_AT_START or (node_key(name) is not None and not is_dynamic(name))
    ]
    if fixed:
        raise _refusal(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")


async def _check_client_metrics(resource: config_commands.ConfigResource) -> None:
    """Check the client patterns in the setting `match` of a metrics subscription. Raises KafkaError INVALID_CONFIG.

    One pattern is compiled in each turn of the loop, since a value may hold thousands.
    """
    for change in resource.changes:
        if change.name == "match" and change.operation in (ConfigOperation.SET, ConfigOperation.APPEND):
            try:
                async for entry, pattern in in_time_slices(client_patterns(change.value or ""), 1):
                    _check_pattern(entry, pattern)
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_pattern(entry: str, pattern: str) -> None:
    """Raises ConfigError if an entry of `match` has no pattern, or a pattern that takes too long."""
    try:
        compile_pattern(pattern, "the pattern")
    except KafkaError as error:
        raise ConfigError(f"Illegal client matching pattern: {entry}: {error.message}") from None


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
