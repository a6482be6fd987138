"""Reads histories of chats backwards into the archive, as far as was asked for. A crash repeats a page and loses nothing."""

import msgspec

from peik.archive_ports import ChatState
from peik.core.problem import BadInput
from peik.events import Events
from peik.session_events import ChatUnread, CrawlAdvanced
from peik.sessions.asking import Asking
from peik.sessions.chats import SHARED, ChatStates
from peik.sessions.client import Client, ClientError, Trouble
from peik.sessions.ports import SeenBook

PAGE = 100
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


class Crawl:
    """All crawls of one session, a page of each by turns."""

    def __init__(self, chats: ChatStates, *, book: SeenBook, asking: Asking, events: Events) -> None:
        self._chats = chats
        self._book = book
        self._asking = asking
        self._events = events
        self._last: int | None = None  # whose turn it was

    async def step(self, client: Client) -> bool:
        """One page. Whether there may be another. Raises ClientError."""
        known = await self._chats.all()
        wanted = sorted(one.chat_id for one in known.values() if is_wanted(one))
        if not wanted:
            return False
        self._last = next((one for one in wanted if self._last is None or one > self._last), wanted[0])
        await self._page(client, known[self._last])
        return True

    async def _page(self, client: Client, state: ChatState) -> None:
        assert state.crawled_to is not None, "it was asked for"
        try:
            page = await self._asking.history(
                client, state.chat_id, self._chats.access(state), below=state.crawled_to, above=0, limit=PAGE
            )
        except ClientError as error:
            if error.trouble is not Trouble.REFUSED:
                raise
            await stop_crawl(self._chats, state.chat_id)
            self._events.tell(ChatUnread(session_id=state.session_id, chat_id=state.chat_id, why=error.words))
            return
        if page:
            await self._book.keep_messages(page)
        reached = page[-1].message_id if len(page) == PAGE else 0

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
