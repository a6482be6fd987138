"""HTTP to one server for many callers at once: warm connections, one request at a time on each. It repeats nothing."""

import asyncio
import ssl
import urllib.parse

import msgspec

from peik.carrier.dialling import detail_of, direct, fault_of
from peik.carrier.warm import Asked, Warm
from peik.core.reply import Fault, Reply
from peik.errors import BadInput

ANSWER_S = 30.0
ANSWER_BYTES_MAX = 1 << 28  # pages of what was counted are long


class Client:
    """Made inside the running loop. What goes wrong on the way is in the reply, as a fault."""

    def __init__(self, url: str, *, key: str = "") -> None:
        """Raises BadInput if this is not the URL of a server."""
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or parts.scheme not in ("http", "https"):
            raise BadInput(code="bad_url", detail=f"{url!r} is no address; one looks like http://127.0.0.1:8081.")
        is_tls = parts.scheme == "https"
        self.url = url.rstrip("/")
        self._loop = asyncio.get_running_loop()
        context = ssl.create_default_context() if is_tls else None
        self._warm = Warm(
            direct(host=host, port=port or (443 if is_tls else 80), ssl_context=context),
            answer_bytes_max=ANSWER_BYTES_MAX,
        )
        self._path = parts.path.rstrip("/")
        self._head = f"Host: {parts.netloc}\r\n" + (f"Authorization: Bearer {key}\r\n" if key else "")

    async def ask(self, verb: str, path: str, body: object = None, *, timeout_s: float = ANSWER_S) -> Reply:
        """What was answered, whatever its status."""
        payload = b"" if body is None else msgspec.json.encode(body)
        kind = "Content-Type: application/json\r\n" if payload else ""
        head = f"{verb} {self._path}{path} HTTP/1.1\r\n{self._head}{kind}Content-Length: {len(payload)}\r\n\r\n"
        asked = Asked(head.encode() + payload, self._loop)
        try:
            connection = await self._warm.begin(asked)
        except (OSError, UnicodeError) as error:
            return Reply(fault=fault_of(error), left=False, detail=detail_of(error))
        try:
            async with asyncio.timeout(timeout_s):
                return await asked.answered
        except TimeoutError:
            return Reply(fault=Fault.TIMEOUT, left=True, detail=f"no answer within {timeout_s:g} s")
        finally:
            self._warm.leave(connection, asked)

    async def close(self) -> None:
        """Once no connection is left."""
        await self._warm.close()
