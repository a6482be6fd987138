"""Tunnels through real little proxies, and every way in which a proxy says no: nothing has left then."""

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from peik.core.outcome import NetworkFault, Reply
from peik.errors import StartError
from peik.settings.config import Config, load
from peik.telegram.connect import (
    HEAD_BYTES_MAX,
    Connect,
    NoTunnel,
    Proxy,
    Talk,
    http_talk,
    socks5_talk,
    through_http,
    through_socks5,
)
from peik.testing import SimServer, Telegram
from tests.telegram.conftest import Run
from tests.telegram.peers import OK, SECRET, TOKEN, answering, call, carrier_to, peer, until
from tests.telegram.proxies import HttpProxy, LittleProxy, SocksProxy, alive
from tests.telegram.test_faults import unused_port

Through = Callable[..., Connect]
LOGIN = ("mehri", "p@ss:word/ü")
KINDS = pytest.mark.parametrize(("kind", "through"), [(HttpProxy, through_http), (SocksProxy, through_socks5)])
THROUGHS = pytest.mark.parametrize("through", [through_http, through_socks5])


def way(
    through: Through,
    proxy_port: int,
    api_root: str,
    *,
    tls: ssl.SSLContext | None = None,
    login: tuple[str, str] = ("", ""),
) -> Connect:
    host, _, port = api_root.rpartition("/")[2].rpartition(":")
    proxy = Proxy(host="127.0.0.1", port=proxy_port, user=login[0], password=login[1])
    return through(proxy, host=host, port=int(port), ssl_context=tls)


async def ask(through: Through, proxy_port: int, api_root: str = "http://far.test:80", **more: object) -> Reply:
    connect = way(through, proxy_port, api_root, **more)  # type: ignore[arg-type]
    async with carrier_to(api_root, connect=connect) as carrier:
        return await carrier.carry(call())


@KINDS
@pytest.mark.parametrize("login", [None, LOGIN], ids=["open", "login"])
def test_calls_go_through_and_the_proxy_looks_the_name_up(
    run: Run, kind: type[LittleProxy], through: Through, login: tuple[str, str] | None
) -> None:
    async def story() -> None:
        proxy = kind(login=login, hosts={"telegram.test": "127.0.0.1"})
        telegram = Telegram(now=time.time)
        telegram.bot(TOKEN.reveal())
        async with SimServer(telegram, "127.0.0.1", 0) as sim, alive(proxy):
            root = sim.url.replace("127.0.0.1", "telegram.test")  # no resolver on this machine knows that name
            connect = way(through, proxy.port, root, login=login or ("", ""))
            async with carrier_to(root, connect=connect) as carrier:
                for number in range(3):
                    params = b'{"chat_id": 7, "text": "%d"}' % number
                    assert (await carrier.carry(call(params, method="sendMessage"))).status == 200
        assert telegram.sent.texts(7) == ["0", "1", "2"]
        assert [host for host, _ in proxy.asked] == ["telegram.test"], "one tunnel is kept for all three"

    run(story())


@KINDS
def test_tls_is_made_with_the_far_host_inside_the_tunnel(
    run: Run, kind: type[LittleProxy], through: Through, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def story() -> None:
        proxy = kind(hosts={"other.test": "localhost"})
        async with peer(answering(OK), tls=server_tls) as root, alive(proxy):
            assert (await ask(through, proxy.port, root, tls=client_tls)).status == 200
            untrusted = await ask(through, proxy.port, root, tls=ssl.create_default_context())
            misnamed = await ask(through, proxy.port, root.replace("localhost", "other.test"), tls=client_tls)
        for reply in (untrusted, misnamed):
            assert (reply.fault, reply.left) == (NetworkFault.TLS, False)

    run(story())


@KINDS
def test_a_proxy_that_dies_cuts_the_tunnel_and_one_that_lives_again_is_used_again(
    run: Run, kind: type[LittleProxy], through: Through
) -> None:
    async def story() -> None:
        proxy = kind()
        async with (
            peer(answering(OK)) as root,
            alive(proxy),
            carrier_to(root, connect=way(through, proxy.port, root)) as carrier,
        ):
            assert (await carrier.carry(call())).status == 200
            await proxy.kill()
            await until(lambda: not carrier._connections)
            dead = await carrier.carry(call())
            assert (dead.fault, dead.left) == (NetworkFault.REFUSED, False)
            assert "the proxy cannot be reached" in dead.detail
            await proxy.revive()
            assert (await carrier.carry(call())).status == 200

    run(story())


@THROUGHS
def test_a_proxy_whose_name_nobody_knows_fails_as_dns(run: Run, through: Through) -> None:
    async def story() -> None:
        connect = through(Proxy(host="no.such.invalid", port=1), host="far.test", port=80, ssl_context=None)
        async with carrier_to("http://far.test", connect=connect) as carrier:
            reply = await carrier.carry(call())
        assert (reply.fault, reply.left) == (NetworkFault.DNS, False)
        assert "the proxy's name" in reply.detail

    run(story())


@pytest.mark.parametrize("login", [("", ""), ("mehri", "wrong")], ids=["none", "wrong"])
@KINDS
def test_a_login_that_is_not_taken_is_told_without_the_password(
    run: Run, kind: type[LittleProxy], through: Through, login: tuple[str, str]
) -> None:
    async def story() -> None:
        proxy = kind(login=LOGIN)
        async with alive(proxy):
            reply = await ask(through, proxy.port, login=login)
        assert (reply.fault, reply.left) == (NetworkFault.REFUSED, False)
        assert "user and" in reply.detail
        assert "wrong" not in reply.detail
        assert proxy.asked == []

    run(story())


NOS = [
    (through_http, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\n<html>", "answered 403 Forbidden"),
    (through_http, b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "answered 502 Bad Gateway"),
    (through_http, b"HTTP/1.1 302\r\nLocation: http://filter.test\r\n\r\n", "answered 302"),
    (through_http, b"HTTP/1.1 200 OK\r\n\r\n<html>blocked</html>", "a page of its own"),
    (through_http, b"SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP"),
    (through_http, b"HTTP/1.1 200", "closed the connection"),
    (through_http, b"x" * (HEAD_BYTES_MAX + 1), "says too much"),
    (through_socks5, b"", "closed the connection"),
    (through_socks5, b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak SOCKS5"),
    (through_socks5, b"\x05\xff", "wants a user and a password"),
    (through_socks5, b"\x05\x00\x05\x01\x00\x01\0\0\0\0\0\0", "could not connect: general failure"),
    (through_socks5, b"\x05\x00\x05\x02\x00\x01\0\0\0\0\0\0", "its rules forbid"),
    (through_socks5, b"\x05\x00\x05\x05\x00\x01\0\0\0\0\0\0", "refused the connection"),
    (through_socks5, b"\x05\x00\x05\x63\x00\x01\0\0\0\0\0\0", "code 99"),
    (through_socks5, b"\x05\x00\x05\x00\x00\x07", "does not speak SOCKS5"),
]


@pytest.mark.parametrize(("through", "says", "detail"), NOS, ids=[f"{no[0].__name__}: {no[2]}" for no in NOS])
def test_each_no_of_a_proxy_has_its_words_and_nothing_left(
    run: Run, through: Through, says: bytes, detail: str
) -> None:
    async def story() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(says)
            writer.write_eof()
            await reader.read()

        async with peer(talk) as proxy:
            reply = await ask(through, int(proxy.rpartition(":")[2]))
        assert (reply.fault, reply.left, reply.status) == (NetworkFault.REFUSED, False, 0)
        assert detail in reply.detail
        assert SECRET not in reply.detail

    run(story())


@THROUGHS
def test_a_proxy_that_says_nothing_costs_the_time_to_connect_and_no_more(run: Run, through: Through) -> None:
    async def story() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with peer(silent) as proxy:
            connect = way(through, int(proxy.rpartition(":")[2]), "http://far.test:80")
            async with carrier_to("http://far.test", connect=connect, connect_timeout_s=0.05) as carrier:
                reply = await carrier.carry(call())
        assert (reply.fault, reply.left) == (NetworkFault.CONNECT_TIMEOUT, False)

    run(story())


def test_nobody_listens_where_the_proxy_should_be(run: Run) -> None:
    async def story() -> None:
        reply = await ask(through_socks5, unused_port())
        assert (reply.fault, reply.left) == (NetworkFault.REFUSED, False)

    run(story())


# ---- the talks by themselves ----


def said(talk: Talk, *heard: bytes) -> list[bytes]:
    """All that our side says, while the other says these."""
    ours = [next(talk).say]
    for number, one in enumerate(heard, 1):
        try:
            ours.append(talk.send(one).say)
        except StopIteration:
            assert number == len(heard), "it ended before it had heard everything"
    return [say for say in ours if say]


BARE = Proxy(host="proxy.test", port=1)
GRANTED = b"HTTP/1.1 200 OK\r\n\r\n"


def test_connect_names_the_far_host_as_the_protocol_writes_it() -> None:
    (name,) = said(http_talk(BARE, host="api.telegram.org", port=443), GRANTED)
    assert name == b"CONNECT api.telegram.org:443 HTTP/1.1\r\nHost: api.telegram.org:443\r\n\r\n"
    (six,) = said(http_talk(BARE, host="2001:db8::1", port=443), GRANTED)
    assert six.startswith(b"CONNECT [2001:db8::1]:443 ")
    (script,) = said(http_talk(BARE, host="پیک.test", port=443), GRANTED)
    assert script.startswith(b"CONNECT xn--")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("api.telegram.org", b"\x03\x10api.telegram.org"),
        ("192.0.2.1", b"\x01\xc0\x00\x02\x01"),
        ("2001:db8::1", b"\x04\x20\x01\x0d\xb8" + bytes(11) + b"\x01"),
    ],
)
@pytest.mark.parametrize("bound", [b"\x01" + bytes(6), b"\x04" + bytes(18), b"\x03\x02ab\0\0"], ids=["4", "6", "name"])
def test_socks_names_the_far_host_and_reads_any_answer_to_its_end(host: str, address: bytes, bound: bytes) -> None:
    parts = [bound[1:2], bound[2:]] if bound[0] == 3 else [bound[1:]]
    _, request = said(socks5_talk(BARE, host=host, port=443), b"\x05\x00", b"\x05\x00\x00" + bound[:1], *parts)
    assert request == b"\x05\x01\x00" + address + b"\x01\xbb"


def test_a_name_too_long_for_socks_is_no_tunnel() -> None:
    with pytest.raises(NoTunnel, match="too long"):
        said(socks5_talk(BARE, host="x" * 256, port=1), b"\x05\x00")


def test_a_proxy_never_shows_its_password() -> None:
    assert "word" not in repr(Proxy(host="proxy.test", port=1, user="mehri", password="word"))


# ---- PEIK_ROUTES ----


def routes_of(text: str, **more: str) -> list[tuple[str, str]]:
    return [(route.kind.value, route.name) for route in config_of(text, **more).routes]


def config_of(text: str, **more: str) -> Config:
    return load({"routes": text, **more}, environment={}, folder=Path("/nonexistent"))


def test_routes_are_named_without_their_secrets() -> None:
    written = "direct, http://u:p@one.test:3128, socks5h://u:p@[::1]:1080, mirror+https://m.test/secret, local+http://127.0.0.1:8081"
    assert routes_of(written) == [
        ("direct", "direct"),
        ("http", "http://one.test:3128"),
        ("socks5", "socks5://[::1]:1080"),
        ("mirror", "mirror+https://m.test"),
        ("local", "local+http://127.0.0.1:8081"),
    ]
    assert "secret" not in repr(config_of(written).routes)


def test_a_login_is_read_as_urls_write_it() -> None:
    (route,) = config_of("socks5://mehri:p%40ss%3Aword%2F%C3%BC@h:1").routes
    assert (route.user, route.password) == LOGIN


def test_routes_that_look_alike_are_told_apart() -> None:
    names = [name for _, name in routes_of("socks5://a:1@h:1,socks5://b:2@h:1,mirror+https://m/a,mirror+https://m/b")]
    assert names == ["socks5://h:1", "socks5://h:1 #2", "mirror+https://m", "mirror+https://m #2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("direct,direct", "route 2: direct is there twice"),
        (",", "names no route"),
        ("http://host", "looks like http://host:port"),
        ("socks5://u:hidden/x@host:1", "%2F"),
        ("socks5://u:hid#den@host:1", "looks like"),
        ("direct,https://u:hidden@host:1", "mirror+https://"),
        ("tg://proxy?server=x&secret=hidden", "MTProto"),
        ("ftp://u:hidden@host", "none of direct"),
        ("mirror+https://u:hidden@host/", "an API root looks like"),
        ("mirror+https://", "an API root looks like"),
        (f"http://u:{'hidden' * 50}@host:1", "too long"),
    ],
)
def test_what_is_no_route_is_refused_with_the_way_to_write_it(text: str, words: str) -> None:
    with pytest.raises(StartError) as refused:
        config_of(text)
    assert str(refused.value).startswith("PEIK_ROUTES: ")
    assert words in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_the_largest_file_is_what_the_smallest_of_the_routes_takes() -> None:
    cloud, local = 50 * 1024 * 1024, 2000 * 1024 * 1024
    assert config_of("direct").upload_bytes_max == cloud
    assert config_of("local+http://127.0.0.1:8081").upload_bytes_max == local
    assert config_of("local+http://127.0.0.1:8081,socks5://h:1").upload_bytes_max == cloud
    assert config_of("mirror+https://m.test", api_root="http://own.test").upload_bytes_max == cloud
    assert config_of("direct", api_root="http://own.test").upload_bytes_max == local
