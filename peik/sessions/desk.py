"""Everything a door may ask of accounts and their archive. The rules that all doors share live here; a door only translates."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec

from peik.archive_ports import (
    Archive,
    ChatState,
    EventFilter,
    Happening,
    LogFilter,
    LogLine,
    Message,
    MessageFilter,
    Session,
    SessionFilter,
    SessionState,
)
from peik.core.problem import BadInput
from peik.errors import NotFound
from peik.sessions.chats import ChatStates
from peik.sessions.cleaning import remove_old_sessions
from peik.sessions.client import ClientError, Qr
from peik.sessions.contexts import proxy_context
from peik.sessions.crawling import ask_for_crawl, stop_crawl
from peik.sessions.following import Follower, Wanted
from peik.sessions.importing import Looked
from peik.sessions.opened import OpenedDesk
from peik.sessions.registry import OLD_DAYS
from peik.sessions.resealing import Resealed, reseal
from peik.sessions.signing_in import problem_of


class SessionsDesk(OpenedDesk):
    """Everything raises Unavailable until the archive has opened, and Conflict for what needs an application at Telegram if there
    is none."""

    # ---- the registry: the twelve ----

    async def create_session(
        self,
        agent_id: str,
        *,
        phone: str | None = None,
        metadata: Mapping[str, object] | None = None,
        proxy: str | None = None,
        file: str | None = None,
        session_id: str | None = None,
    ) -> Session:
        """`file`: it runs from this Telethon file in PEIK_SESSIONS_DIR, which is signed in already."""
        self._ready()
        if file is not None or proxy is not None:
            self._must_be_able()
        made = await self._registry.create_session(agent_id, phone=phone, metadata=metadata, session_id=session_id)
        if proxy is None and file is None:
            return made
        try:
            return await self._equipped(made.session_id, proxy=proxy, file=file)
        except BaseException:
            await self._registry.delete_session(made.session_id)
            raise

    async def _equipped(self, session_id: str, *, proxy: str | None, file: str | None) -> Session:
        session = await self._registry.need(session_id) if proxy is None else await self.set_proxy(session_id, proxy)
        if file is None:
            return session
        assert self._importing is not None, "looked at before"
        self._importing.must_have(file)
        session = await self._registry.change(
            session_id, lambda old: msgspec.structs.replace(old, file=file, state=SessionState.ACTIVE)
        )
        self.look()
        return session

    async def get_session_by_id(self, session_id: str) -> Session | None:
        self._ready()
        return await self._registry.get_session_by_id(session_id)

    async def get_session_by_phone(self, phone: str) -> Session | None:
        self._ready()
        return await self._registry.get_session_by_phone(phone)

    async def get_sessions_by_agent(self, agent_id: str) -> list[Session]:
        self._ready()
        return await self._registry.get_sessions_by_agent(agent_id)

    async def get_all_active_sessions(self) -> list[Session]:
        self._ready()
        return await self._registry.get_all_active_sessions()

    async def update_session_phone(self, session_id: str, phone: str) -> Session:
        self._ready()
        return await self._registry.update_session_phone(session_id, phone)

    async def update_session_connected(self, session_id: str, is_connected: bool) -> Session:
        self._ready()
        return await self._registry.update_session_connected(session_id, is_connected)

    async def update_session_activity(self, session_id: str) -> None:
        self._ready()
        await self._registry.update_session_activity(session_id)

    async def update_session_metadata(self, session_id: str, metadata: Mapping[str, object]) -> Session:
        self._ready()
        return await self._registry.update_session_metadata(session_id, metadata)

    async def deactivate_session(self, session_id: str) -> Session:
        self._ready()
        session = await self._registry.deactivate_session(session_id)
        self.look()
        return session

    async def delete_session(self, session_id: str) -> bool:
        """Its account goes with it, unless another session has the same. Raises Conflict while there are letters to send."""
        self._ready()
        session = await self._registry.get_session_by_id(session_id)
        if session is None:
            return False
        if session.is_active:
            await self.deactivate_session(session_id)
        if self._crew is not None:
            await self._crew.leave(session_id)
        if session.user_id is not None and not await self._is_shared(session):
            await self._accounts.remove(session.user_id)
        return await self._registry.delete_session(session_id)

    async def cleanup_old_sessions(self, days: float = OLD_DAYS) -> int:
        self._ready()
        return await remove_old_sessions(self._registry, self._accounts, days)

    async def _is_shared(self, session: Session) -> bool:
        others = await self._registry.all(SessionFilter())
        return any(one.user_id == session.user_id and one.session_id != session.session_id for one in others)

    # ---- more of the registry ----

    async def session(self, session_id: str) -> Session:
        """Raises NotFound."""
        self._ready()
        return await self._registry.need(session_id)

    async def sessions(self, wanted: SessionFilter, *, after: str | None, limit: int) -> list[Session]:
        """In the order of their ids, after one."""
        return await self._ready().sessions(wanted, after=after, limit=limit)

    async def set_proxy(self, session_id: str, proxy: str | None) -> Session:
        """socks5://, socks4:// or http://user:password@host:port; None: straight. It is used from the next connect on."""
        self._ready()
        self._must_be_able().check_proxy(proxy)
        sealed = None if proxy is None else self._vault.seal(proxy, context=proxy_context(session_id))
        return await self._registry.change(session_id, lambda old: msgspec.structs.replace(old, proxy=sealed))

    async def activate_session(self, session_id: str) -> Session:
        """The contrary of `deactivate_session`."""
        self._ready()
        session = await self._registry.change(session_id, lambda old: msgspec.structs.replace(old, is_active=True))
        self.look()
        return session

    # ---- signing in ----

    async def send_code(self, session_id: str, phone: str | None = None, *, by_sms: bool = False) -> Session:
        return await self._signer().begin(session_id, phone, by_sms=by_sms)

    async def give_code(self, session_id: str, code: str) -> Session:
        return await self._signer().give_code(session_id, code)

    async def give_password(self, session_id: str, password: str) -> Session:
        return await self._signer().give_password(session_id, password)

    async def qr(self, session_id: str) -> Qr:
        """What became of it is in the session's state."""
        return await self._signer().qr(session_id)

    async def cancel_sign_in(self, session_id: str) -> Session:
        return await self._signer().cancel(session_id)

    # ---- running ----

    async def start(self, session_id: str) -> Session:
        return await self._running().start(session_id)

    async def stop(self, session_id: str) -> Session:
        return await self._running().stop(session_id)

    async def restart(self, session_id: str) -> Session:
        """Connect anew. Raises Conflict if it does not run on this node."""
        await self._running().restart(session_id)
        return await self._registry.need(session_id)

    async def log_out(self, session_id: str) -> Session:
        """At Telegram, too. Raises Conflict if it runs on another node."""
        try:
            return await self._running().log_out(session_id)
        except ClientError as error:
            raise problem_of(error) from None

    def import_files(
        self, paths: Sequence[Path], *, agent_id: str, check: bool = False, keep_files: bool = False
    ) -> AsyncIterator[Looked]:
        """One report for each file, as it comes. See `peik.sessions.importing`."""
        self._ready()
        return self._imported(self._must_be_able().run(paths, agent_id=agent_id, check=check, keep_files=keep_files))

    async def _imported(self, reports: AsyncIterator[Looked]) -> AsyncIterator[Looked]:
        async for report in reports:
            yield report
        self.look()

    async def reseal(self) -> Resealed:
        """After a change of PEIK_SECRET_KEY."""
        self._ready()
        return await reseal(self._registry, self._vault)

    # ---- what they saw ----

    async def messages(
        self, wanted: MessageFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Message], str | None]:
        return await self._ready().messages(wanted, cursor=cursor, limit=limit)

    async def count_messages(self, wanted: MessageFilter) -> int:
        return await self._ready().count_messages(wanted)

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[Message]:
        """The oldest first. Raises NotFound."""
        found = await self._ready().versions(session_id, chat_id, message_id)
        if not found:
            raise NotFound(code="no_such_message", detail="This message is not in the archive.")
        return found

    async def events(
        self, wanted: EventFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[Happening], str | None]:
        return await self._ready().events(wanted, cursor=cursor, limit=limit)

    async def logs(self, wanted: LogFilter, *, cursor: str | None, limit: int) -> tuple[list[LogLine], str | None]:
        return await self._ready().logs(wanted, cursor=cursor, limit=limit)

    async def archive(self) -> Archive:
        """For those who look after what is in it. Raises Unavailable until it is open."""
        return self._ready()

    async def forget_person(self, user_id: int) -> Mapping[str, int]:
        """How many rows went, by kind."""
        return await self._ready().forget_person(user_id)

    async def follow(
        self, wanted: Wanted, *, after: Mapping[str, int] | None = None, reader: str | None = None
    ) -> Follower:
        """What is archived from now on, in order for each session; with `after`, from behind these lines; with a reader's
        name, from where that reader was. Raises BadInput for both at once."""
        self._ready()
        if after is not None and reader is not None:
            raise BadInput(code="two_places", detail="Give a place, or the name of a reader; not both.")
        return await self._feeds.follow(wanted, after=after, reader=reader)

    async def forget_reader(self, reader: str) -> bool:
        return await self._ready().remove_reader(reader)

    # ---- crawls ----

    async def chats(self, session_id: str) -> list[ChatState]:
        """Chats of which something is known, in the order of their ids."""
        self._ready()
        await self._registry.need(session_id)
        return sorted(
            (one for one in await self._archive.chat_states(session_id) if one.chat_id), key=lambda one: one.chat_id
        )

    async def crawl(self, session_id: str, chat_id: int, *, until_ms: int = 0) -> ChatState:
        """Read the chat's history backwards. Durable when it returns; it goes on after restarts until it is done."""
        await self.session(session_id)
        state = await ask_for_crawl(self._chats_of(session_id), chat_id, until_ms=until_ms)
        runner = None if self._crew is None else self._crew.runner_of(session_id)
        if runner is not None:
            runner.ring()
        return state

    async def stop_crawl(self, session_id: str, chat_id: int) -> ChatState:
        await self.session(session_id)
        if all(one.chat_id != chat_id for one in await self._archive.chat_states(session_id)):
            raise NotFound(code="no_such_chat", detail="Nothing is known of this chat.")
        return await stop_crawl(self._chats_of(session_id), chat_id)

    def _chats_of(self, session_id: str) -> ChatStates:
        runner = None if self._crew is None else self._crew.runner_of(session_id)
        return runner.chats if runner is not None else ChatStates(session_id, self._archive, self._vault, self._clock)
