"""One session, run: connected, listening, mended when it breaks. Whatever it meets, it disturbs no other.

States in the registry are told by this file alone while it runs: active, flood_wait, revoked, failed. Paused and deactivated
are its owner's, and never written over.
"""

import asyncio
import enum
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from peik.accounts.budget import Budget, PatientRequests
from peik.accounts.client import AccountClient, ClientError, ClientFactory, HistoryGap, Me, Trouble
from peik.accounts.events import (
    ArchiveGap,
    SessionCalm,
    SessionDown,
    SessionFed,
    SessionFlooded,
    SessionRevoked,
    SessionUnfit,
    SessionUp,
)
from peik.accounts.feeds import lines_of_deleted, lines_of_events, lines_of_messages
from peik.accounts.history import ChatRetries, ChatStates, HistoryCrawl, Reconciler
from peik.accounts.media import MediaFetch, MediaFolder
from peik.accounts.members import MemberLooks
from peik.accounts.registry import Registry, proxy_context, secret_context
from peik.archive.store import Archive, FeedRecord, Happening, Message, Session, SessionState
from peik.clock import Clock
from peik.core.events import Event, Events, Surprise
from peik.errors import Conflict, NotFound, Problem, Unavailable, described
from peik.secrets.vault import Vault
from peik.wakeup import Wakeup

# What a session sees goes into the archive and its feed, and only then does its place in Telegram's updates go on: a
# crash in between tells it again, and keys make that once.


KEEP_S = 60.0  # an archive that does not answer for so long ends the connection: Telegram keeps what follows
CATCH_UP_S = 600.0  # by then what happened while it was away has come, and a gap is one of now


class SeenUpdates:
    """The port `Listener`, for one connection. What the archive refuses is raised: the client then ends the connection, and
    all since the last state comes again."""

    def __init__(
        self,
        session_id: str,
        *,
        book: Archive,
        registry: Registry,
        chats: ChatStates,
        reconciler: Reconciler,
        clock: Clock,
        events: Events,
        away_since_ms: int,
        agent_id: str,
        on_files: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_files`: there are messages that carry files."""
        self._on_files = on_files
        self._session_id = session_id
        self._agent_id = agent_id
        self._book = book
        self._registry = registry
        self._chats = chats
        self._reconciler = reconciler
        self._clock = clock
        self._events = events
        self._away_since_ms = away_since_ms
        self._began_at = clock.mono()
        self.lost: asyncio.Future[ClientError] = asyncio.get_running_loop().create_future()

    async def on_messages(self, messages: Sequence[Message]) -> None:
        async with asyncio.timeout(KEEP_S):
            kept = await self._chats.kept()
            if wanted := [one for one in messages if kept.has(one.chat_id)]:
                await self._book.keep_messages(wanted)
                await self._feed(lines_of_messages(wanted, at_ms=self._clock.wall_ms()))
                if any(one.media is not None for one in wanted):
                    self._on_files()
            await self._chats.see(messages)
            await self._registry.update_session_activity(self._session_id)

    async def on_deleted(self, chat_id: int | None, message_ids: Sequence[int]) -> None:
        at_ms = self._clock.wall_ms()
        async with asyncio.timeout(KEEP_S):
            if not (await self._chats.kept()).has(chat_id):
                return
            await self._book.mark_deleted(self._session_id, chat_id, message_ids, at_ms=at_ms)
            await self._feed(lines_of_deleted(self._session_id, self._agent_id, chat_id, message_ids, at_ms=at_ms))

    async def on_happenings(self, happenings: Sequence[Happening]) -> None:
        async with asyncio.timeout(KEEP_S):
            kept = await self._chats.kept()
            if wanted := [one for one in happenings if kept.has(one.chat_id)]:
                await self._book.keep_events(wanted)
                await self._feed(lines_of_events(wanted, at_ms=self._clock.wall_ms()))
            await self._registry.update_session_activity(self._session_id)

    async def _feed(self, lines: Sequence[FeedRecord]) -> None:
        count = await self._book.feed(lines)
        if count:
            self._events.tell(SessionFed(session_id=self._session_id, count=count))

    async def on_gap(self, gap: HistoryGap) -> None:
        is_catching_up = self._clock.mono() - self._began_at < CATCH_UP_S
        since_ms = self._away_since_ms if is_catching_up else self._clock.wall_ms() - int(CATCH_UP_S * 1000)
        async with asyncio.timeout(KEEP_S):
            await self._reconciler.note_gap(gap.chat_id, since_ms=since_ms)
        self._events.tell(ArchiveGap(session_id=self._session_id, chat_id=gap.chat_id))

    async def on_state(self, state: bytes) -> None:
        async with asyncio.timeout(KEEP_S):
            await self._book.save_updates_state(self._session_id, state)

    def on_lost(self, error: ClientError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)


CONNECT_S = 60.0
LISTEN_S = 120.0  # with a list of all chats in it, the first time
LEAVE_S = 5.0
NOTE_S = 10.0
BACKOFF_S = 1.0
BACKOFF_S_MAX = 300.0
CALM_S = 60.0  # after so long on the line the next failure is the first one again
RECONCILE_S = 900.0
HOUSE_RETRY_S = 60.0
LIMITED_S = 60.0  # a shorter wait of its letters is nobody's business

RUNNING = frozenset({SessionState.ACTIVE, SessionState.FLOOD_WAIT})
_FATAL = frozenset({Trouble.BAD_KEYS, Trouble.PHONE_BANNED})

T = TypeVar("T")


class SessionEnded(enum.Enum):
    """Why a session does not run any more by itself."""

    REVOKED = "revoked"
    FAILED = "failed"
    GONE = "gone"  # removed, paused or deactivated


class SessionTools(msgspec.Struct, frozen=True, kw_only=True):
    """What all sessions of a node share."""

    registry: Registry
    book: Archive
    vault: Vault
    clients: ClientFactory
    budget: Budget
    clock: Clock
    events: Events
    chance: random.Random
    reconcile_s: float = RECONCILE_S
    media: MediaFolder | None = None  # where files of messages go; None: they are left at Telegram


class Unfit(Exception):
    """It cannot run as it is kept; says why, as a sentence."""


def is_to_run(session: Session) -> bool:
    """Whether somebody is signed in there, and its owner wants it to run."""
    return session.is_active and session.state in RUNNING and (session.secret is not None or session.file is not None)


def client_for(session: Session, *, vault: Vault, clients: ClientFactory) -> AccountClient:
    """Raises Unfit."""
    secret = proxy = None
    try:
        if session.secret is not None:
            secret = vault.open(session.secret, context=secret_context(session.session_id))
        if session.proxy is not None:
            proxy = vault.open(session.proxy, context=proxy_context(session.session_id))
        return clients(
            session_id=session.session_id,
            agent_id=session.agent_id,
            secret=secret,
            file=None if secret is not None else session.file,
            proxy=proxy,
        )
    except Problem as problem:
        raise Unfit(problem.detail) from None


class SessionRunner:
    """Call `run` once. Cancelled, it disconnects first; that takes LEAVE_S at most."""

    def __init__(
        self,
        session_id: str,
        tools: SessionTools,
        *,
        is_ours: Callable[[], bool] = lambda: True,
        leave_s: float = LEAVE_S,
    ) -> None:
        """`is_ours` says whether this node may act for the session just now."""
        self.session_id = session_id
        self._tools = tools
        self._is_ours = is_ours
        self._leave_s = leave_s
        self._bell = Wakeup()
        self._chats = ChatStates(session_id, tools.book, tools.vault, tools.clock)
        self._retries = ChatRetries(session_id, clock=tools.clock, events=tools.events)
        self._client: AccountClient | None = None
        self._me: Me | None = None
        self._asking: PatientRequests | None = None  # of this connection
        self._up_at: float | None = None  # since when it listens
        self._failures = 0  # in a row
        self._is_down = False  # and somebody was told
        self._twin: str | None = None  # another session of the same account
        self._limited = ""  # why its letters wait
        self._limited_until = float("-inf")
        self._noted: str | None = None  # what the registry says is wrong, while it is to run

    @property
    def chats(self) -> ChatStates:
        return self._chats

    @property
    def client(self) -> AccountClient | None:
        """While it listens, and this node may."""
        client = self._client
        return client if client is not None and client.is_connected and self._is_ours() else None

    @property
    def me(self) -> Me | None:
        return self._me

    async def ask(self, act: Callable[[AccountClient], Awaitable[T]]) -> T:
        """One request of somebody who waits for it. Raises Conflict while it is not connected here, and ClientError."""
        client, asking = self.client, self._asking
        if client is None or asking is None:
            raise Conflict(
                code="session_unconnected",
                detail=f"Session {self.session_id} is not connected just now; see its health.",
            )
        return await asking.once(lambda: act(client))

    async def access_of(self, chat_id: int) -> bytes | None:
        """What opens a chat, as the archive knows it."""
        with suppress(Problem):  # an archive that is away keeps no letter from its chat: Telegram is asked then
            state = (await self._chats.all()).get(chat_id)
            return None if state is None else self._chats.access(state)
        return None

    def limited(self, why: str, *, wait_s: float) -> None:
        """Telegram takes no letters of this account for so long. What it sees goes on."""
        until = self._tools.clock.mono() + wait_s
        if wait_s >= LIMITED_S and until > self._limited_until + LIMITED_S:
            self._limited_until, self._limited = until, why
            self._tell(SessionFlooded(session_id=self.session_id, wait_s=wait_s))
            self._bell.ring()

    @property
    def is_failing(self) -> bool:
        """Whether it could not connect, more than once."""
        return self._is_down and self._failures > 1

    def ring(self) -> None:
        """A crawl was asked for."""
        self._bell.ring()

    # ---- from one connection to the next ----

    async def run(self) -> SessionEnded:
        """Until it cannot go on by itself. Raises nothing but CancelledError."""
        self._failures = 0
        try:
            while True:
                self._up_at = None
                try:
                    ended, why, wait_s = await self._life()
                except Exception as error:  # noqa: BLE001  one session's surprise ends one connection
                    ended, why, wait_s = None, described(error), 0.0
                    if not isinstance(error, Problem):
                        self._tell(Surprise(where=f"session {self.session_id}", error=why))
                if ended is not None:
                    return ended
                self._failures = 1 if self._was_calm() else self._failures + 1
                pause_s = min(BACKOFF_S * 2 ** min(self._failures - 1, 20), BACKOFF_S_MAX)
                # Jitter: a thousand sessions that were cut together must not come back together.
                pause_s = max(wait_s, pause_s * self._tools.chance.uniform(0.5, 1.0))
                self._is_down = True
                self._tell(SessionDown(session_id=self.session_id, why=why, retry_s=pause_s))
                # Most connections are made again at once, and a flood is noted with its end.
                if self._failures > 1 and not wait_s:
                    with suppress(Problem, TimeoutError):  # it is shown, and nothing rests on it
                        async with asyncio.timeout(NOTE_S):
                            await self._note_trouble(f"It cannot connect, and tries again by itself: {why}")
                await asyncio.sleep(pause_s)
        finally:
            self._tools.budget.forget(self.session_id)
            self._tell_calm()
            for chat_id in self._retries.behind():
                self._retries.succeeded(chat_id)  # it is nobody's here any more

    def _was_calm(self) -> bool:
        return self._up_at is not None and self._tools.clock.mono() - self._up_at >= CALM_S

    async def _life(self) -> tuple[SessionEnded | None, str, float]:
        """One connection: how it ended, and how long Telegram wants to be left alone."""
        try:
            session = await self._tools.registry.need(self.session_id)
        except NotFound:
            return SessionEnded.GONE, "It was removed.", 0.0
        if not is_to_run(session):
            return SessionEnded.GONE, "It is not to run.", 0.0
        try:
            client = client_for(session, vault=self._tools.vault, clients=self._tools.clients)
        except Unfit as error:
            return await self._fail(str(error)), str(error), 0.0
        lost: ClientError | Unfit
        try:
            lost = await self._connection(session, client)
        except Unfit as error:
            lost = error
        finally:
            await self._leave(client)
        if isinstance(lost, Unfit):
            return await self._fail(str(lost)), str(lost), 0.0
        return await self._judge(lost)

    async def _connection(self, session: Session, client: AccountClient) -> ClientError:
        """Until it is lost: why."""
        try:
            await self._tools.budget.connect_turn()
            me = await _within(CONNECT_S, client.connect())
            if me is None:
                return ClientError(Trouble.REVOKED, "Telegram does not know this session any more. Sign in again.")
            await self._learn_phone(session, me)
            return await self._listen(session, client, me)
        except ClientError as error:
            return error

    async def _learn_phone(self, session: Session, me: Me) -> None:
        """Of an account that was taken in by its key. Raises Unfit if another session has this phone already: two that run as
        one account see everything twice. One that has run before goes on, and says so."""
        self._twin = None
        if session.phone is not None or me.phone is None or not self._is_ours():
            return
        phone = me.phone
        try:
            await self._tools.registry.change(
                self.session_id, lambda old: msgspec.structs.replace(old, phone=old.phone or phone)
            )
        except Conflict as conflict:
            if conflict.code != "phone_taken":
                raise
            self._twin = "Another active session has the phone of this account; one of the two is enough."
            if session.user_id is None:
                raise Unfit(f"{self._twin} Remove this one, or deactivate the other and start this one.") from None

    async def _listen(self, session: Session, client: AccountClient, me: Me) -> ClientError:
        tools = self._tools
        wait_s = ((session.state_until_ms or 0) - tools.clock.wall_ms()) / 1000
        is_waiting = session.state is SessionState.FLOOD_WAIT and wait_s > 0
        if is_waiting:
            tools.budget.flooded(self.session_id, wait_s)  # of a life before this one
        asking = self._asking = PatientRequests(
            self.session_id, tools.budget, on_flood=self._flooded, on_calm=self._calm
        )
        reconciler = Reconciler(
            self._chats,
            book=tools.book,
            asking=asking,
            retries=self._retries,
            bell=self._bell,
            clock=tools.clock,
            events=tools.events,
            owed_since_ms=session.created_at_ms,
            agent_id=session.agent_id,
        )
        state = await tools.book.updates_state(self.session_id)
        if state is None:  # the client then goes by the list of all chats
            await reconciler.begin(client)
        seeing = SeenUpdates(
            self.session_id,
            book=tools.book,
            registry=tools.registry,
            chats=self._chats,
            reconciler=reconciler,
            clock=tools.clock,
            events=tools.events,
            away_since_ms=session.active_at_ms or session.created_at_ms,
            agent_id=session.agent_id,
            on_files=self._bell.ring,
        )
        await _within(LISTEN_S, client.listen(seeing, state))
        self._noted = self._trouble()
        await self._note(None if is_waiting else SessionState.ACTIVE, reason=self._noted, is_connected=True, me=me)
        self._client, self._me, self._up_at = client, me, tools.clock.mono()
        self._tell(SessionUp(bot_id=me.user_id, session_id=self.session_id))
        self._tell_calm()
        media = None
        if tools.media is not None:
            media = MediaFetch(
                self.session_id,
                tools.media,
                self._chats,
                book=tools.book,
                asking=asking,
                clock=tools.clock,
                events=tools.events,
            )
        crawl = HistoryCrawl(
            self._chats,
            book=tools.book,
            asking=asking,
            retries=self._retries,
            events=tools.events,
            on_page=None if media is None else media.fetch_page,
        )
        members = MemberLooks(
            self.session_id,
            session.agent_id,
            self._chats,
            book=tools.book,
            registry=tools.registry,
            asking=asking,
            clock=tools.clock,
            events=tools.events,
        )
        house = asyncio.create_task(
            self._keep_house(client, asking, reconciler, crawl, members, media, is_first=state is None),
            name=f"house of {self.session_id}",
        )
        try:
            return await seeing.lost
        finally:
            self._client = None
            house.cancel()
            await asyncio.wait([house])

    async def _leave(self, client: AccountClient) -> None:
        """Before anything else: whoever runs it next must not meet this connection."""
        try:
            async with asyncio.timeout(self._leave_s):
                await client.disconnect()
        except Exception as error:  # noqa: BLE001  we are done with it either way
            if not isinstance(error, ClientError):
                self._tell(Surprise(where=f"end of session {self.session_id}", error=described(error)))
        if self._up_at is not None and self._is_ours():
            with suppress(Problem, TimeoutError):  # it is shown, and nothing rests on it
                async with asyncio.timeout(NOTE_S):
                    await self._tools.registry.update_session_connected(self.session_id, is_connected=False)

    async def _judge(self, lost: ClientError) -> tuple[SessionEnded | None, str, float]:
        if lost.trouble is Trouble.REVOKED:
            await self._surely(SessionState.REVOKED, lost.words)
            self._tell(SessionRevoked(session_id=self.session_id, why=lost.words))
            return SessionEnded.REVOKED, lost.words, 0.0
        if lost.trouble in _FATAL:
            return await self._fail(lost.words), lost.words, 0.0
        if lost.trouble is Trouble.FLOOD:
            self._tools.budget.flooded(self.session_id, lost.wait_s)
            await self._flooded(lost)
            return None, lost.words, lost.wait_s
        return None, lost.words, 0.0

    async def _fail(self, why: str) -> SessionEnded:
        await self._surely(SessionState.FAILED, why)
        self._tell(SessionUnfit(session_id=self.session_id, why=why))
        return SessionEnded.FAILED

    # ---- what is done beside listening ----

    async def _keep_house(
        self,
        client: AccountClient,
        asking: PatientRequests,
        reconciler: Reconciler,
        crawl: HistoryCrawl,
        members: MemberLooks,
        media: MediaFetch | None,
        *,
        is_first: bool,
    ) -> None:
        """Gaps first, then a file, a page of members and one of a crawl in turn, and now and then a look whether anything is
        missing."""
        clock, chance = self._tools.clock, self._tools.chance
        look_at = clock.mono() + (0.0 if is_first else self._tools.reconcile_s * chance.random())
        while True:
            try:
                await asking.calm()
                await self._note_trouble(self._trouble())
                if clock.mono() >= look_at or await reconciler.has_gaps():
                    look_at = clock.mono() + self._tools.reconcile_s * chance.uniform(0.9, 1.1)
                    await reconciler.look(client)
                    continue
                has_more = media is not None and await media.step(client)
                has_more = await members.step(client) or has_more
                if not await crawl.step(client) and not has_more:
                    times = (
                        look_at,
                        asking.calm_at,
                        self._retries.next_at(),
                        members.next_at(),
                        None if media is None else media.next_at(),
                    )
                    await self._bell.wait(min(at for at in times if at is not None))
            except (ClientError, Problem) as error:
                if isinstance(error, ClientError) and error.trouble is Trouble.REVOKED:
                    return  # the connection says so, too
                look_at = clock.mono() + HOUSE_RETRY_S
                await asyncio.sleep(HOUSE_RETRY_S)
            except Exception as error:  # noqa: BLE001  listening goes on without it
                self._tell(Surprise(where=f"house of session {self.session_id}", error=described(error)))
                await asyncio.sleep(HOUSE_RETRY_S)

    async def _flooded(self, error: ClientError) -> None:
        until_ms = self._tools.clock.wall_ms() + int(error.wait_s * 1000)
        await self._note(SessionState.FLOOD_WAIT, reason=error.words, until_ms=until_ms)
        self._tell(SessionFlooded(session_id=self.session_id, wait_s=error.wait_s))

    async def _calm(self) -> None:
        self._noted = self._trouble()
        await self._note(SessionState.ACTIVE, reason=self._noted)

    def _trouble(self) -> str | None:
        """What is wrong while it is connected."""
        limited = self._limited if self._tools.clock.mono() < self._limited_until else None
        return " ".join(why for why in (limited, self._retries.why(), self._twin) if why) or None

    # ---- the registry ----

    async def _note_trouble(self, why: str | None) -> None:
        """What is wrong with a session that is to run; None: nothing."""
        if why == self._noted or not self._is_ours():
            return

        def noted(old: Session) -> Session:
            is_running = old.is_active and old.state is SessionState.ACTIVE
            return msgspec.structs.replace(old, state_reason=why) if is_running else old

        with suppress(NotFound):
            await self._tools.registry.change(self.session_id, noted)
        self._noted = why

    async def _note(
        self,
        state: SessionState | None,
        *,
        reason: str | None = None,
        until_ms: int | None = None,
        is_connected: bool | None = None,
        me: Me | None = None,
    ) -> None:
        if not self._is_ours():
            return

        def noted(old: Session) -> Session:
            new = old if is_connected is None else msgspec.structs.replace(old, is_connected=is_connected)
            if me is not None:
                new = msgspec.structs.replace(new, user_id=me.user_id, username=me.username)
            if state is not None and old.is_active and old.state in RUNNING:
                new = msgspec.structs.replace(new, state=state, state_reason=reason, state_until_ms=until_ms)
            return new

        with suppress(NotFound):
            await self._tools.registry.change(self.session_id, noted)

    async def _surely(self, state: SessionState, why: str) -> None:
        """An end is stored before it is told, however long the archive takes."""
        pause_s = BACKOFF_S
        while True:
            try:
                return await self._note(state, reason=why, is_connected=False)
            except Unavailable:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, BACKOFF_S_MAX)

    def _tell_calm(self) -> None:
        if self._is_down:
            self._is_down = False
            self._tell(SessionCalm(session_id=self.session_id))

    def _tell(self, event: Event) -> None:
        self._tools.events.tell(event)


async def _within(seconds: float, answer: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise ClientError(Trouble.OFFLINE, "Telegram does not answer.") from None
