"""Everything that callers may ask of accounts and their archive. Rules that all of them share are here."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from peik.accounts.client import ClientError, PhoneContact
from peik.accounts.crew import Crew, not_running
from peik.accounts.events import ArchiveAway, ArchiveBack
from peik.accounts.feeds import FeedFilter, Feeds, Follower
from peik.accounts.history import ChatStates, CrawlEstimate, ask_for_crawl, estimated, is_wanted, stop_crawl
from peik.accounts.registry import (
    OLD_DAYS,
    AccountPort,
    KeepMode,
    Registry,
    kept_of,
    normal_phone,
    proxy_context,
    remove_old_sessions,
    secret_context,
    watched_of,
)
from peik.accounts.runner import SessionRunner, Unfit, client_for, is_to_run
from peik.accounts.session_files import Importing, Looked
from peik.accounts.sign_in import UNSIGNED, SignInSteps, problem_of
from peik.accounts.upkeep import Resealed, reseal
from peik.archive.store import (
    Archive,
    ChatState,
    MemberRecord,
    Message,
    Session,
    SessionFilter,
    SessionState,
)
from peik.clock import Clock
from peik.core.events import Events, Surprise
from peik.core.units import rfc3339
from peik.errors import BadInput, Conflict, NotFound, StartError, StoreUnavailable, Unavailable, described
from peik.secrets.vault import Vault

# The service of accounts from open to close: its archive, its chores, and its crew as leases come and go.


OPEN_RETRY_S = 2.0
OPEN_RETRY_S_MAX = 60.0
RESTART_S = 1.0
JOINS_A_DAY_MAX = 20  # no figure is known; people who join more are limited
CONTACTS_MAX = 100  # at once
CONTACTS_A_DAY_MAX = 300
MEMBERS_S_MIN, MEMBERS_S_MAX = 3600.0, 90 * 86_400.0
WATCHED_MAX = 50  # chats of an account


class Chore(Protocol):
    """Something that is done beside it all, on one node or on each."""

    async def run(self) -> None:
        """Until cancelled."""


class OpenAccounts:
    """What `AccountService` stands on. Before the archive has opened, everything raises Unavailable: bots need no archive, and do
    not wait for one."""

    def __init__(
        self,
        *,
        archive: Archive,
        registry: Registry,
        signing_in: SignInSteps | None,
        importing: Importing | None,
        crew: Crew | None,
        accounts: AccountPort,
        feeds: Feeds,
        vault: Vault,
        clock: Clock,
        events: Events,
        chores: Sequence[Chore] = (),
    ) -> None:
        """Without `signing_in`, `importing` and `crew` there is no application at Telegram: the archive can be read, and no
        session runs."""
        self._archive = archive
        self._registry = registry
        self._signing_in = signing_in
        self._importing = importing
        self._crew = crew
        self._accounts = accounts
        self._feeds = feeds
        self._vault = vault
        self._clock = clock
        self._events = events
        self._chores = chores
        self._away: str | None = "The archive is not open yet."
        self._tasks: list[asyncio.Task[None]] = []
        self._is_opened = False

    # ---- from open to close ----

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Open the archive, as soon as it can be, and run."""
        self._tasks.append(group.create_task(self._run(group)))

    async def open(self) -> None:
        """Only to read and write; no session runs. Raises StartError."""
        await self._archive.open()
        self._opened()

    async def _run(self, group: asyncio.TaskGroup) -> None:
        pause_s = OPEN_RETRY_S
        while not self._is_opened:
            try:
                await self._archive.open()
                self._opened()
                self._events.tell(ArchiveBack())
            except (StartError, StoreUnavailable) as error:
                self._away = str(error)
                self._events.tell(ArchiveAway(why=self._away))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, OPEN_RETRY_S_MAX)
        runs = [*self._chores, *([self._crew] if self._crew is not None else [])]
        self._tasks.extend(group.create_task(self._surely(one)) for one in runs)

    async def _surely(self, chore: Chore) -> None:
        while True:
            try:
                await chore.run()
                return
            except Exception as error:  # noqa: BLE001  one chore's surprise ends nothing else
                self._events.tell(Surprise(where=f"sessions, {type(chore).__name__}", error=described(error)))
                await asyncio.sleep(RESTART_S)

    def _opened(self) -> None:
        self._is_opened = True
        self._away = None

    async def end(self) -> None:
        """Every session is disconnected when this returns, and its lock given back."""
        self._feeds.end()
        if self._signing_in is not None:
            await self._signing_in.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()

    async def close(self) -> None:
        if self._is_opened:
            await self._archive.close()

    def end_streams(self) -> None:
        """Streams would keep their connections open for all of the grace."""
        self._feeds.end()

    # ---- leases come and go, see peik.app.node ----

    def look(self) -> None:
        """A session or a lease came, changed or went."""
        if self._crew is not None:
            self._crew.ring()

    async def let_go(self, user_id: int | None) -> None:
        if self._crew is not None:
            await self._crew.let_go(user_id)

    def drop(self, user_id: int | None) -> None:
        if self._crew is not None:
            self._crew.drop(user_id)

    def line_of(self, user_id: int) -> SessionRunner | None:
        """The connection that an account's letters go out by."""
        return None if self._crew is None else self._crew.line_of(user_id)

    def beaten(self, began: float) -> None:
        if self._crew is not None:
            self._crew.beaten(began)

    # ---- how it stands ----

    def trouble(self) -> str | None:
        """Why the archive cannot be used now, as far as is known."""
        return self._away or self._archive.trouble()

    def running(self) -> list[str]:
        """The sessions that run on this node."""
        return [] if self._crew is None else self._crew.running()

    def unconnected(self) -> list[str]:
        """Those of them that are not connected, and not only for a moment."""
        crew = self._crew
        if crew is None:
            return []
        runners = {one: crew.runner_of(one) for one in crew.running()}
        return [one for one, runner in runners.items() if runner is not None and runner.is_failing]

    # ---- those who know ----

    @property
    def archive(self) -> Archive:
        """What was seen, and all sessions. Raises Unavailable until it is open."""
        self._must_be_open()
        return self._archive

    def _must_be_open(self) -> None:
        if self._away is not None:
            raise Unavailable(code="archive_away", detail=self._away)

    @property
    def signing_in(self) -> SignInSteps:
        """Raises Conflict without an application."""
        self._must_be_open()
        if self._signing_in is None:
            raise _no_application()
        return self._signing_in

    def _must_be_able(self) -> Importing:
        self._must_be_open()
        if self._importing is None:
            raise _no_application()
        return self._importing

    @property
    def crew(self) -> Crew:
        """Who starts and stops sessions. Raises Conflict without an application."""
        self._must_be_open()
        if self._crew is None:
            raise _no_application()
        return self._crew


def _no_application() -> Conflict:
    return Conflict(
        code="no_application",
        detail="Peik has no application at Telegram: set TELEGRAM_API_ID and TELEGRAM_API_HASH from my.telegram.org.",
    )


class AccountService(OpenAccounts):
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
        self._must_be_open()
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
        self._must_be_open()
        return await self._registry.get_session_by_id(session_id)

    async def get_session_by_phone(self, phone: str) -> Session | None:
        self._must_be_open()
        return await self._registry.get_session_by_phone(phone)

    async def get_sessions_by_agent(self, agent_id: str) -> list[Session]:
        self._must_be_open()
        return await self._registry.get_sessions_by_agent(agent_id)

    async def get_all_active_sessions(self) -> list[Session]:
        self._must_be_open()
        return await self._registry.get_all_active_sessions()

    async def update_session_phone(self, session_id: str, phone: str) -> Session:
        self._must_be_open()
        return await self._registry.update_session_phone(session_id, phone)

    async def update_session_connected(self, session_id: str, is_connected: bool) -> Session:
        self._must_be_open()
        return await self._registry.update_session_connected(session_id, is_connected)

    async def update_session_activity(self, session_id: str) -> None:
        self._must_be_open()
        await self._registry.update_session_activity(session_id)

    async def update_session_metadata(self, session_id: str, metadata: Mapping[str, object]) -> Session:
        self._must_be_open()
        return await self._registry.update_session_metadata(session_id, metadata)

    async def update_session_keep(self, session_id: str, keep: Mapping[str, KeepMode | None]) -> Session:
        """What is archived of these chats (by number, or all, private, groups) from now on; None removes a choice."""
        self._must_be_open()
        session = await self._registry.update_session_keep(session_id, keep)
        runner = None if self._crew is None else self._crew.runner_of(session_id)
        if runner is not None:
            runner.chats.choose()
            runner.ring()
        return session

    async def deactivate_session(self, session_id: str) -> Session:
        self._must_be_open()
        session = await self._registry.deactivate_session(session_id)
        self.look()
        return session

    async def delete_session(self, session_id: str) -> bool:
        """Its account goes with it, unless another session has the same. Raises Conflict while there are letters to send."""
        self._must_be_open()
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
        self._must_be_open()
        return await remove_old_sessions(self._registry, self._accounts, days)

    async def _is_shared(self, session: Session) -> bool:
        others = await self._registry.all(SessionFilter())
        return any(one.user_id == session.user_id and one.session_id != session.session_id for one in others)

    # ---- more of the registry ----

    async def session(self, session_id: str) -> Session:
        """Raises NotFound."""
        self._must_be_open()
        return await self._registry.need(session_id)

    async def set_proxy(self, session_id: str, proxy: str | None) -> Session:
        """socks5://, socks4:// or http://user:password@host:port; None: straight. It is used from the next connect on."""
        self._must_be_open()
        self._must_be_able().check_proxy(proxy)
        sealed = None if proxy is None else self._vault.seal(proxy, context=proxy_context(session_id))
        return await self._registry.change(session_id, lambda old: msgspec.structs.replace(old, proxy=sealed))

    async def activate_session(self, session_id: str) -> Session:
        """The contrary of `deactivate_session`."""
        self._must_be_open()
        session = await self._registry.change(session_id, lambda old: msgspec.structs.replace(old, is_active=True))
        self.look()
        return session

    # ---- running ----

    async def restart(self, session_id: str) -> Session:
        """Connect anew. Raises Conflict if it does not run on this node."""
        await self.crew.restart(session_id)
        return await self._registry.need(session_id)

    async def log_out(self, session_id: str) -> Session:
        """At Telegram, too. Raises Conflict if it runs on another node."""
        try:
            return await self.crew.log_out(session_id)
        except ClientError as error:
            raise problem_of(error) from None

    def import_files(
        self,
        paths: Sequence[Path],
        *,
        agent_id: str,
        check: bool = False,
        keep_files: bool = False,
        is_dry: bool = False,
    ) -> AsyncIterator[Looked]:
        """One report for each file, as it comes. See `peik.accounts.session_files`."""
        self._must_be_open()
        run = self._must_be_able().run
        return self._imported(run(paths, agent_id=agent_id, check=check, keep_files=keep_files, is_dry=is_dry))

    async def _imported(self, reports: AsyncIterator[Looked]) -> AsyncIterator[Looked]:
        async for report in reports:
            yield report
        self.look()

    async def import_string(
        self, text: str, *, agent_id: str, passphrase: str | None = None, check: bool = False
    ) -> Session:
        """A session from its string, of Telethon 1 or as `export_string` gave it. Raises BadInput and Conflict."""
        self._must_be_open()
        session = await self._must_be_able().take_string(text, agent_id=agent_id, passphrase=passphrase, check=check)
        self.look()
        return session

    async def export_string(self, session_id: str, *, passphrase: str | None) -> str:
        """The account's key as one line: sealed with the passphrase, or, without one, as Telethon has it. Whoever has that is the
        account. Raises Conflict while it is to run here: two programs on one key end the session."""
        from peik.accounts.session_files import read_session_file, sealed_export

        self._must_be_open()
        session = await self._registry.need(session_id)
        if is_to_run(session):
            raise Conflict(
                code="session_runs",
                detail="Pause it first: two programs on one key end the session. It stays paused until you start it again.",
            )
        nobody = Conflict(code="not_signed_in", detail="There is no key to export: nobody is signed in.")
        if session.state in UNSIGNED:
            raise nobody
        try:
            client_for(session, vault=self._vault, clients=self._must_be_able().clients)
        except Unfit as error:
            raise Conflict(code="not_signed_in", detail=f"There is no key to export: {error}") from None
        if session.secret is not None:
            secret = self._vault.open(session.secret, context=secret_context(session_id))
        elif session.file is not None:
            path = self._must_be_able().path_of(session.file)
            secret = (await asyncio.to_thread(read_session_file, path)).secret
        else:
            raise nobody
        exported = secret if passphrase is None else await asyncio.to_thread(sealed_export, secret, passphrase)
        await self._registry.update_session_metadata(session_id, {"exported_at": rfc3339(self._clock.wall_ms())})
        return exported

    async def reseal(self) -> Resealed:
        """After a change of PEIK_SECRET_KEY."""
        self._must_be_open()
        return await reseal(self._registry, self._vault)

    # ---- what an account asks Telegram for itself, on the node that runs it ----

    async def join(self, session_id: str, link: str) -> ChatState:
        """By an invite link, or a public name. Raises Conflict if it does not run here, or was in too many chats today."""
        runner = await self._running(session_id)
        await self._registry.count_deed(session_id, "join", 1, JOINS_A_DAY_MAX)
        try:
            dialog = await runner.ask(lambda client: client.join(link))
        except ClientError as error:
            raise problem_of(error) from None
        return await runner.chats.joined(dialog)

    async def contacts(self, session_id: str) -> list[PhoneContact]:
        runner = await self._running(session_id)
        try:
            return await runner.ask(lambda client: client.contacts())
        except ClientError as error:
            raise problem_of(error) from None

    async def add_contacts(
        self, session_id: str, wanted: Sequence[PhoneContact]
    ) -> tuple[list[PhoneContact], list[str]]:
        """Those who have an account, and the phones that are to be given again later."""
        if not 0 < len(wanted) <= CONTACTS_MAX:
            raise BadInput(code="bad_contacts", detail=f"Give 1 to {CONTACTS_MAX} contacts at once.")
        numbered = [msgspec.structs.replace(one, phone=normal_phone(one.phone or "")) for one in wanted]
        runner = await self._running(session_id)
        await self._registry.count_deed(session_id, "contact", len(numbered), CONTACTS_A_DAY_MAX)
        try:
            return await runner.ask(lambda client: client.add_contacts(numbered))
        except ClientError as error:
            raise problem_of(error) from None

    async def _running(self, session_id: str) -> SessionRunner:
        session = await self.session(session_id)
        runner = self.crew.runner_of(session_id)
        if runner is None:
            raise not_running(session)
        return runner

    # ---- what they saw ----

    async def versions(self, session_id: str, chat_id: int, message_id: int) -> list[Message]:
        """The oldest first. Raises NotFound."""
        found = await self.archive.versions(session_id, chat_id, message_id)
        if not found:
            raise NotFound(code="no_such_message", detail="This message is not in the archive.")
        return found

    async def follow(
        self, wanted: FeedFilter, *, after: Mapping[str, int] | None = None, reader: str | None = None
    ) -> Follower:
        """What is archived from now on, in order for each session; with `after`, from behind these lines; with a reader's
        name, from where that reader was. Raises BadInput for both at once."""
        self._must_be_open()
        if after is not None and reader is not None:
            raise BadInput(code="two_places", detail="Give a place, or the name of a reader; not both.")
        return await self._feeds.follow(wanted, after=after, reader=reader)

    # ---- members of chats ----

    async def watch_members(self, session_id: str, chat_id: int, every_s: float | None) -> Session:
        """Read who is in a group or channel now and so often from now on; None: not any more. What is known stays."""
        session = await self.session(session_id)
        if every_s is not None:
            if not MEMBERS_S_MIN <= every_s <= MEMBERS_S_MAX:
                raise BadInput(
                    code="bad_every", detail="Members are read every hour at most, and every 90 days at least."
                )
            if chat_id > 0:
                raise BadInput(code="bad_chat_id", detail="A private chat has no members.")
            if len({*watched_of(session), chat_id}) > WATCHED_MAX:
                raise Conflict(code="too_many_chats", detail=f"Members of {WATCHED_MAX} chats are read at most.")
        session = await self._registry.watch_members(session_id, chat_id, every_s)
        runner = None if self._crew is None else self._crew.runner_of(session_id)
        if runner is not None:
            runner.ring()
        return session

    async def members(
        self, session_id: str, chat_id: int, *, at_ms: int | None, after: int, limit: int
    ) -> list[MemberRecord]:
        """Who is there as far as is known, or was at a time."""
        await self.session(session_id)
        return await self._archive.members(session_id, chat_id, at_ms=at_ms, after=after, limit=limit)

    # ---- crawls ----

    async def chats(self, session_id: str) -> list[ChatState]:
        """Chats of which something is known, in the order of their ids."""
        self._must_be_open()
        await self._registry.need(session_id)
        return sorted(
            (one for one in await self._archive.chat_states(session_id) if one.chat_id), key=lambda one: one.chat_id
        )

    async def crawl(self, session_id: str, chat_id: int, *, until_ms: int = 0) -> ChatState:
        """Read the chat's history backwards. Durable when it returns; it goes on after restarts until it is done."""
        if not kept_of(await self.session(session_id)).has(chat_id):
            raise Conflict(
                code="chat_not_kept",
                detail="Nothing of this chat is archived. Choose otherwise first, with keep: `peik sessions set` or "
                "PATCH /v1/sessions/{id}.",
            )
        state = await ask_for_crawl(self._chats_of(session_id), chat_id, until_ms=until_ms)
        runner = None if self._crew is None else self._crew.runner_of(session_id)
        if runner is not None:
            runner.ring()
        return state

    async def estimate_crawl(self, session_id: str, chat_id: int) -> CrawlEstimate:
        """How long it would take to read all of the chat that is not read yet. Nothing is read. Raises Conflict if the account
        does not run here."""
        runner = await self._running(session_id)
        known = await runner.chats.all()
        state = known.get(chat_id, ChatState(session_id=session_id, chat_id=chat_id))
        try:
            count = await runner.ask(lambda client: client.count(chat_id, runner.chats.access(state)))
        except ClientError as error:
            raise problem_of(error) from None
        others = sum(is_wanted(one) for one in known.values() if one.chat_id != chat_id)
        return estimated(state, count, others=others)

    async def stop_crawl(self, session_id: str, chat_id: int) -> ChatState:
        await self.session(session_id)
        if all(one.chat_id != chat_id for one in await self._archive.chat_states(session_id)):
            raise NotFound(code="no_such_chat", detail="Nothing is known of this chat.")
        return await stop_crawl(self._chats_of(session_id), chat_id)

    def _chats_of(self, session_id: str) -> ChatStates:
        runner = None if self._crew is None else self._crew.runner_of(session_id)
        return runner.chats if runner is not None else ChatStates(session_id, self._archive, self._vault, self._clock)
