"""Values encrypted under an older cluster secret are encrypted under the first, and no newer value is overwritten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.dataplane.assembly import resealing
from ottla.dataplane.assembly.resealing import Resealing
from ottla.dataplane.security.resealing import Resealer
from ottla.dataplane.security.sasl.scram import ScramCredentials, sealed_credential
from ottla.dataplane.security.sealing import Sealer
from ottla.dataplane.security.setting_secrets import SettingSecrets
from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.credentials.scram import SCRAM_MECHANISMS_BY_CODE, ScramCredential
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import SECURITY
from ottla.protocol.messages.cluster_commands import FormCluster, InitialFeature
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.config_commands import AlterConfigs, ConfigChange, ConfigResource, ResourceType
from ottla.protocol.messages.quorum_commands import decode_result, encode_command
from ottla.protocol.messages.user_commands import AlterScramCredentials, ScramCredentialChange

OLD, NEW = b"old secret " * 4, b"new secret " * 4
SHA_512 = SCRAM_MECHANISMS_BY_CODE[2]
KEY = "listener.name.clients.ssl.key.password"


class QuorumOfOne:
    """A quorum that applies commands at once, after `fails` failures."""

    def __init__(self, fails: int = 0) -> None:
        self.controller = Controller()
        self.fails = fails
        self._told: list[Resealer] = []
        features = [InitialFeature(feature=SECURITY, level=1)]
        self._apply(FormCluster(cluster_id="c", features=features))

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    async def submit(self, command: Command[Any], timeout_ms: int | None = None) -> Any:
        if self.fails:
            self.fails -= 1
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return self._apply(command)

    def resealer(self, *secrets: bytes) -> Resealer:
        """Return a resealer that knows the image and gets every change, like a broker's."""
        resealer = Resealer(Sealer(secrets))
        resealer.image_changed(self.image, ImageDelta.between(ClusterImage(), self.image))
        self._told.append(resealer)
        return resealer

    def _apply(self, command: Command[Any]) -> Any:
        applied = self.controller.apply(1, 1, encode_command(None, command))
        delta = ImageDelta()
        for _, record in applied.records:
            delta.note(record)
        for resealer in self._told:
            resealer.image_changed(self.image, delta)
        return decode_result(command, applied.result)

    async def set_password(self, secret: bytes, user: str, password: bytes) -> None:
        credential = ScramCredential.of_salted_password(SHA_512, password * 64, b"salt", 4096)
        sealed = sealed_credential(Sealer([secret]), (user, 2), credential)
        change = ScramCredentialChange(
            name=user, mechanism=2, salt=sealed.salt, sealed_keys=sealed.sealed_keys, iterations=4096
        )
        await self.submit(AlterScramCredentials(changes=[change]))

    async def set_setting(self, secret: bytes, value: str) -> None:
        change = ConfigChange(name=KEY, value=SettingSecrets(Sealer([secret])).seal("", KEY, value))
        resource = ConfigResource(resource_type=ResourceType.BROKER, resource_name="", changes=[change])
        await self.submit(AlterConfigs(resources=[resource]))

    def password_is(self, secret: bytes, user: str, password: bytes) -> bool:
        found = ScramCredentials(Sealer([secret]), lambda: self.image.scram_credentials).find(SHA_512, user)
        return found == ScramCredential.of_salted_password(SHA_512, password * 64, b"salt", 4096)

    def setting(self, secret: bytes) -> str:
        kept = self.image.configs[ResourceType.BROKER, ""][KEY]
        return SettingSecrets(Sealer([secret])).open("", KEY, kept)


async def reseal(quorum: QuorumOfOne, *secrets: bytes) -> Resealing:
    running = Resealing(quorum, quorum.resealer(*secrets))
    await asyncio.wait_for(running.start(), 60)
    return running


async def test_after_it_the_old_secret_is_not_needed() -> None:
    quorum = QuorumOfOne()
    await quorum.set_password(OLD, "ann", b"a")
    await quorum.set_password(NEW, "bob", b"b")
    await quorum.set_setting(OLD, "hunter2")
    assert quorum.resealer(NEW, OLD).left(quorum.image) == 2
    running = await reseal(quorum, NEW, OLD)
    assert running.left() == 0
    assert quorum.password_is(NEW, "ann", b"a")
    assert quorum.password_is(NEW, "bob", b"b")
    assert quorum.setting(NEW) == "hunter2"
    before = quorum.image.offset
    await reseal(quorum, NEW, OLD)
    assert quorum.image.offset == before, "nothing is left to do"


async def test_what_is_left_is_counted_as_it_changes() -> None:
    """A scrape of metrics must not scan all users."""
    quorum = QuorumOfOne()
    resealer = quorum.resealer(NEW, OLD)
    counts = []
    for secret, user in ((OLD, "ann"), (OLD, "bob"), (NEW, "carl"), (OLD, "carl"), (NEW, "ann")):
        await quorum.set_password(secret, user, b"a")
        counts.append(resealer.left(quorum.image))
    await quorum.submit(AlterScramCredentials(changes=[ScramCredentialChange(name="bob", mechanism=2)]))
    counts.append(resealer.left(quorum.image))
    assert counts == [1, 2, 2, 3, 2, 1]


async def test_what_is_set_meanwhile_stays() -> None:
    """The change of another broker comes between the read of the image and the command."""
    quorum = QuorumOfOne()
    await quorum.set_password(OLD, "ann", b"a")
    await quorum.set_password(OLD, "gone", b"a")
    await quorum.set_setting(OLD, "old")
    resealer = quorum.resealer(NEW, OLD)
    credentials, settings = list(resealer.credentials(quorum.image)), list(resealer.settings(quorum.image))
    await quorum.set_password(OLD, "ann", b"changed")
    await quorum.submit(AlterScramCredentials(changes=[ScramCredentialChange(name="gone", mechanism=2)]))
    await quorum.set_setting(OLD, "changed")
    await quorum.submit(AlterScramCredentials(changes=credentials))
    await quorum.submit(AlterConfigs(resources=settings))
    assert quorum.password_is(OLD, "ann", b"changed")
    assert ("gone", 2) not in quorum.image.scram_credentials
    assert quorum.setting(OLD) == "changed"


async def test_what_no_secret_opens_is_left_and_told(caplog: pytest.LogCaptureFixture) -> None:
    quorum = QuorumOfOne()
    await quorum.set_password(OLD, "ann", b"a")
    await quorum.set_setting(OLD, "hunter2")
    running = await reseal(quorum, NEW)
    assert running.left() == 2
    assert "2 secrets cannot be read under any cluster secret: set them again" in caplog.text


async def test_it_tries_again_when_the_quorum_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resealing, "_TRY_AGAIN_S", 0.01)
    quorum = QuorumOfOne()
    await quorum.set_password(OLD, "ann", b"a")
    quorum.fails = 2
    assert (await reseal(quorum, NEW, OLD)).left() == 0
