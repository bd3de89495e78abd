"""Options by which brokers reach the source of a mirror: accepted options, and secret ones."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path

import pytest

from ottla.cli.nodes import mirror_sources
from ottla.cli.nodes.mirror_sources import ClientSources
from ottla.client.foreign_names import is_secret
from ottla.client.security.options import SecurityOptions
from ottla.dataplane.mirroring.options import MirrorOptions
from ottla.dataplane.mirroring.source import unreachable
from ottla.dataplane.mirroring.source_check import SourceCheck
from ottla.dataplane.security.sealing import Sealer
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from ottla.protocol.messages.mirror_records import MirrorOption
from tests.certificates import Authority


def test_what_is_a_secret_for_clients_is_one_for_brokers() -> None:
    """Brokers know the names without loading the client."""
    texts = {field.name for field in fields(SecurityOptions)}.difference(mirror_sources.FOR_PROGRAMS)
    assert ClientSources.secrets == set(filter(is_secret, texts))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"security_protocl": "SSL"}, "did you mean 'security_protocol'"),
        ({"ssl_context": "x"}, "no option 'ssl_context'"),
        (
            {"security_protocol": "SSL", "ssl_check_hostname": "perhaps"},
            "ssl_check_hostname is true or false",
        ),
        ({"sasl_mechanism": "PLAIN"}, "needs security_protocol"),
    ],
)
async def test_options_that_cannot_be_are_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(KafkaError, match=said) as refusal:
        ClientSources(1).open("localhost:9092", options)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


async def test_bootstrap_servers_that_cannot_be_are_refused() -> None:
    with pytest.raises(KafkaError, match="no bootstrap server"):
        ClientSources(1).open("localhost:no", {})


def refusal(options: dict[str, str], *allowed: Path, servers: str = "localhost:9092") -> str:
    with pytest.raises(KafkaError) as refused:
        ClientSources(1, allowed).open(servers, options)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    return refused.value.message


@pytest.mark.parametrize("option", mirror_sources.FILES)
async def test_files_of_a_broker_are_not_for_whoever_creates_mirrors(option: str, tmp_path: Path) -> None:
    """Neither those outside of the folders that are set apart, nor by a way around; and nothing tells what there is."""
    apart = tmp_path / "apart"
    apart.mkdir()
    secret, there = tmp_path / "broker.pem", apart / "there.pem"
    for file in (secret, there):
        file.write_text("no pem")
    (apart / "link.pem").symlink_to(secret)
    (apart / "circle").symlink_to(apart / "circle")
    tls = {"security_protocol": "SSL", "ssl_certfile": str(there)}
    kerberos = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_principal": "x",
    }
    others = kerberos if "kerberos" in option else tls
    refusals = {
        refusal(others | {option: str(path)}, apart)
        for path in (
            secret, tmp_path / "missing.pem", apart / "link.pem", apart / "circle", apart / ".." / "broker.pem",
            f"{apart}x", "there.pem", tmp_path, "/etc/passwd", "/proc/self/environ", f"FILE:{there}", f"{there}\0",
        )
    }  # fmt: skip
    (text,) = refusals
    assert "mirror.allowed.paths alone" in text
    assert str(tmp_path) not in text
    assert refusal(others | {option: str(there)}) != "", "none is allowed where no folder is"


async def test_files_in_folders_that_are_set_apart_are_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "real")
    issued = authority.issue("a", "a.test")
    (tmp_path / "apart").symlink_to(tmp_path / "real")
    for folder in ("real", "apart"):
        files = {
            "ssl_cafile": str(tmp_path / folder / authority.file.name),
            "ssl_certfile": str(tmp_path / folder / issued.certificate.relative_to(tmp_path / "real")),
            "ssl_keyfile": str(tmp_path / folder / issued.key.relative_to(tmp_path / "real")),
        }
        source = ClientSources(1, [tmp_path / folder]).open(
            "localhost:9092", {"security_protocol": "SSL"} | files
        )
        await source.close()
    assert refusal(
        {"security_protocol": "SSL", "ssl_cafile": str(tmp_path / "real/none")}, tmp_path / "real"
    ) == unreachable(1)


async def test_contents_may_be_sent_instead_of_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("a", "a.test")
    contents = {
        "security_protocol": "SSL",
        "ssl_cadata": authority.file.read_text(),
        "ssl_certdata": issued.certificate.read_text(),
        "ssl_keydata": issued.key.read_text(),
    }
    await ClientSources(1).open("localhost:9092", contents).close()
    assert "a secret: it goes into ssl_keydata" in refusal(
        contents | {"ssl_certdata": issued.certificate.read_text() + issued.key.read_text()}
    )


async def test_tickets_of_the_brokers_user_are_not_for_mirrors() -> None:
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    assert "needs sasl_kerberos_keytab" in refusal(options)


@asynccontextmanager
async def speaking(answer: bytes) -> AsyncIterator[int]:
    """Listen on a port as a server that is not Kafka."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def test_an_answer_tells_nothing_of_the_ports_of_the_brokers_network(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    trial = SourceCheck(1, ClientSources(1), MirrorOptions(Sealer([b"secret"])))
    password = {"sasl_plain_username": "ann", "sasl_plain_password": "pw"}
    answers = set()
    closed = closed_port()
    async with speaking(b"SSH-2.0-OpenSSH_9.2p1\r\n") as ssh, speaking(b"") as silent:
        for port in (closed, ssh, silent):
            for options in (
                {},
                {"security_protocol": "SSL", "ssl_cadata": authority.file.read_text()},
                {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"} | password,
                {
                    "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
                    "sasl_oauthbearer_token_endpoint_url": f"http://127.0.0.1:{port}/token",
                    "sasl_oauthbearer_client_id": "ann", "sasl_oauthbearer_client_secret": "pw",
                },
            ):  # fmt: skip
                given = [MirrorOption(name=name, value=value) for name, value in options.items()]
                with pytest.raises(KafkaError) as refused:
                    async with trial.reached("m", f"127.0.0.1:{port}", given):
                        pass
                answers.add((refused.value.code, refused.value.message))
    assert answers == {(ErrorCode.INVALID_REQUEST, unreachable(1))}
    of_the_mirror = [line for line in caplog.messages if line.startswith("the source of the new mirror 'm'")]
    assert len(of_the_mirror) == 12
    assert not any("log of broker" in line for line in of_the_mirror), "each line has the reason itself"
    assert f"no broker answers at 127.0.0.1:{closed}" in of_the_mirror[0]
    assert "refused" in of_the_mirror[0]


def test_the_answer_says_whose_log_has_the_reason() -> None:
    assert "log of broker 7" in unreachable(7)
    assert "ottla-data/logs/broker-7.log" in unreachable(7)


async def test_a_source_that_names_ports_of_others_as_its_brokers_learns_nothing_of_them() -> None:
    async with speaking(b"SSH-2.0-OpenSSH_9.2p1\r\n") as ssh:
        source = ClientSources(1).open("127.0.0.1:1", {})
        ports = {1: closed_port(), 2: ssh}
        source._cluster.metadata.update(
            MetadataResponse(
                brokers=[
                    MetadataResponseBroker(node_id=broker_id, host="127.0.0.1", port=port)
                    for broker_id, port in ports.items()
                ]
            )
        )
        for broker_id in ports:
            with pytest.raises(KafkaError) as refused:
                await source.ask(broker_id, MetadataRequest(topics=[]))
            assert refused.value.message == unreachable(1)
            assert refused.value.code.retriable, "a source may come back"
        await source.close()
