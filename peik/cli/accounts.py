"""What commands ask about accounts and their archive, in the words of REST. There are two ways to it: a running Peik, or its
routes run in this process on the archive itself. So every command is written once, and no rule is written twice."""

import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import msgspec

from peik.cli.client import Document, Filters, StreamedAnswer
from peik.errors import Unavailable

RETRY_S = 2.0
LOOK_S = 1.0  # how often a sign-in or a crawl is looked at
EXPORT_PAGE = 1000
NEXT_CURSOR = "peik-next-cursor"
_OVER = frozenset({"active", "password_needed", "flood_wait", "failed"})


class AccountsWay(Protocol):
    place: str  # in words, for people
    is_running: bool  # whether a Peik stands behind it that runs accounts

    def call(
        self,
        verb: str,
        path: str,
        query: Filters | None = None,
        *,
        body: Document | None = None,
        timeout_s: float | None = 60.0,
    ) -> Document: ...

    def stream_of(
        self, path: str, query: Filters, *, headers: Mapping[str, str] | None = None
    ) -> AbstractContextManager[StreamedAnswer]: ...

    def pause(self, seconds: float) -> None:
        """Whatever runs behind it goes on meanwhile."""

    def close(self) -> None: ...


class AccountsAnswer(NamedTuple):
    """One line of a feed."""

    kind: str  # message, edited, deleted, event
    body: bytes  # a JSON object on one line


class ExportPage(NamedTuple):
    data: bytes
    cursor: str | None  # where the next one begins; None: this was the last


class AccountsClient:
    def __init__(self, way: AccountsWay) -> None:
        self._way = way
        self._call = way.call

    @property
    def place(self) -> str:
        return self._way.place

    @property
    def is_running(self) -> bool:
        return self._way.is_running

    def pause(self) -> None:
        self._way.pause(LOOK_S)

    def close(self) -> None:
        self._way.close()

    # ---- the registry ----

    def sessions(self, filters: Filters, *, cursor: str | None, limit: int) -> Document:
        return self._call("GET", "/v1/sessions", {**filters, **page(cursor, limit)})

    def session(self, session_id: str) -> Document:
        return self._call("GET", _session(session_id))

    def create(self, wanted: Document) -> Document:
        return self._call("POST", "/v1/sessions", body=wanted)

    def change(self, session_id: str, change: Document) -> Document:
        return self._call("PATCH", _session(session_id), body=change)

    def delete(self, session_id: str) -> None:
        self._call("DELETE", _session(session_id))

    def act(self, session_id: str, deed: str) -> Document:
        """start, stop, restart or log-out."""
        return self._call("POST", f"{_session(session_id)}/{deed}")

    def cleanup(self, days: float) -> Document:
        return self._call("POST", "/v1/sessions/cleanup", body={"days": days}, timeout_s=None)

    def reseal(self) -> Document:
        return self._call("POST", "/v1/sessions/reseal", timeout_s=None)

    # ---- signing in ----

    def send_code(self, session_id: str, phone: str | None, *, by_sms: bool) -> Document:
        body: Document = {"by_sms": by_sms} if phone is None else {"by_sms": by_sms, "phone": phone}
        return self._call("POST", f"{_session(session_id)}/code", body=body)

    def give_code(self, session_id: str, code: str) -> Document:
        return self._call("POST", f"{_session(session_id)}/sign-in", body={"code": code})

    def give_password(self, session_id: str, password: str) -> Document:
        return self._call("POST", f"{_session(session_id)}/password", body={"password": password})

    def cancel_sign_in(self, session_id: str) -> Document:
        return self._call("DELETE", f"{_session(session_id)}/sign-in")

    def qr(self, session_id: str) -> Document:
        return self._call("GET", f"{_session(session_id)}/qr")

    def scanned(self, session_id: str, *, looks: int) -> Document | None:
        """The session once somebody scanned its QR code, or something else came of it; None after so many looks."""
        for _ in range(looks):
            self.pause()
            session = self.session(session_id)
            if session["state"] in _OVER:
                return session
        return None

    # ---- chats ----

    def chats(self, session_id: str) -> Document:
        return self._call("GET", f"{_session(session_id)}/chats")

    def crawl(self, session_id: str, chat_id: str, until: str | None) -> Document:
        body: Document = {} if until is None else {"until": until}
        return self._call("POST", f"{_session(session_id)}/chats/{quoted(chat_id)}/crawl", body=body)

    def stop_crawl(self, session_id: str, chat_id: str) -> Document:
        return self._call("DELETE", f"{_session(session_id)}/chats/{quoted(chat_id)}/crawl")

    # ---- the archive ----

    def messages(self, filters: Filters, *, cursor: str | None, limit: int) -> Document:
        return self._call("GET", "/v1/messages", {**filters, **page(cursor, limit)})

    def count(self, filters: Filters) -> Document:
        return self._call("GET", "/v1/messages/count", filters, timeout_s=None)

    def message(self, session_id: str, chat_id: str, message_id: str) -> Document:
        named = "/".join(map(quoted, (session_id, chat_id, message_id)))
        return self._call("GET", f"/v1/messages/{named}")

    def forget(self, user_id: str) -> Document:
        return self._call("POST", "/v1/messages/forget", body={"user_id": user_id}, timeout_s=None)

    def stats(self, agent_id: str | None) -> Document:
        return self._call("GET", "/v1/messages/stats", {} if agent_id is None else {"agent_id": agent_id})

    def events(self, filters: Filters, *, cursor: str | None, limit: int) -> Document:
        return self._call("GET", "/v1/events", {**filters, **page(cursor, limit)})

    def logs(self, filters: Filters, *, cursor: str | None, limit: int) -> Document:
        return self._call("GET", "/v1/logs", {**filters, **page(cursor, limit)})

    def export(self, filters: Filters, form: str, cursor: str | None) -> ExportPage:
        query = {**filters, "format": form, **page(cursor, EXPORT_PAGE)}
        with self._way.stream_of("/v1/messages/export", query) as answer:
            return ExportPage(b"".join(answer.chunks), answer.headers.get(NEXT_CURSOR))

    def follow(self, what: str, filters: Filters, *, on_lost: Callable[[str], None]) -> Iterator[AccountsAnswer]:
        """Lines of messages or events as they come, for ever. A connection that breaks is made anew, from the last line on."""
        last: str | None = None
        has_begun = False
        while True:
            # A reader with a name has its place in the archive.
            headers = {} if last is None or "reader" in filters else {"Last-Event-ID": last}
            try:
                with self._way.stream_of(f"/v1/{what}/stream", filters, headers=headers) as answer:
                    has_begun = True
                    for frame in frames(answer.chunks):
                        if frame.data:
                            yield AccountsAnswer(frame.event, frame.data)
                        last = frame.id or last
                on_lost("Peik ended the stream; trying again.")
            except Unavailable as error:
                if not has_begun:
                    raise
                on_lost(f"{error.detail} Trying again.")
            self._way.pause(RETRY_S)


class SseFrame(NamedTuple):
    """Of a stream of server-sent events."""

    event: str
    id: str
    data: bytes


def frames(chunks: Iterator[bytes]) -> Iterator[SseFrame]:
    """Whole ones only: what comes after the last blank line is nothing yet."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n\n")
        for text in whole:
            fields = dict(_field(line) for line in text.split(b"\n") if line and not line.startswith(b":"))
            event, name = (fields.get(one, b"").decode() for one in (b"event", b"id"))
            yield SseFrame(event, name, fields.get(b"data", b""))


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name, value.removeprefix(b" ")


def document_of(answer: bytes) -> Document:
    return msgspec.json.decode(answer, type=dict[str, object]) if answer else {}


def page(cursor: str | None, limit: int) -> dict[str, str]:
    return {"limit": str(limit)} if cursor is None else {"limit": str(limit), "cursor": cursor}


def quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _session(session_id: str) -> str:
    return f"/v1/sessions/{quoted(session_id)}"
