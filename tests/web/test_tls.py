"""HTTPS: the certificate that is shown, which versions are spoken, a renewal under way, and whom Peik itself believes."""

import asyncio
import contextlib
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import uvicorn
import uvloop

from peik.errors import StartError
from peik.outbox.store import Posted
from peik.settings.config import load
from peik.telegram.connect import client_context, own_context
from peik.telegram.push import HttpPoster
from peik.web.server import KEEP_ALIVE_S, Certificate, GuardedProtocol, GuardedServer, certificate_of, sweep
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, TOKEN, served
from tests.web.certificates import Authority
from tests.web.test_listening import LARGE_BYTES, read_all


@contextlib.asynccontextmanager
async def listening(certificate: Certificate) -> AsyncIterator[int]:
    async with serving(certificate) as (_, port):
        yield port


@contextlib.asynccontextmanager
async def serving(certificate: Certificate) -> AsyncIterator[tuple[GuardedServer, int]]:
    config = uvicorn.Config(
        read_all,
        http=GuardedProtocol,
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=1,
        ssl_context_factory=lambda _, __: certificate.context,
    )
    server = GuardedServer(config)
    listener = socket.create_server(("127.0.0.1", 0))
    running = asyncio.create_task(server._serve([listener]))
    try:
        yield server, listener.getsockname()[1]
    finally:
        server.should_exit = True
        await running


async def shown(port: int, context: ssl.SSLContext) -> int:
    """The serial number of the certificate that a new connection sees, after a whole exchange."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"0")
        return int(writer.get_extra_info("peercert")["serialNumber"], 16)
    finally:
        writer.close()


def touch_later(*paths: Path) -> None:
    """As if some time had passed: two writes within a moment may have the same time."""
    for path in paths:
        stat = path.stat()
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 5_000_000_000))


def test_a_slow_client_gets_all_of_an_answer_though_nothing_else_is_asked(tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        cert, key, _ = authority.certify("peik")
        async with serving(Certificate(cert, key)) as (server, port):
            context = client_context(authority.path)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1024)
            writer.write(b"GET /large HTTP/1.1\r\n\r\n")
            taken = await reader.read(1)  # and no more until the connection has long been idle
            (connection,) = server.server_state.connections
            assert isinstance(connection, GuardedProtocol)
            assert connection.is_idle
            sweep([connection], asyncio.get_running_loop().time() + KEEP_ALIVE_S + 1)
            async with asyncio.timeout(PATIENCE_S):
                taken += await reader.read()
            assert len(taken.partition(b"\r\n\r\n")[2]) == LARGE_BYTES
            writer.close()

    uvloop.run(story())


def test_a_renewed_certificate_is_shown_without_a_restart_and_a_broken_one_never(tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        cert, key, first = authority.certify("peik")
        told: list[str] = []
        certificate = Certificate(cert, key, tell=told.append)
        context = client_context(authority.path)
        async with listening(certificate) as port:
            assert await shown(port, context) == first
            old = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            assert not certificate.refresh()

            another, _, second = authority.certify("another")
            cert.write_bytes(another.read_bytes())  # a renewal that has written one of two files so far
            touch_later(cert)
            assert not certificate.refresh()
            assert "old one stays" in told[-1]
            assert await shown(port, context) == first
            cert.unlink()
            assert not certificate.refresh()
            assert await shown(port, context) == first

            cert.write_bytes(another.read_bytes())
            key.write_bytes((tmp_path / "another.key").read_bytes())
            touch_later(cert, key)
            assert certificate.refresh()
            assert not certificate.refresh()
            assert await shown(port, context) == second
            old[1].write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert (await old[0].read()).endswith(b"0"), "a connection from before goes on"
            old[1].close()

    asyncio.run(story())


def test_nothing_older_than_tls_1_2_and_no_plain_http_is_spoken(tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        certificate = Certificate(*authority.certify("peik")[:2])
        assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2
        async with listening(certificate) as port:
            old = client_context(authority.path)
            with pytest.warns(DeprecationWarning, match="TLSv1_1"):
                old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
            old.set_ciphers("ALL:@SECLEVEL=0")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await shown(port, old)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"HTTP" not in await reader.read()
            writer.close()
            assert await shown(port, client_context(authority.path))

    asyncio.run(story())


def test_what_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key, _ = authority.certify("peik")
    other_key = authority.certify("other")[1]
    (tmp_path / "noise").write_text("no certificate")

    def start(**settings: str) -> Certificate | None:
        return certificate_of(load(settings, environment={}, folder=tmp_path), tell=lambda what: None)

    assert start() is None
    assert start(tls_cert=str(cert), tls_key=str(key)) is not None
    for settings in ({"tls_cert": str(cert)}, {"tls_key": str(key)}):
        with pytest.raises(StartError, match="belong together"):
            start(**settings)
    for one, another in (
        (cert, other_key),
        (cert, tmp_path / "noise"),
        (tmp_path / "noise", key),
        (tmp_path / "x", key),
    ):
        with pytest.raises(StartError, match="cannot be used"):
            start(tls_cert=str(one), tls_key=str(another))
    with pytest.raises(StartError, match="PEIK_CA_FILE"):
        client_context(tmp_path / "noise")
    with pytest.raises(StartError, match="PEIK_CA_FILE"):
        client_context(tmp_path / "x")


def test_certificates_of_ones_own_are_believed_only_if_the_settings_say_so(tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        cert, key, _ = authority.certify("peik")
        stranger = authority.certify("stranger")[0]
        async with listening(Certificate(cert, key)) as port:
            url = f"https://127.0.0.1:{port}/"
            for context, status in ((None, 0), (client_context(authority.path), 200), (own_context(cert), 200)):
                poster = HttpPoster(may_be_private=True, ssl_context=context)
                posted = await poster.post(url, {}, b"", timeout_s=10)
                assert posted.status == status, (context, posted)
            named = HttpPoster(may_be_private=True, ssl_context=client_context(authority.path))
            # Another name than the certificate's is refused, also by an authority that is believed.
            assert isinstance(refused := await named.post(f"https://localhost:{port}/", {}, b"", timeout_s=10), Posted)
            assert refused.status == 0
            other = HttpPoster(may_be_private=True, ssl_context=own_context(stranger))
            assert (await other.post(url, {}, b"", timeout_s=10)).status == 0

    asyncio.run(story())


def test_peik_serve_speaks_https_by_its_settings_and_its_command_line_finds_it(tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        cert, key, _ = authority.certify("peik")
        connector = aiohttp.TCPConnector(ssl=client_context(authority.path))
        async with aiohttp.ClientSession(connector=connector) as http:
            way = {"tls_cert": str(cert), "tls_key": str(key), "trusted_proxies": "127.0.0.0/8"}
            async with served(tmp_path, "http://127.0.0.1:1", http, **way) as peik:
                assert peik.url.startswith("https://")
                async with http.get(f"{peik.url}/health", headers={"x-api-key": KEY}) as response:
                    health = await response.json()
                    assert response.headers["strict-transport-security"] == "max-age=31536000"
                assert "fewer than 20 characters" in health["parts"]["access"]["weak"][0]
                assert "access" not in (await peik.call("GET", "/health", key=None))[1]["parts"]
                assert any("the doors are weak" in line and "PEIK_ADMIN_KEY" in line for line in peik.output)
                # What a trusted proxy says of its client counts, and what that client said before it does not.
                forwarded = {"X-Forwarded-For": "6.6.6.6, 203.0.113.9", "X-Api-Key": KEY}
                async with http.post(
                    f"{peik.url}/v1/keys", json={"name": "a", "scopes": ["read"]}, headers=forwarded
                ) as made:
                    assert made.status == 201
                (line, *_) = (await peik.get("/v1/audit"))["audit"]
                assert line["address"] == "203.0.113.9"
                # By its own settings, and with no other authority than the system's.
                where = {
                    "PEIK_TLS_CERT": str(cert),
                    "PEIK_TLS_KEY": str(key),
                    "PEIK_PORT": str(peik.port.number),
                    "PEIK_ADMIN_KEY": KEY,
                }
                asking = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "peik", "bots", "list", "--json", cwd=tmp_path / "nowhere",
                    env=os.environ | where, stdout=asyncio.subprocess.PIPE,
                )  # fmt: skip
                said, _ = await asking.communicate()
                assert asking.returncode == 0
                assert TOKEN.partition(":")[0].encode() in said

    (tmp_path / "nowhere").mkdir()
    asyncio.run(story())
