"""Peik's REST API on a bad network: every call is repeated until it is answered, and its key makes one letter of all repeats."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import aiohttp

ANSWER_S = 20.0
SILENCE_S = 45.0  # Peik says something every 15 s; a stream that is silent for longer is dead
PAUSE_S, PAUSE_S_MAX = 0.5, 15.0


class Refused(Exception):
    """Peik has said no, and would say no again: a bad key, a bad parameter, a key that was used for another call."""


@dataclass(frozen=True, kw_only=True)
class File:
    field: str  # the parameter of Telegram's: photo, document
    name: str
    content_type: str
    content: bytes


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
        answer = await self._repeat("/v1/letters", letter | {"idempotency_key": key}, file)
        return str(answer["id"])

    async def acknowledge(self, consumer: str, number: int) -> None:
        await self._repeat("/v1/arrivals/ack", {"consumer": consumer, "number": number})

    async def updates(self, consumer: str) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        """Messages to the bot with their numbers, until the connection breaks. What was not acknowledged comes again in the
        next stream."""
        patience = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_S, sock_read=SILENCE_S)
        url, query = f"{self._url}/v1/arrivals/stream", {"consumer": consumer, "type": "message"}
        # An update is one line, and may be longer than aiohttp reads at once by itself.
        async with self._http.get(
            url, params=query, headers=self._headers, timeout=patience, read_bufsize=2**20
        ) as answer:
            answer.raise_for_status()
            event: dict[str, str] = {}
            async for raw in answer.content:
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name:
                    event[name] = value
                    continue
                if event.get("event") == "update":
                    yield int(event["id"]), json.loads(event["data"])
                event = {}

    async def _repeat(self, path: str, body: dict[str, Any], file: File | None = None) -> dict[str, Any]:
        for left in reversed(range(self._tries)):
            wait_s = min(self._pause_s * 2 ** (self._tries - 1 - left), PAUSE_S_MAX)
            try:
                return await self._once(path, body, file)
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

    async def _once(self, path: str, body: dict[str, Any], file: File | None) -> dict[str, Any]:
        patience = aiohttp.ClientTimeout(total=ANSWER_S)
        sent: dict[str, Any] = {"json": body} if file is None else {"data": _form(body, file)}
        async with self._http.post(self._url + path, headers=self._headers, timeout=patience, **sent) as answer:
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
