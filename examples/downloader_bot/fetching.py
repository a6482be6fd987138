"""Plain HTTP: a file is streamed to disk within its limit, and goes on where it was when the connection breaks."""

import asyncio
import re
import socket
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

import aiohttp

from examples.downloader_bot.links import host_of, is_public
from examples.downloader_bot.settings import Settings
from examples.downloader_bot.words import Words, megabytes
from peik import Job, JobHopeless

CHUNK_BYTES = 256 * 1024
TRIES = 5  # within one run; a run that gets nothing more ends, and the job's own attempts come after that
PAUSE_S = 1.0
SILENCE_S = 30.0  # so long a server may say nothing
_BROKEN = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)


class PageInstead(Exception):
    """There is no file at that link but a page."""


class Blocked(OSError):
    """A link that leads into our own network."""


class Fetcher:
    """One session for all downloads of the worker."""

    def __init__(self, settings: Settings) -> None:
        self._bytes_max = settings.file_bytes_max
        self._may_be_private = settings.may_be_private
        self._proxy = settings.proxy or None

    async def __aenter__(self) -> Self:
        # Looked at here, the address is the one that is really connected to, after every redirect and whatever DNS says.
        connector = aiohttp.TCPConnector(limit=0, socket_factory=self._socket)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_S, sock_read=SILENCE_S)
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    def _socket(self, address: tuple[int, int, int, str, tuple[str, int]]) -> socket.socket:
        family, kind, protocol, _, place = address
        if not self._may_be_private and self._proxy is None and not is_public(place[0]):
            raise Blocked(f"{place[0]} is not on the open internet")
        return socket.socket(family, kind, protocol)

    async def fetch(self, job: Job, url: str, words: Words) -> Path:
        """The file, in the job's folder. Raises JobHopeless in the words of whoever asked, PageInstead, and what the network
        raises when it gives no more."""
        part = _Part(job.folder / "part")
        await self._check_host(url, words)
        for left in reversed(range(TRIES)):
            before = part.size
            try:
                async with job.host(host_of(url)):
                    name = await self._go_on(job, url, part, words)
            except _BROKEN as error:
                if _blocked(error):
                    raise JobHopeless(words("not_allowed")) from error
                if not left or part.size == before:
                    raise
                await asyncio.sleep(PAUSE_S)
            except aiohttp.ClientResponseError as error:
                if error.status >= 500 or error.status in {408, 425, 429}:
                    raise
                raise JobHopeless(words("not_there", status=error.status)) from error
            except (aiohttp.InvalidURL, aiohttp.TooManyRedirects) as error:
                raise JobHopeless(words("no_link")) from error
            else:
                return part.path.rename(job.folder / name)
        raise AssertionError("the last try returns or raises")

    async def _check_host(self, url: str, words: Words) -> None:
        """A proxy connects by itself, so that the link is looked at before; what it redirects to is the proxy's to refuse."""
        if self._proxy is None or self._may_be_private:
            return
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host_of(url), None)
        except OSError:  # the proxy may know that name
            return
        if not all(is_public(str(one[4][0])) for one in found):
            raise JobHopeless(words("not_allowed"))

    async def _go_on(self, job: Job, url: str, part: "_Part", words: Words) -> str:
        """The file's name, once it is whole."""
        headers = {"Accept-Encoding": "identity"}
        if part.size and part.tag:
            headers |= {"Range": f"bytes={part.size}-", "If-Range": part.tag}
        async with self._http.get(url, headers=headers, proxy=self._proxy) as answer:
            answer.raise_for_status()
            if answer.content_type in {"text/html", "application/xhtml+xml"}:
                raise PageInstead
            if answer.status != 206 or answer.headers.get("Content-Range", "").split("-")[0] != f"bytes {part.size}":
                part.begin_anew()
            part.tag = answer.headers.get("ETag", "")
            whole = None if answer.content_length is None else part.size + answer.content_length
            self._check(whole or 0, words)
            with part.path.open("ab") as file:
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    await asyncio.to_thread(file.write, chunk)
                    part.size += len(chunk)
                    self._check(part.size, words)
                    await job.progress(part.size / whole if whole else None, megabytes(part.size))
            return _name(answer)

    def _check(self, size_bytes: int, words: Words) -> None:
        if size_bytes > self._bytes_max:
            raise JobHopeless(words("too_big", size=megabytes(self._bytes_max)))


class _Part:
    """What is on disk so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.tag = ""  # the server's mark of this version of the file: without one, nothing can be put together

    def begin_anew(self) -> None:
        self.path.unlink(missing_ok=True)
        self.size = 0


def _blocked(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Blocked) or isinstance(getattr(error, "os_error", None), Blocked):
            return True
        error = error.__cause__
    return False


def _name(answer: aiohttp.ClientResponse) -> str:
    """As the server calls it, or as it is called in the address; nothing that leaves the folder."""
    told = answer.content_disposition.filename if answer.content_disposition else None
    name = told or unquote(urlsplit(str(answer.url)).path).rpartition("/")[2]
    name = re.sub(r"[\x00-\x1f\x7f/\\]", "_", name).strip(". ")
    stem, dot, suffix = name[-150:].rpartition(".")
    return f"{stem[:60]}{dot}{suffix[:10]}" if stem else name[:60] or "file"
