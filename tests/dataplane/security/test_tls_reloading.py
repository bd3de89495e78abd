"""New keys and certificates replace the old ones while listeners run, or change nothing."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ottla.dataplane.security.listener_tls import ListenerTls, ReloadedListener, reached_by_clients
from ottla.dataplane.security.tls_loading import load_tls
from ottla.dataplane.security.tls_reloading import TlsReloads
from ottla.dataplane.security.tls_settings import tls_settings
from ottla.network.tls.contexts import client_context
from ottla.network.tls.handshake_check import check_handshake
from ottla.network.tls.settings import TlsRules
from ottla.protocol.settings.config_key import ConfigError
from tests.network.tls.certificates import Authority, Issued, trusting

NAME, HOST = "CLIENTS", "localhost"


class Folder:
    """The files of one listener, and its reloader."""

    def __init__(self, path: Path, *, between_brokers: bool = False, **settings: str) -> None:
        self.authority = Authority()
        self.keys, self.trust = path / "own.pem", path / "trust.pem"
        self.issue().pem_file(self.keys)
        self.trust.write_text(self.authority.pem)
        self.properties = {
            "ssl.keystore.location": str(self.keys),
            "ssl.truststore.location": str(self.trust),
        } | {name.replace("_", "."): value for name, value in settings.items()}
        loaded = load_tls(tls_settings(self.properties, NAME), reached_by_clients(HOST), datetime.now(UTC))
        self.tls = ListenerTls(loaded)
        self.first = loaded
        self.listener = ReloadedListener(self.tls, reached_by_clients(HOST), between_brokers)

    def issue(self, *names: str, common_name: str = "broker", not_after: datetime | None = None) -> Issued:
        return self.authority.issue(
            *(names or (HOST,)),
            common_name=common_name,
            not_after=not_after,
            organization="Firm",
            organization_unit="x",
        )

    def reloads(self, interval_ms: int = 0) -> TlsReloads:
        return TlsReloads({NAME: self.listener}, lambda: self.properties, interval_ms)

    @property
    def has_changed(self) -> bool:
        return self.tls.loaded is not self.first


@asynccontextmanager
async def watched(folder: Folder, interval_ms: int = 30) -> AsyncIterator[TlsReloads]:
    reloads = folder.reloads(interval_ms)
    reloads.start()
    try:
        yield reloads
    finally:
        await reloads.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


async def test_a_file_that_changes_is_used(folder: Folder) -> None:
    async with watched(folder):
        folder.issue().pem_file(folder.keys)
        await until(lambda: folder.has_changed)
    check_handshake(
        folder.tls.accepting, client_context(TlsRules(), None, trusting(folder.authority.pem)), HOST
    )


async def test_a_link_that_is_swapped_is_used(tmp_path: Path) -> None:
    """Kubernetes swaps the folder of a secret in this manner."""
    folder = Folder(tmp_path)
    first, second, link = tmp_path / "1.pem", tmp_path / "2.pem", tmp_path / "data"
    folder.keys.rename(first)
    folder.issue().pem_file(second)
    link.symlink_to(first)
    folder.keys.symlink_to(link)
    async with watched(folder):
        swapped = tmp_path / "swapped"
        swapped.symlink_to(second)
        swapped.rename(link)
        await until(lambda: folder.has_changed)


async def test_what_is_half_written_is_not_used(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    text = folder.issue().pem_file(folder.keys.with_name("next")).read_text()
    reloads = folder.reloads(60)
    reloads.start()
    for at in range(0, len(text), len(text) // 40):
        folder.keys.write_text(text[:at])
        await asyncio.sleep(0.02)
    folder.keys.write_text(text)
    await until(lambda: folder.has_changed)
    await reloads.close()


@pytest.mark.parametrize("content", ["", "garbage", None])
async def test_what_cannot_be_used_changes_nothing_and_is_told_once(
    folder: Folder, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    async with watched(folder) as reloads:
        if content is None:
            folder.keys.unlink()
        else:
            folder.keys.write_text(content)
        await until(lambda: reloads.failures == 1)
        await asyncio.sleep(0.2)
        assert not folder.has_changed
        (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert str(folder.keys) in error.getMessage()
        folder.issue().pem_file(folder.keys)
        await until(lambda: folder.has_changed)
    assert reloads.failures == 1


@pytest.mark.parametrize("where", ["open", "memfd_create"])
async def test_what_could_not_be_read_for_a_moment_is_used_later(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A broker had no free descriptor at the check. The files do not change any more."""
    refusing = True

    def is_short(path: object) -> bool:
        return refusing and (where == "memfd_create" or str(path) == str(folder.keys))

    def short_of(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *more: Any, **named: Any) -> Any:
            if is_short(path):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return real(path, *more, **named)

        return call

    async with watched(folder) as reloads:
        if where == "open":
            monkeypatch.setattr(io, "open", short_of(io.open))  # what Path.open calls
        else:
            monkeypatch.setattr(os, "memfd_create", short_of(os.memfd_create))
        folder.issue().pem_file(folder.keys.with_name("next")).rename(folder.keys)
        await until(lambda: reloads.failures == 1)
        assert not folder.has_changed
        refusing = False
        await until(lambda: folder.has_changed)


async def test_another_subject_or_other_names_need_leave(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    reloads = folder.reloads()
    folder.issue(common_name="somebody else").pem_file(folder.keys)
    with pytest.raises(
        ConfigError, match=r"the new certificate is of 'CN=somebody else.*ssl\.allow\.dn\.changes"
    ):
        await reloads.reload(NAME)
    folder.properties["ssl.allow.dn.changes"] = "true"
    folder.issue("elsewhere", common_name="somebody else").pem_file(folder.keys)
    with pytest.raises(ConfigError, match=r"is for \['elsewhere'\], the old one for \['localhost'\]"):
        await reloads.reload(NAME)
    folder.properties["ssl.allow.san.changes"] = "true"
    await reloads.reload(NAME)
    assert folder.has_changed


async def test_brokers_that_have_not_changed_yet_must_be_able_to_connect(tmp_path: Path) -> None:
    folder = Folder(tmp_path, between_brokers=True, ssl_client_auth="required")
    reloads = folder.reloads()
    old, other = folder.authority, Authority()
    first = folder.keys.read_text()
    folder.authority = other
    folder.issue().pem_file(folder.keys)
    with pytest.raises(
        ConfigError, match="nodes could not connect to each other: the old trust store refuses"
    ):
        await reloads.reload(NAME)
    # The way to another authority: trust both, then change the certificates, then trust the new one alone.
    folder.keys.write_text(first)
    folder.trust.write_text(old.pem + other.pem)
    await reloads.reload(NAME)
    folder.issue().pem_file(folder.keys)
    await reloads.reload(NAME)
    folder.trust.write_text(other.pem)
    await reloads.reload(NAME)
    with pytest.raises(ssl.SSLError):
        check_handshake(folder.tls.accepting, folder.first.dialling, HOST)


async def test_settings_that_change_are_used_and_wrong_ones_are_not(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    reloads = folder.reloads()
    reloads.reconfigured()
    await asyncio.sleep(0.05)
    assert not folder.has_changed, "nothing has changed"
    changed = folder.properties | {"listener.name.clients.ssl.enabled.protocols": "TLSv1.3"}
    await reloads.check(changed)
    assert not folder.has_changed, "only checked"
    with pytest.raises(ConfigError, match=r"/nowhere: cannot be read"):
        await reloads.check(folder.properties | {"listener.name.clients.ssl.truststore.location": "/nowhere"})
    folder.properties = changed
    reloads.reconfigured()
    await until(lambda: folder.has_changed)
    with pytest.raises(ssl.SSLError):
        check_handshake(
            folder.tls.accepting, client_context(TlsRules(("TLSv1.2",)), None, folder.first.trusted), HOST
        )
    before = folder.tls.loaded
    folder.properties = changed | {"listener.name.clients.ssl.client.auth": "maybe"}
    reloads.reconfigured()
    await until(lambda: reloads.failures == 1)
    assert folder.tls.loaded is before
    assert "goes on with its old keys" in caplog.text
    await reloads.close()


async def test_the_time_that_is_left_is_told(folder: Folder) -> None:
    (left,) = folder.reloads().expiries(datetime.now(UTC).timestamp()).values()
    assert left > 0


async def test_what_has_expired_is_renewed_among_brokers(tmp_path: Path) -> None:
    """Every peer rejects the expired certificate, so it is no reason to keep it, but the other brokers' trust is."""
    folder = Folder(tmp_path, between_brokers=True, ssl_client_auth="required")
    reloads = folder.reloads()
    now = datetime.now(UTC)
    folder.issue(not_after=now - timedelta(hours=1)).pem_file(folder.keys)
    expired = load_tls(
        tls_settings(folder.properties, NAME), reached_by_clients(HOST), now - timedelta(days=1)
    )
    folder.tls.loaded = expired
    stranger = Authority()
    of_stranger = stranger.issue(HOST, common_name="broker", organization="Firm", organization_unit="x")
    of_stranger.pem_file(folder.keys)
    folder.trust.write_text(stranger.pem)
    with pytest.raises(ConfigError, match="the old trust store refuses the new certificate"):
        await reloads.reload(NAME)
    folder.trust.write_text(folder.authority.pem)
    folder.issue().pem_file(folder.keys)
    await reloads.reload(NAME)
    assert folder.tls.loaded is not expired


async def test_the_quorums_listener_of_a_broker_is_renewed_under_any_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers dial the quorum, but no peer dials brokers at this listener, so the certificate's
    hosts are irrelevant.
    """
    folder = Folder(tmp_path, ssl_allow_san_changes="true")
    folder.issue("of-no-host").pem_file(folder.keys)
    first = load_tls(tls_settings(folder.properties, NAME, between_nodes=True), None, datetime.now(UTC))
    assert first.remarks == ()
    own = ListenerTls(first)
    reloads = TlsReloads(
        {NAME: ReloadedListener(own, None, is_between_nodes=True)}, lambda: folder.properties, 0
    )
    reloads.reconfigured()
    await reloads.check(folder.properties | {"log.retention.ms": "1"})
    await asyncio.sleep(0.05)
    assert own.loaded is first, "nothing of it has changed"
    folder.issue("of-no-host").pem_file(folder.keys)
    await reloads.reload(NAME)
    assert own.loaded is not first
    assert own.accepting.verify_mode is ssl.CERT_REQUIRED
    folder.authority = Authority()
    folder.issue("of-no-host").pem_file(folder.keys)
    with pytest.raises(ConfigError, match="nodes could not connect to each other"):
        await reloads.reload(NAME)
    await reloads.close()
