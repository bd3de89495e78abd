"""Commands to the controller about client quotas and finalized features."""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, float64, int8, int16, string
from .command import Command, CommandResult


@data()
class QuotaEntityPart(Message):
    """A part of the name of a quota's entity: a user, a client id or an IP address."""

    entity_type: str = string(about="user, client-id or ip.")
    entity_name: str | None = string(
        nullable="0+", default=None, about="Name of the entity; null for the default."
    )


@data()
class QuotaValue(Message):
    """A quota of an entity: its name, such as `producer_byte_rate`, and its value."""

    key: str = string(about="Name of the quota.")
    value: float = float64(about="Value of the quota.")


@data()
class QuotaChange(Message):
    """A quota to set or remove."""

    key: str = string(about="Name of the quota.")
    value: float = float64(about="New value of the quota.")
    remove: bool = boolean(about="Whether the quota is removed.")


@data()
class EntityQuotaChanges(Message):
    """Changes of the quotas of one entity (user, client id or IP address). All are made, or none."""

    entity: list[QuotaEntityPart] = array(QuotaEntityPart, about="Parts that name the entity.")
    changes: list[QuotaChange] = array(QuotaChange, about="Quotas to set or remove.")


@data()
class AlteredQuota(Message):
    """Result of the changes of one entity's quotas."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")


@data()
class AlterClientQuotasResult(CommandResult):
    """Results of AlterClientQuotas, one for each entity in the order of the command."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    entries: list[AlteredQuota] = array(AlteredQuota, about="Results, in the order of the command.")


@data()
class AlterClientQuotas(Command[AlterClientQuotasResult]):
    """Command to change quotas, each entity independently of the others."""

    entries: list[EntityQuotaChanges] = array(EntityQuotaChanges, about="Changes, by entity.")
    validate_only: bool = boolean(about="Whether to validate only, without any change.")


@data()
class FeatureLevel(Message):
    """A feature and the level at which it is to be finalized (KIP-584)."""

    feature: str = string(about="Name of the feature.")
    level: int = int16(about="0 takes the feature out of force.")
    upgrade_type: int = int8(
        default=1, about="1 raise only, 2 lower if nothing is lost, 3 lower even if metadata is lost."
    )


@data()
class UpdateFeaturesResult(CommandResult):
    """Result of UpdateFeatures. An error concerns the first update that was refused."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")


@data()
class UpdateFeatures(Command[UpdateFeaturesResult]):
    """Command to finalize levels of features. All are set, or none."""

    updates: list[FeatureLevel] = array(FeatureLevel, about="Levels to finalize.")
    validate_only: bool = boolean(about="Whether to validate only, without any change.")
