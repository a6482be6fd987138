"""Accounts of a `peik serve` far away, asked over REST. What they see comes as a stream that is taken up again after a break."""

import asyncio
import urllib.parse
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from peik.accounts.feeds import FeedFilter
from peik.archive.store import EventFilter, LineKind, MessageFilter
from peik.client.remote import encode, read, with_query
from peik.client.transport import (
    AccountSession,
    ArchivedMessage,
    Changes,
    EventPage,
    FeedLine,
    ImportedFile,
    MessagePage,
    New,
    QrLogin,
    SessionChat,
    decode_chat,
    decode_events,
    decode_messages,
    decode_qr,
    decode_session,
    decode_sessions,
    line_of,
)
from peik.client.wire import NOT_PEIK, StreamFrame, frames, id_of, places_of
from peik.core.units import rfc3339
from peik.errors import BadInput, NotFound, Unavailable

if TYPE_CHECKING:
    from peik.client.remote import RemoteTransport

LIMIT = 500
SIGN_IN_TIMEOUT_S = 90.0  # Telegram is asked, perhaps by way of a proxy
BACK_S = 0.5
BACK_S_MAX = 8.0
_KINDS = frozenset(LineKind)


class RemoteAccounts:
    def __init__(self, counter: "RemoteTransport") -> None:
        self._counter = counter

    # ---- the registry ----

    async def create(self, new: New) -> AccountSession:
        reply = await self._counter.exchange("POST", "/v1/sessions", body=_body(new))
        return read(decode_session, reply)

    async def by_id(self, session_id: str) -> AccountSession | None:
        try:
            return read(decode_session, await self._counter.exchange("GET", _path(session_id)))
        except NotFound as error:
            if error.code != "no_such_session":
                raise
            return None

    async def by_phone(self, phone: str) -> AccountSession | None:
        reply = await self._counter.exchange("GET", with_query("/v1/sessions", {"phone": phone}))
        return next(iter(read(decode_sessions, reply).sessions), None)

    async def sessions(self, *, agent_id: str | None, is_active: bool | None) -> list[AccountSession]:
        query = _told({"agent_id": agent_id, "active": is_active, "limit": LIMIT})
        found: list[AccountSession] = []
        while True:
            page = read(decode_sessions, await self._counter.exchange("GET", with_query("/v1/sessions", query)))
            found.extend(page.sessions)
            if page.next is None:
                return found
            query["cursor"] = page.next

    async def change(self, session_id: str, changes: Changes) -> AccountSession:
        return read(decode_session, await self._counter.exchange("PATCH", _path(session_id), body=_body(changes)))

    async def note_activity(self, session_id: str) -> None:
        await self._counter.exchange("POST", _path(session_id, "activity"))

    async def delete(self, session_id: str) -> bool:
        try:
            await self._counter.exchange("DELETE", _path(session_id))
        except NotFound as error:
            if error.code != "no_such_session":
                raise
            return False
        return True

    async def cleanup(self, days: float | None) -> int:
        body = encode({} if days is None else {"days": days})
        reply = await self._counter.exchange("POST", "/v1/sessions/cleanup", body=body)
        return read(_decode_removed, reply).removed

    # ---- signing in, running ----

    async def send_code(self, session_id: str, phone: str | None, *, by_sms: bool) -> AccountSession:
        return await self._step("POST", _path(session_id, "code"), {"phone": phone, "by_sms": by_sms})

    async def give_code(self, session_id: str, code: str) -> AccountSession:
        return await self._step("POST", _path(session_id, "sign-in"), {"code": code})

    async def give_password(self, session_id: str, password: str) -> AccountSession:
        return await self._step("POST", _path(session_id, "password"), {"password": password})

    async def qr(self, session_id: str) -> QrLogin:
        return read(
            decode_qr, await self._counter.exchange("GET", _path(session_id, "qr"), timeout_s=SIGN_IN_TIMEOUT_S)
        )

    async def cancel_sign_in(self, session_id: str) -> AccountSession:
        return await self._step("DELETE", _path(session_id, "sign-in"))

    async def start(self, session_id: str) -> AccountSession:
        return await self._step("POST", _path(session_id, "start"))

    async def stop(self, session_id: str) -> AccountSession:
        return await self._step("POST", _path(session_id, "stop"))

    async def restart(self, session_id: str) -> AccountSession:
        return await self._step("POST", _path(session_id, "restart"))

    async def log_out(self, session_id: str) -> AccountSession:
        return await self._step("POST", _path(session_id, "log-out"))

    async def _step(self, verb: str, path: str, body: Mapping[str, object] | None = None) -> AccountSession:
        told = b"" if body is None else encode(body)
        return read(decode_session, await self._counter.exchange(verb, path, body=told, timeout_s=SIGN_IN_TIMEOUT_S))

    def import_files(
        self, paths: Sequence[Path], *, agent_id: str, check: bool, keep_files: bool
    ) -> AsyncGenerator[ImportedFile, None]:
        raise BadInput(
            code="import_needs_open",
            detail="Session files are taken in where Peik runs: with Peik.open, or with `peik sessions import` over there.",
        )

    # ---- chats ----

    async def chats(self, session_id: str) -> list[SessionChat]:
        return read(_decode_chats, await self._counter.exchange("GET", _path(session_id, "chats"))).chats

    async def crawl(self, session_id: str, chat_id: int, *, until_ms: int | None) -> SessionChat:
        body = encode({} if until_ms is None else {"until": rfc3339(until_ms)})
        reply = await self._counter.exchange("POST", _path(session_id, "chats", str(chat_id), "crawl"), body=body)
        return read(decode_chat, reply)

    async def stop_crawl(self, session_id: str, chat_id: int) -> SessionChat:
        return read(
            decode_chat, await self._counter.exchange("DELETE", _path(session_id, "chats", str(chat_id), "crawl"))
        )

    # ---- what they saw ----

    async def messages(self, wanted: MessageFilter, *, cursor: str | None, limit: int) -> MessagePage:
        query = _messages(wanted) | _told({"cursor": cursor, "limit": limit})
        return read(decode_messages, await self._counter.exchange("GET", with_query("/v1/messages", query)))

    async def count_messages(self, wanted: MessageFilter) -> int:
        reply = await self._counter.exchange("GET", with_query("/v1/messages/count", _messages(wanted)))
        return read(_decode_count, reply).count

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[ArchivedMessage]:
        path = f"/v1/messages/{urllib.parse.quote(session_id, safe='')}/{chat_id}/{message_id}"
        return read(_decode_versions, await self._counter.exchange("GET", path)).versions

    async def events(self, wanted: EventFilter, *, cursor: str | None, limit: int) -> EventPage:
        query = _told(
            {
                "session_id": wanted.session_id,
                "agent_id": wanted.agent_id,
                "event_type": wanted.event_type,
                "chat_id": wanted.chat_id,
                "since": rfc3339(wanted.since_ms),
                "until": rfc3339(wanted.until_ms),
                "cursor": cursor,
                "limit": limit,
            }
        )
        return read(decode_events, await self._counter.exchange("GET", with_query("/v1/events", query)))

    async def forget_person(self, user_id: int) -> dict[str, int]:
        body = encode({"user_id": user_id})
        return read(_decode_forgotten, await self._counter.exchange("POST", "/v1/messages/forget", body=body)).removed

    async def forget_reader(self, reader: str) -> bool:
        try:
            await self._counter.exchange("DELETE", _reader(reader))
        except NotFound as error:
            if error.code != "unknown_reader":
                raise
            return False
        return True

    # ---- what they see ----

    async def listen(
        self, wanted: FeedFilter, *, after: Mapping[str, int] | None, reader: str | None
    ) -> AsyncGenerator[FeedLine, None]:
        if reader is not None:
            after = read(_decode_reader, await self._counter.exchange("GET", _reader(reader))).places
        path = with_query("/v1/messages/stream", _wanted(wanted))
        places = None if after is None else dict(after)  # up to where everything was told; None: from now on
        is_begun = False
        pause_s = BACK_S
        while self._counter.is_open:
            last_id = None if places is None else id_of(places, wanted.session_id)
            try:
                async with aclosing(frames(self._counter.stream(path, last_id=last_id))) as found:
                    async for frame in found:
                        is_begun, pause_s = True, BACK_S
                        line = _line(frame)
                        if line is not None:
                            yield line
                        # Whoever asks for the next one is done with this one.
                        passed = _passed(frame, line, places or {})
                        if reader is not None and passed:
                            await self._confirm(reader, passed)
                        places = {**(places or {}), **passed}
            except Unavailable as error:
                # Once it has begun, a Peik that goes away is waited for; one that cannot be understood is not.
                if self._counter.is_open and (not is_begun or error.code == NOT_PEIK):
                    raise
            if self._counter.is_open:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, BACK_S_MAX)

    async def _confirm(self, reader: str, places: Mapping[str, int]) -> None:
        pause_s = BACK_S
        while True:
            try:
                await self._counter.exchange("PUT", _reader(reader), body=encode({"places": places}))
                return
            except Unavailable:
                if not self._counter.is_open:
                    return  # closed: it is told again
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, BACK_S_MAX)


def _line(frame: StreamFrame) -> FeedLine | None:
    """None: it tells only a place."""
    if frame.event not in _KINDS:
        return None
    try:
        return line_of(LineKind(frame.event), frame.data, number=frame.number)
    except msgspec.DecodeError as error:
        raise Unavailable(code=NOT_PEIK, detail=f"What answers at this address is no Peik: {error}.") from None


def _passed(frame: StreamFrame, line: FeedLine | None, places: Mapping[str, int]) -> dict[str, int]:
    """Which places are others behind this frame. Its id names all of them, but not every line has one."""
    if frame.id is not None:
        return {name: number for name, number in places_of(frame.id).items() if places.get(name) != number}
    return {line.session_id: line.number} if line is not None and line.number else {}


# ---- what is said ----


def _path(session_id: str, *parts: str) -> str:
    return "/".join(("/v1/sessions", urllib.parse.quote(session_id, safe=""), *parts))


def _reader(name: str) -> str:
    return f"/v1/readers/{urllib.parse.quote(name, safe='')}"


def _body(told: New | Changes) -> bytes:
    try:
        return encode(told)
    except (TypeError, ValueError):
        raise BadInput(code="malformed_metadata", detail="Metadata should be what JSON can hold.") from None


def _told(query: Mapping[str, object]) -> dict[str, str]:
    return {name: _written(value) for name, value in query.items() if value is not None}


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _messages(wanted: MessageFilter) -> dict[str, str]:
    return _told(
        {
            "session_id": wanted.session_id,
            "agent_id": wanted.agent_id,
            "chat_id": wanted.chat_id,
            "direction": wanted.direction,
            "sender_id": wanted.sender_id,
            "kind": wanted.kind,
            "since": rfc3339(wanted.since_ms),
            "until": rfc3339(wanted.until_ms),
            "text": wanted.text,
            "deleted": wanted.is_deleted,
        }
    )


def _wanted(wanted: FeedFilter) -> dict[str, str]:
    return _told(
        {
            "session_id": wanted.session_id,
            "agent_id": wanted.agent_id,
            "chat_id": wanted.chat_id,
            "kinds": ",".join(sorted(_KINDS if wanted.kinds is None else wanted.kinds)),
        }
    )


# ---- what is answered ----


class _Removed(msgspec.Struct):
    removed: int


class _Forgotten(msgspec.Struct):
    removed: dict[str, int]


class _Count(msgspec.Struct):
    count: int


class _Chats(msgspec.Struct):
    chats: list[SessionChat]


class _Versions(msgspec.Struct):
    versions: list[ArchivedMessage]


class _Reader(msgspec.Struct):
    places: dict[str, int]


_decode_removed = msgspec.json.Decoder(_Removed).decode
_decode_forgotten = msgspec.json.Decoder(_Forgotten).decode
_decode_count = msgspec.json.Decoder(_Count).decode
_decode_chats = msgspec.json.Decoder(_Chats, strict=False).decode
_decode_versions = msgspec.json.Decoder(_Versions, strict=False).decode
_decode_reader = msgspec.json.Decoder(_Reader).decode
