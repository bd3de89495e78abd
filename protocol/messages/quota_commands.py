"""Commands to the controller about client quotas and finalized features."""

from __future__ import annotations

from ..schema import Message, array, boolean, data, float64, int8, int16, string
from .command import Command, CommandResult


@data()
class QuotaEntityPart(Message):
    """One part of an entity's name."""

    entity_type: str = string(about="user, client-id or ip.")
    entity_name: str | None = string(nullable="0+", default=None, about="Null for the default.")


@data()
class QuotaValue(Message):
    """One limit."""

    key: str = string(about="Name of the quota.")
    value: float = float64(about="Its value.")


@data()
class QuotaChange(Message):
    """One limit to be set or removed."""

    key: str = string(about="Name of the quota.")
    value: float = float64(about="Its value.")
    remove: bool = boolean(about="Whether it is removed.")


@data()
class EntityQuotaChanges(Message):
    """What changes about one entity: all or nothing."""

    entity: list[QuotaEntityPart] = array(QuotaEntityPart, about="Parts that name the entity.")
    changes: list[QuotaChange] = array(QuotaChange, about="Changes.")


@data()
class AlteredQuota(Message):
    """How the change of one entity went."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class AlterClientQuotasResult(CommandResult):
    """One result per entity, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    entries: list[AlteredQuota] = array(AlteredQuota, about="In the order of the command.")


@data()
class AlterClientQuotas(Command[AlterClientQuotasResult]):
    """Change quotas, each entity on its own."""

    entries: list[EntityQuotaChanges] = array(EntityQuotaChanges, about="Entities.")
    validate_only: bool = boolean(about="Whether only to check.")


@data()
class FeatureLevel(Message):
    """A level that a feature shall have."""

    feature: str = string(about="Name of the feature.")
    level: int = int16(about="0 takes the feature out of force.")
    upgrade_type: int = int8(default=1, about="1 raise only, 2 lower safely, 3 lower whatever is lost.")


@data()
class UpdateFeaturesResult(CommandResult):
    """The one error, if any, is about the update that comes first."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class UpdateFeatures(Command[UpdateFeaturesResult]):
    """Finalize levels of features: all or nothing."""

    updates: list[FeatureLevel] = array(FeatureLevel, about="Levels.")
    validate_only: bool = boolean(about="Whether only to check.")
