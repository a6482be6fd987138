"""Reads histories of chats backwards into the archive, as far as was asked for. A crash repeats a page and loses nothing."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from peik.accounts.budget import PER_ACCOUNT_A_MINUTE, PatientRequests
from peik.accounts.client import AccountClient, ClientError, Dialog, Trouble
from peik.accounts.events import ChatBehind, ChatReadAgain, ChatUnread, CrawlAdvanced, HolesFilled, SessionFed
from peik.accounts.feeds import lines_of_deleted, lines_of_messages
from peik.accounts.registry import KeptChats, kept_of
from peik.archive.store import Archive, ChatState, FeedRecord, Message, MessageFilter
from peik.clock import Clock
from peik.core.events import Events
from peik.errors import BadInput, Unavailable
from peik.secrets.vault import Vault
from peik.wakeup import Wakeup

# How far each chat of one session is known, and what opens it: the session's chat states, changed one after the
# other.


SHARED = (
    0  # in the place of a chat's id: private chats and basic groups together, which have one order of ids per account
)
NEWEST_S = 60.0
CHOICE_S = 5.0  # after so long what was chosen on another node holds here
GAP = -1  # in the place of the newest id
_CHANNELS_BELOW = -1_000_000_000_000  # as the Bot API writes ids


def is_shared(chat_id: int) -> bool:
    return chat_id > _CHANNELS_BELOW


def has_gap(state: ChatState) -> bool:
    """Telegram said that it cannot replay what happened there, and the history was not read since."""
    return state.newest_id == GAP


class ChatStates:
    """Every change reads what is stored first: another node may have asked for a crawl meanwhile."""

    def __init__(self, session_id: str, book: Archive, vault: Vault, clock: Clock) -> None:
        self.session_id = session_id
        self._book = book
        self._vault = vault
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._listed: set[int] | None = None  # chats that were there when this was last looked at
        self._news: dict[int, tuple[int, int]] = {}  # by chat: the lowest and the highest id that came since
        self._told_at = float("-inf")
        self._kept = KeptChats()
        self._kept_until = float("-inf")

    async def kept(self) -> KeptChats:
        """Which chats are archived, as was chosen a few seconds ago at most."""
        if self._clock.mono() >= self._kept_until:
            session = await self._book.session(self.session_id)
            self._kept = KeptChats() if session is None else kept_of(session)
            self._kept_until = self._clock.mono() + CHOICE_S
        return self._kept

    def choose(self) -> None:
        """Something else was chosen just now."""
        self._kept_until = float("-inf")

    async def all(self) -> dict[int, ChatState]:
        return {one.chat_id: one for one in await self._book.chat_states(self.session_id)}

    async def change(self, chat_id: int, make: Callable[[ChatState], ChatState]) -> ChatState:
        changed = await self.change_all([chat_id], lambda _, old: make(old))
        return changed[chat_id]

    async def change_all(
        self, chat_ids: Iterable[int], make: Callable[[int, ChatState], ChatState]
    ) -> dict[int, ChatState]:
        """As they are afterwards. One that is new comes to `make` with nothing known."""
        async with self._one_at_a_time:
            known = await self.all()
            changed = {}
            for chat_id in chat_ids:
                old = known.get(chat_id, ChatState(session_id=self.session_id, chat_id=chat_id))
                new = make(chat_id, old)
                if new != old or chat_id not in known:
                    new = msgspec.structs.replace(new, updated_at_ms=self._clock.wall_ms())
                    await self._book.save_chat_state(new)
                changed[chat_id] = new
            return changed

    async def see(self, messages: Sequence[Message]) -> None:
        """How far each chat goes, for whoever lists them: of a chat that is new at once, of others now and then."""
        if self._listed is None:
            self._listed = set(await self.all())
        for one in messages:
            low, high = self._news.get(one.chat_id, (one.message_id, one.message_id))
            self._news[one.chat_id] = min(low, one.message_id), max(high, one.message_id)
        now = self._clock.mono()
        if self._news.keys() <= self._listed and now - self._told_at < NEWEST_S:
            return
        news, self._news, self._told_at = self._news, {}, now

        def seen(chat_id: int, old: ChatState) -> ChatState:
            low, high = news[chat_id]
            if has_gap(old):
                return old
            # Nothing is owed of a channel from before it was joined.
            is_joined = not (old.updated_at_ms or is_shared(chat_id))
            checked_to = low - 1 if is_joined else old.checked_to
            return msgspec.structs.replace(old, newest_id=max(old.newest_id, high), checked_to=checked_to)

        await self.change_all(news, seen)
        self._listed |= news.keys()

    async def joined(self, dialog: Dialog) -> ChatState:
        """Nothing is owed from before; a crawl may read it."""

        def made(old: ChatState) -> ChatState:
            is_new = not (old.updated_at_ms or is_shared(dialog.chat_id))
            top = dialog.top_message_id
            return self.named(msgspec.structs.replace(old, newest_id=top, checked_to=top) if is_new else old, dialog)

        return await self.change(dialog.chat_id, made)

    def named(self, state: ChatState, dialog: Dialog) -> ChatState:
        """With its name, and what opens it, as Telegram has them now."""
        if is_shared(state.chat_id) and dialog.top_message_id > state.newest_id:
            state = msgspec.structs.replace(state, newest_id=dialog.top_message_id)
        if state.title == dialog.title and self.access(state) == dialog.access:
            return state
        sealed = self._vault.seal(dialog.access.hex(), context=self._context(state.chat_id))
        return msgspec.structs.replace(state, title=dialog.title, access=sealed)

    def access(self, state: ChatState) -> bytes | None:
        """None: unknown, or sealed with a key that is gone. The client then finds the chat by its id."""
        if state.access is None:
            return None
        try:
            return bytes.fromhex(self._vault.open(state.access, context=self._context(state.chat_id)))
        except (Unavailable, ValueError):
            return None

    def _context(self, chat_id: int) -> str:
        return f"session:{self.session_id}:chat:{chat_id}"


# Chats whose history cannot be read just now. Telegram may answer for one of them with an error for days.


AGAIN_S = 60.0
AGAIN_S_MAX = 3600.0


class _Behind(msgspec.Struct, frozen=True, kw_only=True):
    failures: int
    due_at: float
    why: str


class ChatRetries:
    """Each is tried again by itself, later every time, and keeps no other chat waiting. In the place of a chat's id, None is
    the list of chats."""

    def __init__(self, session_id: str, *, clock: Clock, events: Events) -> None:
        self._session_id = session_id
        self._clock = clock
        self._events = events
        self._behind: dict[int | None, _Behind] = {}

    def is_due(self, chat_id: int | None) -> bool:
        behind = self._behind.get(chat_id)
        return behind is None or self._clock.mono() >= behind.due_at

    def next_at(self) -> float | None:
        """When the next of them is due."""
        now = self._clock.mono()
        return min((one.due_at for one in self._behind.values() if one.due_at > now), default=None)

    def behind(self) -> set[int | None]:
        return set(self._behind)

    def why(self) -> str | None:
        """For people, as a sentence; None: nothing is behind."""
        chats = sorted((chat_id or 0, one.why) for chat_id, one in self._behind.items() if chat_id != SHARED)
        if not chats:
            return None
        chat_id, why = chats[0]
        what = f"The history of chat {chat_id}" if chat_id else "The list of chats"
        others = f", and that of {len(chats) - 1} more," if len(chats) > 1 else ""
        return f"{what}{others} cannot be read just now and is tried again: {why}"

    def failed(self, chat_id: int | None, why: str) -> None:
        before = self._behind.get(chat_id)
        failures = 1 if before is None else before.failures + 1
        pause_s = min(AGAIN_S * 2 ** min(failures - 1, 20), AGAIN_S_MAX)
        self._behind[chat_id] = _Behind(failures=failures, due_at=self._clock.mono() + pause_s, why=why)
        if chat_id != SHARED:
            self._events.tell(ChatBehind(session_id=self._session_id, chat_id=chat_id, why=why, retry_s=pause_s))

    def succeeded(self, chat_id: int | None) -> None:
        """It was read, or nobody wants it any more."""
        if self._behind.pop(chat_id, None) is not None and chat_id != SHARED:
            self._events.tell(ChatReadAgain(session_id=self._session_id, chat_id=chat_id))


CRAWL_PAGE = 100
_FROM_THE_END = 2**31 - 1  # above every id that Telegram gives


async def ask_for_crawl(chats: ChatStates, chat_id: int, *, until_ms: int = 0) -> ChatState:
    """Durable when it returns. `until_ms` 0: down to the first message. One that is under way goes on from where it is, and
    as far down as was ever asked for."""
    if chat_id == SHARED:
        raise BadInput(code="malformed_chat_id", detail="chat_id should be the number of a chat.")

    def wanting(old: ChatState) -> ChatState:
        if old.crawled_to == 0:
            return old  # all of it is here
        begins_at = _FROM_THE_END if old.crawled_to is None else old.crawled_to
        until = until_ms if old.crawl_until_ms is None else min(until_ms, old.crawl_until_ms)
        return msgspec.structs.replace(old, crawled_to=begins_at, crawl_until_ms=until)

    return await chats.change(chat_id, wanting)


async def stop_crawl(chats: ChatStates, chat_id: int) -> ChatState:
    """What was read stays, and another crawl goes on from there."""
    return await chats.change(chat_id, lambda old: msgspec.structs.replace(old, crawl_until_ms=None))


def is_wanted(state: ChatState) -> bool:
    return state.crawl_until_ms is not None and state.crawled_to != 0


class CrawlEstimate(msgspec.Struct, frozen=True, kw_only=True):
    messages: int  # at most so many are left to be read
    requests: int
    seconds: float  # at the pace that is kept
    others: int  # crawls of the same account that go on meanwhile, a page of each by turns


def estimated(state: ChatState, count: int, *, others: int) -> CrawlEstimate:
    """How long a crawl to the first message takes, of a history of so many messages."""
    left = 0 if state.crawled_to == 0 else max(0, count - (state.crawled if state.crawled_to is not None else 0))
    requests = 0 if state.crawled_to == 0 else left // CRAWL_PAGE + 1  # the last page is one that is not full
    return CrawlEstimate(
        messages=left, requests=requests, seconds=requests * (1 + others) * 60.0 / PER_ACCOUNT_A_MINUTE, others=others
    )


class HistoryCrawl:
    """All crawls of one session, a page of each by turns."""

    def __init__(
        self,
        chats: ChatStates,
        *,
        book: Archive,
        asking: PatientRequests,
        retries: ChatRetries,
        events: Events,
        on_page: Callable[[AccountClient, Sequence[Message]], Awaitable[None]] | None = None,
    ) -> None:
        """`on_page` has to be done with a page before the crawl goes on."""
        self._on_page = on_page
        self._chats = chats
        self._book = book
        self._asking = asking
        self._retries = retries
        self._events = events
        self._last: int | None = None  # whose turn it was

    async def step(self, client: AccountClient) -> bool:
        """One page. Whether there may be another. Raises ClientError."""
        known, kept = await self._chats.all(), await self._chats.kept()
        wanted = sorted(
            one.chat_id
            for one in known.values()
            if is_wanted(one) and kept.has(one.chat_id) and self._retries.is_due(one.chat_id)
        )
        if not wanted:
            return False
        self._last = next((one for one in wanted if self._last is None or one > self._last), wanted[0])
        await self._page(client, known[self._last])
        return True

    async def _page(self, client: AccountClient, state: ChatState) -> None:
        assert state.crawled_to is not None, "it was asked for"
        try:
            page = await self._asking.history(
                client, state.chat_id, self._chats.access(state), below=state.crawled_to, above=0, limit=CRAWL_PAGE
            )
            if page:
                await self._book.keep_messages(page)
                if self._on_page is not None:
                    await self._on_page(client, page)
        except ClientError as error:
            if not _is_of_one_chat(client, error):
                raise
            if error.trouble is not Trouble.REFUSED:
                self._retries.failed(state.chat_id, error.words)
                return
            await stop_crawl(self._chats, state.chat_id)
            self._retries.succeeded(state.chat_id)
            self._events.tell(ChatUnread(session_id=state.session_id, chat_id=state.chat_id, why=error.words))
            return
        self._retries.succeeded(state.chat_id)
        reached = page[-1].message_id if len(page) == CRAWL_PAGE else 0

        def advanced(old: ChatState) -> ChatState:
            until_ms = old.crawl_until_ms
            is_done = reached == 0 or (until_ms is not None and page[-1].date_ms < until_ms)
            return msgspec.structs.replace(
                old,
                crawled_to=reached,
                crawl_until_ms=None if is_done else until_ms,
                crawled=old.crawled + len(page),
            )

        now = await self._chats.change(state.chat_id, advanced)
        self._events.tell(
            CrawlAdvanced(
                session_id=state.session_id,
                chat_id=state.chat_id,
                crawled_to=reached,
                crawled=now.crawled,
                is_done=now.crawl_until_ms is None,
            )
        )


def _is_of_one_chat(client: AccountClient, error: ClientError) -> bool:
    """Whether others may be asked for all the same: while the line is there, an error means what was asked for."""
    return error.trouble is Trouble.REFUSED or (client.is_connected and error.trouble is not Trouble.REVOKED)


# Finds what is missing in the archive of one session, and fills it from the histories of its chats.
#
# Channels and supergroups number their messages one by one, so a number that is missing in the archive is a message
# that was never seen, or one that was deleted before. Private chats and basic groups share one order of numbers per
# account: holes in one of these chats are normal, and only what is missing in all of them together counts. Which chat
# it belonged to cannot be known, so each that was written in since is read. What the history does not have either
# does not exist, and is not asked for again.


PAGE = 100  # Telegram gives no more at once
IDS_AT_ONCE = 5000
EDITABLE_MS = 48 * 3_600_000  # so long can a message be edited: what a gap hid may concern messages this much older
UNSEEN_PAGES_MAX = 100  # of a channel of which only a gap is known; what is older is for a crawl
_SEARCH_PAGES = 5


class Reconciler:
    def __init__(
        self,
        chats: ChatStates,
        *,
        book: Archive,
        asking: PatientRequests,
        retries: ChatRetries,
        bell: Wakeup,
        clock: Clock,
        events: Events,
        owed_since_ms: int,
        agent_id: str,
    ) -> None:
        """`bell` is rung when a gap was told. Of a channel that was never seen, nothing before `owed_since_ms` is read."""
        self._chats = chats
        self._session_id = chats.session_id
        self._agent_id = agent_id
        self._book = book
        self._asking = asking
        self._retries = retries
        self._bell = bell
        self._clock = clock
        self._events = events
        self._owed_since_ms = owed_since_ms
        self._gaps: Counter[int] = Counter()  # how many were told, by chat
        self._tried: set[int] = set()  # chats that were read in this look
        self._unread: set[int] = set()  # chats that Telegram does not show any more

    # ---- from the one who listens ----

    async def begin(self, client: AccountClient) -> None:
        """Before the session listens for the first time: whatever is newer than what is there now is owed from here on."""
        dialogs = {one.chat_id: one for one in await self._asking.dialogs(client)}
        if SHARED in await self._chats.all():
            return  # a life before this one ended between this and its first state; what came since is missing, and found

        def first(chat_id: int, old: ChatState) -> ChatState:
            dialog = dialogs[chat_id]
            if old.checked_to or is_shared(chat_id):
                return self._chats.named(old, dialog)
            top = dialog.top_message_id
            return msgspec.structs.replace(self._chats.named(old, dialog), newest_id=top, checked_to=top)

        await self._chats.change_all(dialogs, first)
        await self._advance(SHARED, _top(dialogs.values()))  # the last: it says that the others are there

    async def note_gap(self, chat_id: int | None, *, since_ms: int) -> None:
        """Durable when it returns. Edits and deletions of older messages may be lost in a gap, too, so it is read from a
        little before."""
        place = SHARED if chat_id is None else chat_id
        floor = await self._last_before(place, since_ms - EDITABLE_MS)

        def marked(old: ChatState) -> ChatState:
            checked_to = old.checked_to if floor is None else min(old.checked_to, floor)
            return msgspec.structs.replace(old, newest_id=GAP, checked_to=checked_to)

        await self._chats.change(place, marked)
        self._gaps[place] += 1
        if place == SHARED:
            self._retries.succeeded(SHARED)  # one chat that is behind keeps the others of this gap waiting no longer
        self._bell.ring()

    async def has_gaps(self) -> bool:
        """That can be looked into now."""
        if not self._retries.is_due(None):
            return False
        known = await self._chats.all()
        return any(
            has_gap(one) and one.chat_id not in self._unread and self._retries.is_due(one.chat_id)
            for one in known.values()
        )

    # ---- one look ----

    async def look(self, client: AccountClient) -> None:
        """At all chats. One in which nothing is missing costs its share of the list of chats. Raises ClientError if the line is
        gone; what could not be read just now is tried again by a later look."""
        if not self._retries.is_due(None):
            return
        told = Counter(self._gaps)
        self._tried = set()
        due = {one for one in self._retries.behind() if self._retries.is_due(one)}
        try:
            dialogs = {one.chat_id: one for one in await self._asking.dialogs(client)}
        except ClientError as error:
            if not _is_of_one_chat(client, error):
                raise
            self._retries.failed(None, error.words)
            return
        self._retries.succeeded(None)
        known = await self._chats.all()
        named = await self._chats.change_all(dialogs, lambda chat_id, old: self._chats.named(old, dialogs[chat_id]))
        states = {**known, **named}
        await self._look_at_shared(client, dialogs, states, told)
        for chat_id, state in states.items():
            if is_shared(chat_id) or chat_id in self._unread or not self._retries.is_due(chat_id):
                continue
            if chat_id in dialogs or has_gap(state):
                top = dialogs[chat_id].top_message_id if chat_id in dialogs else 0
                await self._look_at_channel(client, state, top, is_new=chat_id not in known, told=told[chat_id])
        for behind in due - self._tried - {None, SHARED}:
            known_of = states.get(behind or SHARED)
            if known_of is None or not is_wanted(known_of):
                self._retries.succeeded(behind)  # nothing is missing there any more

    async def _look_at_channel(
        self, client: AccountClient, state: ChatState, top: int, *, is_new: bool, told: int
    ) -> None:
        chat_id, mark = state.chat_id, state.checked_to
        if not (await self._chats.kept()).has(chat_id):
            await self._advance(chat_id, max(top, mark), began=state, told=told)  # nothing is owed of it
            return
        if not has_gap(state):
            if is_new:
                first = await self._book.message_ids(self._session_id, chat_id, above=0, limit=1)
                mark = first[0] - 1 if first else top  # nothing is owed from before it was joined
            mark = _reach(mark, await self._ids(chat_id, above=mark), top)
        if has_gap(state) or mark < top:
            newest = await self._read(client, state, above=mark, since_ms=0 if mark else self._owed_since_ms)
            if newest is None:
                return
            top = max(top, newest)
        await self._advance(chat_id, top, began=state, told=told)

    async def _look_at_shared(
        self, client: AccountClient, dialogs: Mapping[int, Dialog], states: Mapping[int, ChatState], told: Counter[int]
    ) -> None:
        began = states.get(SHARED)
        if began is None or not self._retries.is_due(SHARED):
            return  # it has not begun, or one of them is behind
        top, mark = _top(dialogs.values()), began.checked_to
        kept = await self._chats.kept()
        here = {
            chat_id: await self._ids(chat_id, above=mark)
            for chat_id in states
            if is_shared(chat_id) and chat_id != SHARED and kept.has(chat_id)
        }
        if has_gap(began):
            wanted = [chat_id for chat_id in here if here[chat_id] or _top_of(dialogs, chat_id) > mark]
        else:
            mark = _reach(mark, {one for ids in here.values() for one in ids}, top)
            wanted = [chat_id for chat_id in here if _top_of(dialogs, chat_id) > mark]
        # One that is not due is not read in this look, even if its time comes while others are.
        is_all = True
        for chat_id in wanted:
            is_read = self._retries.is_due(chat_id)
            if is_read and await self._read(client, states[chat_id], above=mark) is None:
                is_read = chat_id in self._unread
            is_all = is_all and is_read
        if not is_all:
            self._retries.failed(SHARED, "One of them is behind.")
        else:
            self._retries.succeeded(SHARED)
            await self._advance(SHARED, max(top, began.checked_to), began=began, told=told[SHARED])

    async def _read(self, client: AccountClient, state: ChatState, *, above: int, since_ms: int = 0) -> int | None:
        """The history above an id, into the archive: the newest id that it has. None: it could not be read."""
        # Only what was here before it is read can be missed there: what is archived meanwhile may be newer.
        self._tried.add(state.chat_id)
        here = await self._ids(state.chat_id, above=above)
        seen: set[int] = set()
        found, floor, newest = 0, above, 0
        below: int | None = None
        while True:
            try:
                page = await self._asking.history(
                    client, state.chat_id, self._chats.access(state), below=below, above=above, limit=PAGE
                )
            except ClientError as error:
                self._unreadable(client, state.chat_id, error)
                return None
            found += await self._kept(page)
            seen.update(one.message_id for one in page)
            newest = newest or (page[0].message_id if page else 0)
            if len(page) < PAGE:
                break
            below = page[-1].message_id
            if since_ms and (page[-1].date_ms < since_ms or len(seen) >= UNSEEN_PAGES_MAX * PAGE):
                floor = below - 1
                break
        self._retries.succeeded(state.chat_id)
        gone = {one for one in here if one > floor} - seen
        deleted = 0
        if gone:
            deleted = await self._mark_deleted(state.chat_id, sorted(gone))
        if found or deleted:
            self._events.tell(
                HolesFilled(session_id=self._session_id, chat_id=state.chat_id, found=found, deleted=deleted)
            )
        return newest

    def _unreadable(self, client: AccountClient, chat_id: int, error: ClientError) -> None:
        """One chat keeps nobody waiting: if Telegram does not show it, or does not answer for it, the others are read."""
        if not _is_of_one_chat(client, error):
            raise error
        if error.trouble is not Trouble.REFUSED:
            self._retries.failed(chat_id, error.words)
            return
        self._unread.add(chat_id)
        self._retries.succeeded(chat_id)
        self._events.tell(ChatUnread(session_id=self._session_id, chat_id=chat_id, why=error.words))

    async def _mark_deleted(self, chat_id: int, gone: list[int]) -> int:
        at_ms = self._clock.wall_ms()
        # Of private chats and basic groups Telegram itself does not say which: so both words of it have one key.
        told_of = None if is_shared(chat_id) else chat_id
        await self._feed(lines_of_deleted(self._session_id, self._agent_id, told_of, gone, at_ms=at_ms))
        return await self._book.mark_deleted(self._session_id, chat_id, gone, at_ms=at_ms)

    async def _feed(self, lines: Sequence[FeedRecord]) -> None:
        count = await self._book.feed(lines)
        if count:
            self._events.tell(SessionFed(session_id=self._session_id, count=count))

    async def _kept(self, page: list[Message]) -> int:
        if not page:
            return 0
        # Told before it is kept: a hole whose message is kept is none any more, and nobody would look into it again.
        await self._feed(lines_of_messages(page[::-1], at_ms=self._clock.wall_ms()))
        kept = await self._book.keep_messages(page)
        return kept.new + kept.edited

    async def _advance(self, place: int, top: int, *, began: ChatState | None = None, told: int = 0) -> None:
        def advanced(old: ChatState) -> ChatState:
            if began is not None and (self._gaps[place] != told or old.checked_to != began.checked_to):
                return old  # a gap was told meanwhile
            newest_id = top if has_gap(old) else max(top, old.newest_id)
            return msgspec.structs.replace(old, newest_id=newest_id, checked_to=top)

        await self._chats.change(place, advanced)

    # ---- what is here ----

    async def _ids(self, chat_id: int, *, above: int) -> set[int]:
        found: list[int] = []
        while True:
            start = found[-1] if found else above
            page = await self._book.message_ids(self._session_id, chat_id, above=start, limit=IDS_AT_ONCE)
            found.extend(page)
            if len(page) < IDS_AT_ONCE:
                return set(found)

    async def _last_before(self, place: int, at_ms: int) -> int | None:
        """Below which id messages are older than this. None: nothing is here."""
        wanted = MessageFilter(session_id=self._session_id, chat_id=None if place == SHARED else place, until_ms=at_ms)
        cursor: str | None = None
        for _ in range(_SEARCH_PAGES):
            page, cursor = await self._book.messages(wanted, cursor=cursor, limit=PAGE)
            fitting = [one.message_id for one in page if place != SHARED or is_shared(one.chat_id)]
            if fitting:
                return fitting[0]
            if cursor is None:
                break
        places = [place] if place != SHARED else [one for one in await self._chats.all() if is_shared(one)]
        first: list[int] = []
        for chat_id in places:
            first += await self._book.message_ids(self._session_id, chat_id, above=0, limit=1)
        return min(first) - 1 if first else None


def _reach(mark: int, ids: set[int], top: int) -> int:
    """Up to which id nothing is missing."""
    while mark < top and mark + 1 in ids:
        mark += 1
    return mark


def _top(dialogs: Iterable[Dialog]) -> int:
    return max((one.top_message_id for one in dialogs if is_shared(one.chat_id)), default=0)


def _top_of(dialogs: Mapping[int, Dialog], chat_id: int) -> int:
    return dialogs[chat_id].top_message_id if chat_id in dialogs else 0
