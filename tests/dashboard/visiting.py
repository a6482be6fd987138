"""A house to visit: a Peik with its doors on a real port of this process, a simulated Telegram behind it, and a browser without
JavaScript that follows links, fills in forms and keeps cookies."""

import asyncio
import contextlib
import html.parser
import io
import urllib.parse
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.abc
import uvicorn

from peik.admin.model import Scope
from peik.app import rest
from peik.app.dashboard import Dashboard
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.core.events import Event, Events, Surprise
from peik.gateway.app import Gateway
from peik.settings.config import load
from peik.testing import SimServer
from tests.processes.programs import BOT, KEY, TOKEN

__all__ = ["BOT", "KEY", "Answer", "Form", "House", "Visit", "house", "listening", "visit"]


class Form:
    """A form of a page as a browser would send it, filled with what the page put into it."""

    def __init__(self, verb: str, action: str) -> None:
        self.verb = verb
        self.action = action
        self.fields: dict[str, str] = {}
        self.buttons: list[str] = []


class _Reading(html.parser.HTMLParser):
    """The text, the links and the forms of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.forms: list[Form] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self._form: Form | None = None
        self._select = self._textarea = self._link = ""
        self._is_button = self._is_silent = False

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in given}
        self.tags.append((tag, values))
        self._is_silent = self._is_silent or tag in ("script", "style")
        if tag == "a":
            self._link = values.get("href", "")
            self.links.append((self._link, ""))
        if tag == "form":
            self._form = Form(values.get("method", "get").upper(), values.get("action", ""))
            self.forms.append(self._form)
        if self._form is not None:
            self._take_field(tag, values, self._form)

    def _take_field(self, tag: str, values: dict[str, str], form: Form) -> None:
        name = values.get("name", "")
        if tag == "input" and name:
            if values.get("type") in ("checkbox", "radio"):
                if "checked" in values:
                    form.fields[name] = values.get("value", "on")
            elif values.get("type") != "file":
                form.fields[name] = values.get("value", "")
        elif tag == "select":
            self._select = name
            form.fields.setdefault(name, "")
        elif tag == "option" and self._select and "selected" in values:
            form.fields[self._select] = values.get("value", "")
        elif tag == "textarea":
            self._textarea = name
            form.fields[name] = ""
        elif tag == "button":
            self._is_button = True
            form.buttons.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        if tag in ("script", "style"):
            self._is_silent = False
        if tag == "select":
            self._select = ""
        if tag == "textarea":
            if self._form is not None:  # browsers drop the first line end
                self._form.fields[self._textarea] = self._form.fields[self._textarea].removeprefix("\n")
            self._textarea = ""
        if tag == "button":
            self._is_button = False
        if tag == "a":
            self._link = ""

    def handle_data(self, data: str) -> None:
        if self._is_silent:
            return
        self.words.append(data)
        if self._link and self.links:
            self.links[-1] = (self.links[-1][0], self.links[-1][1] + data)
        if self._form is not None and self._textarea:
            self._form.fields[self._textarea] += data
        if self._form is not None and self._is_button:
            self._form.buttons[-1] += data


class Answer:
    """A page, and where it was found in the end."""

    def __init__(self, status: int, url: str, body: str, headers: dict[str, str], cookies: list[str]) -> None:
        self.status = status
        self.url = url
        self.body = body
        self.headers = headers
        self.cookies = cookies
        self._read = _Reading()
        self._read.feed(body)

    @property
    def text(self) -> str:
        """What people can read, in one line."""
        return " ".join(" ".join(self._read.words).split())

    @property
    def links(self) -> list[str]:
        return [url for url, _ in self._read.links]

    @property
    def forms(self) -> list[Form]:
        return self._read.forms

    @property
    def tags(self) -> list[tuple[str, dict[str, str]]]:
        return self._read.tags

    def form(self, action: str, *, button: str | None = None) -> Form:
        """The form that goes there; of several, the one with such a button."""
        found = [
            form
            for form in self.forms
            if form.action == action and (button is None or any(button in one for one in form.buttons))
        ]
        assert found, (
            f"no form to {action} on {self.url}: {[(one.action, one.buttons) for one in self.forms]}\n{self.text}"
        )
        return found[0]

    def has_form(self, action: str) -> bool:
        return any(form.action == action for form in self.forms)


class Visit:
    """One browser. It follows redirects as browsers do, and remembers where it was."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self._http = http
        self._here = ""

    @property
    def cookies(self) -> aiohttp.abc.AbstractCookieJar:
        return self._http.cookie_jar

    async def get(self, path: str, *, follow: bool = True, **headers: str) -> Answer:
        return await self._ask("GET", path, follow=follow, headers=headers)

    async def post(
        self, path: str, *, follow: bool = True, headers: dict[str, str] | None = None, **fields: str
    ) -> Answer:
        return await self._ask("POST", path, follow=follow, headers=headers or {}, data=fields)

    async def submit(self, page: Answer, action: str, *, button: str | None = None, **fields: str) -> Answer:
        """Fill in a form of a page and send it."""
        form = page.form(action, button=button)
        filled = form.fields | fields
        if form.verb == "POST":
            return await self._ask("POST", form.action, follow=True, headers={}, data=filled)
        return await self._ask("GET", f"{form.action}?{urllib.parse.urlencode(filled)}", follow=True, headers={})

    async def upload(self, page: Answer, action: str, *, name: str, body: bytes, file: str, **fields: str) -> Answer:
        """The same with a file in it."""
        data = aiohttp.FormData()
        for field, value in (page.form(action).fields | fields).items():
            data.add_field(field, value)
        data.add_field(name, io.BytesIO(body), filename=file, content_type="application/octet-stream")
        return await self._ask("POST", action, follow=True, headers={}, data=data)

    def stream(self, path: str) -> Any:
        """An answer that goes on, to be read as it comes."""
        return self._http.get(self.url + path)

    async def sign_in(self, key: str = KEY) -> Answer:
        page = await self.get("/admin/sign-in")
        return await self.submit(page, "/admin/sign-in", key=key)

    async def _ask(self, verb: str, path: str, *, follow: bool, headers: dict[str, str], **more: Any) -> Answer:
        url = urllib.parse.urljoin(self.url, path)
        if self._here:
            headers = {"Referer": self._here, **headers}
        if verb == "POST":
            headers = {"Origin": self.url, "Sec-Fetch-Site": "same-origin", **headers}
        async with self._http.request(verb, url, headers=headers, allow_redirects=follow, **more) as response:
            body = await response.text()
            found = {name.lower(): value for name, value in response.headers.items()}
            if follow and response.status < 400:
                self._here = str(response.url)
            return Answer(response.status, response.url.path_qs, body, found, response.headers.getall("Set-Cookie", []))


class House:
    """A running Peik with its doors open, and the simulated Telegram."""

    def __init__(self, url: str, peik: Runtime, sim: SimServer, dashboard: Dashboard, events: list[Event]) -> None:
        self.url = url
        self.peik = peik
        self.sim = sim
        self.dashboard = dashboard
        self.events = events

    @contextlib.asynccontextmanager
    async def stranger(self) -> AsyncIterator[Visit]:
        """A browser that has never been here."""
        jar = aiohttp.CookieJar(unsafe=True)  # addresses instead of names
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as http:
            yield Visit(self.url, http)

    @contextlib.asynccontextmanager
    async def visitor(self, *scopes: Scope, bot_ids: frozenset[int] | None = None) -> AsyncIterator[Visit]:
        """A browser that is signed in: with the admin key, or with a new one of these scopes."""
        key = KEY
        if scopes:
            key = (await self.peik.keyring.make(f"{scopes[-1]} of tests", scopes, bot_ids=bot_ids)).text
        async with self.stranger() as browser:
            page = await browser.sign_in(key)
            assert page.status == 200, page.text
            yield browser


@contextlib.asynccontextmanager
async def house(folder: Path, **settings: str) -> AsyncIterator[House]:
    async with SimServer(seed=7) as sim:
        sim.telegram.add_bot(TOKEN)
        environment = {
            "PEIK_STORE": f"sqlite:///{folder / 'peik.db'}",
            "PEIK_ADMIN_KEY": KEY,
            "PEIK_API_ROOT": sim.url,
            "PEIK_INBOUND": "off",
            "PEIK_GRACE": "1s",
            "BOT_TOKEN": TOKEN,
            **{f"PEIK_{name.upper()}": value for name, value in settings.items()},
        }
        heard: list[Event] = []
        events = Events()
        events.listen(heard.extend)
        async with running(load(environment=environment, folder=folder), events=events, is_alone=True) as peik:
            dashboard = Dashboard(peik, KEY, rest.build(peik, KEY))
            async with listening(Gateway(peik, dashboard)) as url:
                try:
                    yield House(url, peik, sim, dashboard, heard)
                finally:
                    dashboard.end()
    assert not [event for event in heard if isinstance(event, Surprise)], heard


@contextlib.asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """An ASGI application on a real port; its address."""
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done(), "the server ended before it began"
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


def visit(folder: Path, story: Callable[[House], Coroutine[Any, Any, None]], **settings: str) -> None:
    async def whole() -> None:
        async with house(folder, **settings) as built:
            await story(built)

    asyncio.run(whole())
