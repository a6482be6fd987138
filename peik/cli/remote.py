"""A running Peik over REST, with nothing but the standard library: a command should start at once."""

import contextlib
import http.client
import mimetypes
import secrets
import ssl
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from peik.cli.client import ANSWER_S, Attached, Document, StreamedAnswer, check_files
from peik.errors import Problem, Unavailable
from peik.web.operations import Asked, declared, request_for

T = TypeVar("T")


HEALTH_S = 2.0
WAIT_S = 20.0  # one request of a longer wait: what stands in between may cut off a silent connection
_CHUNK = 256 * 1024


class RemoteAnswer(Problem):
    """What a Peik answered instead of what was asked for."""

    def __init__(self, *, status: int, code: str, detail: str) -> None:
        super().__init__(code=code, detail=detail)
        self.status = status


class RestClient:
    is_running = True

    def __init__(self, url: str, key: str | None, *, context: ssl.SSLContext | None = None) -> None:
        """`context`: whose certificates are believed; by default those of the system's authorities."""
        self.place = url
        self._context = context
        self._parts = urllib.parse.urlsplit(url)
        self._key = key

    def is_there(self) -> bool:
        """Whether a Peik answers here. Asked without a key: who listens may be somebody else."""
        try:
            health = self.call("GET", "/health", timeout_s=HEALTH_S, with_key=False)
        except Problem:
            return False
        parts = health.get("parts")
        return "version" in health and isinstance(parts, dict) and "telegram" in parts

    def close(self) -> None:
        pass  # a connection lives as long as its call

    # ---- letters ----

    def accept(self, letter: Document, attached: Attached, on_bytes: Callable[[int], None]) -> Document:
        if not attached:
            return self.call("POST", "/v1/letters", body=letter)
        check_files(attached)
        boundary = secrets.token_hex(16)
        parts = [_part(boundary, field, path) for field, path in attached]
        first = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="letter"\r\n\r\n'.encode()
            + msgspec.json.encode(letter)
            + b"\r\n"
        )
        last = f"--{boundary}--\r\n".encode()
        size = len(first) + len(last) + sum(len(head) + path.stat().st_size + 2 for head, path in parts)

        def whole() -> Iterator[bytes]:
            yield first
            for head, path in parts:
                yield head
                with path.open("rb") as file:
                    while chunk := file.read(_CHUNK):
                        on_bytes(len(chunk))
                        yield chunk
                yield b"\r\n"
            yield last

        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Content-Length": str(size)}
        return self.call("POST", "/v1/letters", raw=whole(), headers=headers)

    # ---- streams ----

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextlib.contextmanager
    def stream(self, handler: Callable[..., Awaitable[object]], **given: Any) -> Iterator[StreamedAnswer]:
        """An answer that comes in pieces. Raises Unavailable also while it is read, if it is cut off."""
        asked = request_for(declared(handler), given)
        target = self._parts.path.rstrip("/") + asked.target
        sent = {**asked.headers, **({"Authorization": f"Bearer {self._key}"} if self._key else {})}
        connection = self._connection(ANSWER_S)
        try:
            connection.connect()
        except OSError as error:
            raise _unreachable(self.place, error) from None
        try:
            connection.request("GET", target, headers=sent)
            response = connection.getresponse()
            if response.status >= 400:
                _document(response.status, response.read(), self.place)
            named = {name.lower(): value for name, value in response.getheaders()}
            yield StreamedAnswer(named, iter(lambda: response.read1(_CHUNK), b""))
        except (OSError, http.client.HTTPException) as error:
            raise _cut_off(self.place, error, is_asking=True) from None
        finally:
            connection.close()

    # ---- one call ----

    def ask(self, handler: Callable[..., Awaitable[T]], *, timeout_s: float | None = ANSWER_S, **given: Any) -> T:
        (kind,) = declared(handler).answers.values()
        answer: T = msgspec.convert(self.document(handler, timeout_s=timeout_s, **given), kind)
        return answer

    def document(
        self, handler: Callable[..., Awaitable[object]], *, timeout_s: float | None = ANSWER_S, **given: Any
    ) -> Document:
        asked = request_for(declared(handler), given)
        return self.send(asked, timeout_s=timeout_s)

    def call(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Document | None = None,
        raw: Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = ANSWER_S,
        with_key: bool = True,
    ) -> Document:
        target = path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        asked = Asked(verb, target, None if body is None else msgspec.json.encode(body), dict(headers or {}))
        return self.send(asked, raw=raw, timeout_s=timeout_s, with_key=with_key)

    def send(
        self,
        asked: Asked,
        *,
        raw: Iterator[bytes] | None = None,
        timeout_s: float | None = ANSWER_S,
        with_key: bool = True,
    ) -> Document:
        sent = {"Accept": "application/json", **asked.headers}
        if with_key and self._key:
            sent["Authorization"] = f"Bearer {self._key}"
        if asked.body is not None:
            sent["Content-Type"] = "application/json"
        payload = raw if asked.body is None else asked.body
        target = self._parts.path.rstrip("/") + asked.target
        connection = self._connection(timeout_s)
        try:
            connection.connect()
        except OSError as error:
            raise _unreachable(self.place, error) from None
        try:
            status, answer = _exchange(connection, asked.verb, target, payload, sent)
        except (OSError, http.client.HTTPException) as error:
            raise _cut_off(self.place, error, is_asking=asked.verb == "GET") from None
        finally:
            connection.close()
        return _document(status, answer, self.place)

    def _connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = self._context or ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _exchange(
    connection: http.client.HTTPConnection,
    verb: str,
    target: str,
    payload: bytes | Iterator[bytes] | None,
    headers: Mapping[str, str],
) -> tuple[int, bytes]:
    # A server that refuses a big upload answers before it has read all of it, and hangs up. Its answer says why.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.request(verb, target, body=payload, headers=headers)
    response = connection.getresponse()
    return response.status, response.read()


def _document(status: int, answer: bytes, place: str) -> Document:
    if status == 204 and not answer:
        return {}
    try:
        document = msgspec.json.decode(answer, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unavailable(
            code="not_peik", detail=f"What answers at {place} is not Peik (status {status}). Say where Peik is: --url."
        ) from None
    if status < 400:
        return document
    detail = document.get("detail") or document.get("description") or f"Peik answered {status}."
    raise RemoteAnswer(status=status, code=str(document.get("code", "refused")), detail=str(detail))


def _unreachable(place: str, error: OSError) -> Unavailable:
    return Unavailable(
        code="unreachable",
        detail=f"No Peik answers at {place} ({_words(error)}). Start it with `peik serve`, or say where it is: --url.",
    )


def _cut_off(place: str, error: Exception, *, is_asking: bool) -> Unavailable:
    outcome = "" if is_asking else " Whether it was done is not known: look before you repeat it."
    return Unavailable(code="cut_off", detail=f"The answer of {place} did not arrive ({_words(error)}).{outcome}")


def _words(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return (text or str(error) or type(error).__name__).rstrip(".").lower()


def _part(boundary: str, field: str, path: Path) -> tuple[bytes, Path]:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    name = path.name.replace('"', "%22").replace("\r", " ").replace("\n", " ")
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\nContent-Type: {kind}\r\n\r\n'
    return head.encode(), path
