"""Accounts of the Peik in this process: the desk of sessions, in the library's words."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from peik.app import Office
from peik.archive_ports import ChatState, EventFilter, MessageFilter, Session
from peik.errors import Conflict, StoreUnavailable, Unavailable
from peik.events import Event
from peik.library.accounts_counter import Changes, New
from peik.library.accounts_values import (
    AccountSession,
    ArchivedMessage,
    EventPage,
    FeedLine,
    ImportedFile,
    MessagePage,
    QrLogin,
    SessionChat,
    decode_chat,
    decode_events,
    decode_message,
    decode_messages,
    decode_qr,
    decode_session,
    line_of,
)
from peik.session_events import ArchiveAway, ArchiveBack
from peik.sessions.following import Follower, Wanted
from peik.sessions.shown import chat_view, event_view, message_view, session_view
from peik.shown import rfc3339

if TYPE_CHECKING:
    from peik.sessions.desk import SessionsDesk

OPEN_S_MAX = 30.0  # for the archive's first opening; an archive that says no is not waited for
LISTEN_S = 30.0
BACK_S = 0.5  # between two questions to an archive that does not answer, while somebody listens
LAST_WORD_S = 1.0
T = TypeVar("T")


class LocalAccounts:
    def __init__(self, office: Callable[[], Office]) -> None:
        """`office` raises Unavailable once Peik is closed."""
        self._office = office
        self._is_heard = asyncio.Event()  # whether the archive could be opened is known

    def heard(self, told: Sequence[Event]) -> None:
        """A listener of events."""
        if any(isinstance(event, (ArchiveBack, ArchiveAway)) for event in told):
            self._is_heard.set()

    async def _desk(self) -> "SessionsDesk":
        desk = self._office().sessions
        if desk is None:
            raise Conflict(
                code="no_sessions",
                detail="Peik keeps no accounts here: open it with api_id and api_hash from my.telegram.org (TELEGRAM_API_ID "
                "and TELEGRAM_API_HASH), or with archive (PEIK_ARCHIVE) to read one.",
            )
        if not self._is_heard.is_set() and desk.trouble() is not None:
            # Peik is open before its archive is: the first call waits for that, and so nobody else has to.
            try:
                async with asyncio.timeout(OPEN_S_MAX):
                    await self._is_heard.wait()
            except TimeoutError:
                pass
        return desk

    # ---- the registry ----

    async def create(self, new: New) -> AccountSession:
        desk = await self._desk()
        more = msgspec.structs.asdict(new)
        return _session(await desk.create_session(more.pop("agent_id"), **more))

    async def by_id(self, session_id: str) -> AccountSession | None:
        found = await (await self._desk()).get_session_by_id(session_id)
        return None if found is None else _session(found)

    async def by_phone(self, phone: str) -> AccountSession | None:
        found = await (await self._desk()).get_session_by_phone(phone)
        return None if found is None else _session(found)

    async def sessions(self, *, agent_id: str | None, is_active: bool | None) -> list[AccountSession]:
        desk = await self._desk()
        found = await (desk.get_all_active_sessions() if agent_id is None else desk.get_sessions_by_agent(agent_id))
        return [_session(one) for one in found if is_active is None or one.is_active is is_active]

    async def change(self, session_id: str, changes: Changes) -> AccountSession:
        desk = await self._desk()
        if changes.phone is not msgspec.UNSET:
            return _session(await desk.update_session_phone(session_id, changes.phone))
        if changes.metadata is not msgspec.UNSET:
            return _session(await desk.update_session_metadata(session_id, changes.metadata))
        if changes.proxy is not msgspec.UNSET:
            return _session(await desk.set_proxy(session_id, changes.proxy))
        if changes.is_connected is not msgspec.UNSET:
            return _session(await desk.update_session_connected(session_id, changes.is_connected))
        is_active = changes.is_active is True
        return _session(await (desk.activate_session if is_active else desk.deactivate_session)(session_id))

    async def note_activity(self, session_id: str) -> None:
        await (await self._desk()).update_session_activity(session_id)

    async def delete(self, session_id: str) -> bool:
        return await (await self._desk()).delete_session(session_id)

    async def cleanup(self, days: float | None) -> int:
        desk = await self._desk()
        return await (desk.cleanup_old_sessions() if days is None else desk.cleanup_old_sessions(days))

    # ---- signing in, running ----

    async def send_code(self, session_id: str, phone: str | None, *, by_sms: bool) -> AccountSession:
        return _session(await (await self._desk()).send_code(session_id, phone, by_sms=by_sms))

    async def give_code(self, session_id: str, code: str) -> AccountSession:
        return _session(await (await self._desk()).give_code(session_id, code))

    async def give_password(self, session_id: str, password: str) -> AccountSession:
        return _session(await (await self._desk()).give_password(session_id, password))

    async def qr(self, session_id: str) -> QrLogin:
        made = await (await self._desk()).qr(session_id)
        return decode_qr(_encode({"url": made.url, "expires_at": rfc3339(made.expires_at_ms)}))

    async def cancel_sign_in(self, session_id: str) -> AccountSession:
        return _session(await (await self._desk()).cancel_sign_in(session_id))

    async def start(self, session_id: str) -> AccountSession:
        return _session(await (await self._desk()).start(session_id))

    async def stop(self, session_id: str) -> AccountSession:
        return _session(await (await self._desk()).stop(session_id))

    async def restart(self, session_id: str) -> AccountSession:
        return _session(await (await self._desk()).restart(session_id))

    async def log_out(self, session_id: str) -> AccountSession:
        return _session(await (await self._desk()).log_out(session_id))

    async def import_files(
        self, paths: Sequence[Path], *, agent_id: str, check: bool, keep_files: bool
    ) -> AsyncGenerator[ImportedFile, None]:
        desk = await self._desk()
        files = await asyncio.to_thread(_files, paths)
        async for one in desk.import_files(files, agent_id=agent_id, check=check, keep_files=keep_files):
            yield ImportedFile(
                file=one.file,
                verdict=str(one.verdict),
                detail=one.detail,
                session_id=one.session_id,
                user_id=one.user_id,
            )

    # ---- chats ----

    async def chats(self, session_id: str) -> list[SessionChat]:
        return [_chat(one) for one in await (await self._desk()).chats(session_id)]

    async def crawl(self, session_id: str, chat_id: int, *, until_ms: int | None) -> SessionChat:
        return _chat(await (await self._desk()).crawl(session_id, chat_id, until_ms=until_ms or 0))

    async def stop_crawl(self, session_id: str, chat_id: int) -> SessionChat:
        return _chat(await (await self._desk()).stop_crawl(session_id, chat_id))

    # ---- what they saw ----

    async def messages(self, wanted: MessageFilter, *, cursor: str | None, limit: int) -> MessagePage:
        found, after = await (await self._desk()).messages(wanted, cursor=cursor, limit=limit)
        return decode_messages(_encode({"messages": [message_view(one) for one in found], "next": after}))

    async def count_messages(self, wanted: MessageFilter) -> int:
        return await (await self._desk()).count_messages(wanted)

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[ArchivedMessage]:
        found = await (await self._desk()).versions(session_id, chat_id, message_id)
        return [decode_message(_encode(message_view(one, has_raw=True))) for one in found]

    async def events(self, wanted: EventFilter, *, cursor: str | None, limit: int) -> EventPage:
        found, after = await (await self._desk()).events(wanted, cursor=cursor, limit=limit)
        return decode_events(_encode({"events": [event_view(one) for one in found], "next": after}))

    async def forget_person(self, user_id: int) -> dict[str, int]:
        return dict(await (await self._desk()).forget_person(user_id))

    async def forget_reader(self, reader: str) -> bool:
        return await (await self._desk()).forget_reader(reader)

    # ---- what they see ----

    async def listen(
        self, wanted: Wanted, *, after: Mapping[str, int] | None, reader: str | None
    ) -> AsyncGenerator[FeedLine, None]:
        follower = await (await self._desk()).follow(wanted, after=after, reader=reader)
        kept = dict(follower.places)  # up to where everything is confirmed
        while not follower.is_over:
            lines = await _persistently(lambda: follower.next(timeout_s=LISTEN_S), follower) or []
            for line in lines:
                yield line_of(line.kind, line.body, number=line.number)
                # Whoever asks for the next one is done with this one.
                await self._confirm(follower, {line.session_id: line.number}, reader)
                kept[line.session_id] = line.number
            # Lines that were not wanted need not be looked at again.
            passed = {one: number for one, number in follower.places.items() if kept.get(one) != number}
            if passed:
                await self._confirm(follower, passed, reader)
                kept.update(passed)

    async def _confirm(self, follower: Follower, places: Mapping[str, int], reader: str | None) -> None:
        if reader is None:
            return
        ahead, follower.places = follower.places, dict(places)
        try:
            if follower.is_over:  # it may just be in time; an archive that is closed never answers
                self._office()
                async with asyncio.timeout(LAST_WORD_S):
                    await follower.confirm()
            else:
                await _persistently(follower.confirm, follower)
        except (TimeoutError, Unavailable):
            return  # closed: it is told again
        finally:
            follower.places = ahead


async def _persistently(ask: Callable[[], Awaitable[T]], follower: Follower) -> T | None:
    """Through times in which the archive does not answer. None: Peik is closed."""
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            if follower.is_over:
                return None
        await asyncio.sleep(BACK_S)


def _files(paths: Sequence[Path]) -> list[Path]:
    """Themselves, or what lies in the folder."""
    from peik.sessions.importing import session_files

    return [file for path in paths for file in (session_files(path) if path.is_dir() else [path])]


_encode = msgspec.json.Encoder().encode


def _session(session: Session) -> AccountSession:
    return decode_session(_encode(session_view(session)))


def _chat(state: ChatState) -> SessionChat:
    return decode_chat(_encode(chat_view(state)))
