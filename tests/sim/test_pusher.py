"""Webhook pushes over real sockets, to a real little server."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from peik.testing import Options, SimServer, Telegram, UploadedFile
from tests.patience import PATIENCE_S
from tests.sim.conftest import TOKEN
from tests.sim.wires import story
from tests.web.certificates import Authority


class Bot:
    """A bot's webhook: keeps what comes and answers what it is told to."""

    def __init__(self, *answers: web.Response) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[dict[str, str], dict]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.requests.append((dict(request.headers), await request.json()))
        return self.answers.pop(0) if self.answers else web.Response()

    def texts(self) -> list[str]:
        return [update["message"]["text"] for _, update in self.requests]


@asynccontextmanager
async def running(bot: Bot, context: ssl.SSLContext | None = None) -> AsyncIterator[Bot]:
    app = web.Application()
    app.router.add_post("/hook", bot.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    bot.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield bot
    finally:
        await runner.cleanup()


async def pushed(sim: SimServer, count: int) -> None:
    await sim.until(lambda: sim.telegram.counters.pushes["ok"] >= count, timeout=PATIENCE_S)


def local() -> Options:
    return Options(mode="local")


def test_updates_are_pushed_with_the_secret_and_acknowledged():
    async def play() -> None:
        async with running(Bot()) as bot, SimServer(options=local()) as sim:
            sim.telegram.write(TOKEN, 7, "early")
            sim.telegram.call(TOKEN, "setWebhook", {"url": bot.url, "secret_token": "s3"})
            sim.telegram.write(TOKEN, 7, "late")
            await pushed(sim, 2)
            assert bot.texts() == ["early", "late"]
            headers = bot.requests[0][0]
            assert headers["X-Telegram-Bot-Api-Secret-Token"] == "s3"
            assert headers["Content-Type"] == "application/json"
            assert sim.telegram.bot(TOKEN).queue.size == 0

    story(play())


def test_a_refused_push_comes_again_and_the_chat_stays_in_order():
    async def play() -> None:
        async with running(Bot(web.Response(status=500))) as bot, SimServer(options=local()) as sim:
            sim.telegram.call(TOKEN, "setWebhook", {"url": bot.url})
            for text in ("one", "two"):
                sim.telegram.write(TOKEN, 7, text)
            await pushed(sim, 2)
            assert bot.texts() == ["one", "one", "two"]

    story(play())


def test_a_method_in_the_answer_is_carried_out():
    async def play() -> None:
        reply = web.json_response({"method": "sendMessage", "chat_id": 7, "text": "from the hook"})
        async with running(Bot(reply)) as bot, SimServer(options=local()) as sim:
            sim.telegram.call(TOKEN, "setWebhook", {"url": bot.url})
            sim.telegram.write(TOKEN, 7, "hi")
            await pushed(sim, 1)
            assert sim.telegram.sent.texts(7) == ["from the hook"]

    story(play())


def test_a_webhook_can_be_verified_by_a_connect_and_the_old_one_is_gone_if_that_fails():
    async def play() -> None:
        options = Options(mode="local", verify_webhooks=True)
        async with running(Bot()) as bot, SimServer(options=options) as sim, aiohttp.ClientSession() as client:
            url = f"{sim.url}/bot{TOKEN}/setWebhook"
            async with client.post(url, json={"url": bot.url}) as response:
                assert (await response.json())["description"] == "Webhook was set"
            sim.telegram.bot(TOKEN).webhook_set_at = 0
            async with client.post(url, json={"url": "http://127.0.0.1:1/"}) as response:
                assert response.status == 400
                assert (
                    json.loads(await response.text())["description"] == "Bad Request: bad webhook: Connection refused"
                )
            assert sim.telegram.bot(TOKEN).webhook is None

    story(play())


def test_a_dead_webhook_leaves_its_error_behind():
    async def play() -> None:
        async with SimServer(options=local()) as sim:
            telegram: Telegram = sim.telegram
            telegram.call(TOKEN, "setWebhook", {"url": "http://127.0.0.1:1/"})
            telegram.write(TOKEN, 7, "x")
            await sim.until(lambda: telegram.counters.pushes["failed"] > 0, timeout=PATIENCE_S)
            info = telegram.call(TOKEN, "getWebhookInfo", {}).result
            assert info["last_error_message"] == "Connection refused"
            assert info["pending_update_count"] == 1

    story(play())


def test_a_webhook_goes_to_its_ip_address_and_trusts_its_own_certificate_alone(tmp_path: Path):
    async def play() -> None:
        authority = Authority(tmp_path)
        (own, key, _), (other, _, _) = authority.certify("own"), authority.certify("other")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own, key)
        async with running(Bot(), context) as bot, SimServer(options=local()) as sim:
            url = bot.url.replace("http://127.0.0.1", "https://peik.test")  # a name that nobody can look up
            for path in (other, own):
                files = {"certificate": UploadedFile(filename="cert.pem", content=path.read_bytes())}
                sim.telegram.call(TOKEN, "setWebhook", {"url": url, "ip_address": "127.0.0.1"}, files)
                if path is other:
                    sim.telegram.write(TOKEN, 7, "hi")
                    await sim.until(lambda: sim.telegram.counters.pushes["failed"] > 0, timeout=PATIENCE_S)
                    assert "certificate" in sim.telegram.call(TOKEN, "getWebhookInfo", {}).result["last_error_message"]
                    sim.telegram.bot(TOKEN).webhook_set_at = 0
            await pushed(sim, 1)
            assert bot.texts() == ["hi"]
            info = sim.telegram.call(TOKEN, "getWebhookInfo", {}).result
            assert (info["has_custom_certificate"], info["ip_address"]) == (True, "127.0.0.1")

    story(play())
