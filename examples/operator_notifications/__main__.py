"""The back-end: lets Peik link operators to their chats by code, and notifies them of their tasks.

PEIK_KEY=… BACKEND_KEY=… python -m examples.operator_notifications
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from examples.operator_notifications.courier import Courier, Link, Refused
from examples.operator_notifications.notices import Notices, language_of
from examples.operator_notifications.results import Results

PHOTO_BYTES_MAX = 10 * 1024 * 1024  # Telegram's limit for photos
SIGNED_S = 300  # how old a signature may be
log = logging.getLogger(__name__)


class Backend:
    def __init__(self, courier: Courier, results: Results, given: Mapping[str, str]) -> None:
        self._courier = courier
        self._results = results
        self._key = given["BACKEND_KEY"]
        self._secret = given.get("RESULTS_SECRET", "")
        self._notices = Notices(courier, results_url=given.get("RESULTS_URL") or None)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=PHOTO_BYTES_MAX + 65536, middlewares=[self._guard])
        app.router.add_post("/operators/{operator}/code", self.give_code)
        app.router.add_get("/operators/{operator}", self.show)
        app.router.add_post("/operators/{operator}/tasks", self.assign)
        app.router.add_post("/results", self.hear)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Whoever may ask for codes may read what operators are told. Results carry a signature instead."""
        said = request.headers.get("Authorization", "").encode()
        if request.path != "/results" and not hmac.compare_digest(said, f"Bearer {self._key}".encode()):
            raise web.HTTPUnauthorized
        answer: web.StreamResponse = await handler(request)
        return answer

    # ---- for the company's own programs ----

    async def give_code(self, request: web.Request) -> web.Response:
        """The url is for the operator alone: whoever opens it first is linked. Peik answers him, and keeps the link."""
        with _told():
            made = await self._courier.new_code(request.match_info["operator"])
        return web.json_response({name: made[name] for name in ("code", "url", "expires_at")})

    async def show(self, request: web.Request) -> web.Response:
        link = await self._link(request)
        return web.json_response({"chat_id": link.chat_id, "language": language_of(link.language)})

    async def _link(self, request: web.Request) -> Link:
        with _told():
            link = await self._courier.find(request.match_info["operator"])
        if link is None:
            raise web.HTTPNotFound(text="This operator has linked no chat.")
        return link

    async def assign(self, request: web.Request) -> web.Response:
        """A form: `task` as JSON {number, address, latitude, longitude, report: [lines]}, and perhaps a file `photo`. Ask
        again after a 503 or a broken connection: what was accepted already is not sent twice."""
        link = await self._link(request)
        form = await request.post()
        try:
            task = json.loads(str(form["task"]))
            number, address, report = int(task["number"]), str(task["address"]), [str(line) for line in task["report"]]
            place = {"latitude": float(task["latitude"]), "longitude": float(task["longitude"])}
        except (KeyError, TypeError, ValueError) as error:
            raise web.HTTPUnprocessableEntity(text=f"The task cannot be read: {error!r}") from None
        photo = form.get("photo")
        with _told():
            letters = [await self._notices.task_assigned(link, number, address)]
            if isinstance(photo, web.FileField):
                letters.append(await self._notices.photo(link, number, photo.file.read(), photo.content_type))
            letters.append(await self._notices.report(link, number, report))
            letters.append(await self._notices.location(link, number, **place))
        return web.json_response({"letters": letters}, status=202)

    # ---- for Peik ----

    async def hear(self, request: web.Request) -> web.Response:
        """The end of a letter. It may come twice; to note it twice changes nothing."""
        body = await request.read()
        if not is_signed(self._secret, request.headers, body, now=time.time()):
            raise web.HTTPUnauthorized
        letter = json.loads(body)["data"]
        await self._results.note(letter["id"], letter["state"])
        return web.Response(status=204)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What Peik refuses, or that it is out of reach, in the words of this back-end."""
    try:
        yield
    except Refused as error:
        raise web.HTTPUnprocessableEntity(text=str(error)) from None
    except (aiohttp.ClientError, TimeoutError):
        raise web.HTTPServiceUnavailable(text="Peik is out of reach. Ask again.") from None


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, *, now: float) -> bool:
    """Whether Peik has signed this, lately. Without a secret nothing is."""
    sent_at = headers.get("webhook-timestamp", "")
    if not secret or not sent_at.isdecimal() or abs(now - int(sent_at)) > SIGNED_S:
        return False
    signed = f"{headers.get('webhook-id', '')}.{sent_at}.".encode() + body
    right = hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256)
    expected = b"v1," + base64.b64encode(right)
    return any(hmac.compare_digest(expected, one.encode()) for one in headers.get("webhook-signature", "").split())


async def run(given: Mapping[str, str]) -> None:
    """Until it is cancelled."""
    results = Results(Path(given.get("BACKEND_FILE", "operators.db")))
    async with aiohttp.ClientSession() as http:
        backend = Backend(
            Courier(http, given.get("PEIK_URL", "http://127.0.0.1:8081"), given["PEIK_KEY"]), results, given
        )
        runner = web.AppRunner(backend.app())
        await runner.setup()
        try:
            port = int(given.get("BACKEND_PORT", "8090"))
            await web.TCPSite(runner, "127.0.0.1", port).start()
            log.info("The back-end listens on http://127.0.0.1:%d", port)
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(os.environ))
