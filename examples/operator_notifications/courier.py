"""Peik's REST API on a bad network: every call is repeated until it is answered, and its key makes one letter of all repeats."""

import asyncio
import json
import urllib.parse
from dataclasses import dataclass
from typing import Any

import aiohttp

ANSWER_S = 20.0
PAUSE_S, PAUSE_S_MAX = 0.5, 15.0


class Refused(Exception):
    """Peik has said no, and would say no again: a bad key, a bad parameter, a key that was used for another call."""


@dataclass(frozen=True, kw_only=True)
class File:
    field: str  # the parameter of Telegram's: photo, document
    name: str
    content_type: str
    content: bytes


@dataclass(frozen=True, kw_only=True)
class Link:
    operator: str
    chat_id: int
    language: str | None


class Courier:
    def __init__(
        self, http: aiohttp.ClientSession, url: str, key: str, *, tries: int = 8, pause_s: float = PAUSE_S
    ) -> None:
        self._http = http
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"}
        self._tries = tries
        self._pause_s = pause_s

    async def post(self, letter: dict[str, Any], *, key: str, file: File | None = None) -> str:
        """The letter's id, once Peik has it on disk. Raises Refused, or the last error of the network if all tries failed;
        then the letter may be there or not, and the same call with the same key is the way to find out."""
        answer = await self._repeat("POST", "/v1/letters", letter | {"idempotency_key": key}, file)
        return str(answer["id"])

    async def new_code(self, operator: str) -> dict[str, Any]:
        """A code that links whoever shows it to the bot, once. If an answer is lost the next try makes another one, and the
        first is over: a code that nobody has seen does no harm."""
        return await self._repeat("POST", _of(operator), {})

    async def find(self, operator: str) -> Link | None:
        """The chat that an operator has linked."""
        found = await self._repeat("GET", _of(operator))
        if not found["linked"]:
            return None
        return Link(operator=operator, chat_id=int(found["chat_id"]), language=found["language"])

    async def _repeat(
        self, verb: str, path: str, body: dict[str, Any] | None = None, file: File | None = None
    ) -> dict[str, Any]:
        for left in reversed(range(self._tries)):
            wait_s = min(self._pause_s * 2 ** (self._tries - 1 - left), PAUSE_S_MAX)
            try:
                return await self._once(verb, path, body, file)
            except aiohttp.ClientResponseError as error:
                if not left:
                    raise
                asked = error.headers.get("Retry-After", "") if error.headers else ""
                wait_s = max(wait_s, float(asked) if asked.isdecimal() else 0.0)
            except (aiohttp.ClientError, TimeoutError):
                # Nobody knows whether Peik has got it. The key makes it safe to ask again.
                if not left:
                    raise
            await asyncio.sleep(wait_s)
        raise AssertionError("There is at least one try.")

    async def _once(self, verb: str, path: str, body: dict[str, Any] | None, file: File | None) -> dict[str, Any]:
        patience = aiohttp.ClientTimeout(total=ANSWER_S)
        sent: dict[str, Any] = {"json": body} if file is None else {"data": _form(body or {}, file)}
        url = self._url + path
        async with self._http.request(verb, url, headers=self._headers, timeout=patience, **sent) as answer:
            if 400 <= answer.status < 500 and answer.status not in (408, 429):
                raise Refused(f"{answer.status}: {await answer.text()}")
            answer.raise_for_status()
            return dict(await answer.json())


def _form(body: dict[str, Any], file: File) -> aiohttp.FormData:
    """Made anew for every try: aiohttp sends a form once."""
    form = aiohttp.FormData()
    form.add_field("letter", json.dumps(body))
    form.add_field(file.field, file.content, filename=file.name, content_type=file.content_type)
    return form


def _of(operator: str) -> str:
    return f"/v1/users/{urllib.parse.quote(operator, safe='')}/link"
