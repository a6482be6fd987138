"""`peik demo --for crawler`: two accounts on a simulated Telegram, and the archive of what they see. Peik runs in this process,
since the Telegram of its accounts does; it is asked over REST all the same."""

import asyncio
import contextlib
import itertools
import random
import secrets
import socket
import tempfile
import time
import webbrowser
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import uvicorn

from peik.accounts.service import AccountService
from peik.app import rest
from peik.app.dashboard import Dashboard
from peik.app.lifetime import running
from peik.clock import SystemClock
from peik.demo.play import FULL, QUICK, Interruptions, Showing
from peik.demo.screen import Screen, narration
from peik.demo.stage import ask
from peik.gateway.app import Gateway
from peik.settings.config import load
from peik.testing import SimServer
from peik.testing.accounts import Accounts, Person
from peik.testing.accounts.boxes import Chat, Post
from peik.web.server import GuardedProtocol, GuardedServer

_LOOK_S = 0.1
_WITHIN_S = 60.0
_SETTLE_S = 8.0
_OLD_POSTS = 30
_GAP_S = 5.0
_CHAPTERS = 6


class _Row(msgspec.Struct):
    session_id: str
    chat_id: str
    message_id: str
    text: str
    deleted_at: str | None


class _Rows(msgspec.Struct):
    messages: list[_Row]
    next_cursor: str | None = None


class _Whole(msgspec.Struct):
    versions: list[msgspec.Raw]


class CrawlCounts(msgspec.Struct, frozen=True, kw_only=True):
    written: int
    archived: int
    waiting: int
    lost: int
    doubled: int


class CrawlScene:
    """The accounts, what is said where they are, and what the archive has of it."""

    def __init__(self, url: str, key: str, *, service: AccountService, telegram: Accounts, showing: Showing) -> None:
        self.url = url
        self._key = key
        self._service = service
        self._telegram = telegram
        self._showing = showing
        self._chance = random.Random(showing.seed)
        self._beat_s = (QUICK if showing.is_quick else FULL).beat_s
        self._numbers = itertools.count(1)
        self._chapter = itertools.count(1)
        self.screen = Screen()
        self.written = 0  # rows that there should be: one for each account that sees a message
        self.rows: list[_Row] = []
        names = narration.people
        self.people = [telegram.register(f"+99890000000{place}", first_name=names[place]) for place in range(3)]
        self.accounts = self.people[:2]
        self.chats = [telegram.private(*self.accounts), telegram.group(narration.group, *self.people)]
        self.channel = telegram.channel(narration.crawl_channel, self.people[2], is_broadcast=True)

    def begin(self, title: str, lead: str, **values: object) -> None:
        self.screen.chapter(f"{next(self._chapter)}. {title}", lead, **values)

    async def beat(self) -> None:
        await asyncio.sleep(self._beat_s)

    def say(self, chat: Chat, sender: Person, text: str) -> Post:
        self.written += sum(account in chat.members for account in self.accounts)
        return self._telegram.say(chat, sender, text)

    def talk(self, times: int) -> int:
        """How many messages were written."""
        for _ in range(times):
            chat = self._chance.choice(self.chats)
            self.say(
                chat,
                self._chance.choice(chat.members),
                f"{self._chance.choice(narration.crawl_talk)} · {next(self._numbers)}",
            )
        return times

    async def look(self) -> None:
        """All that the archive has, page by page."""
        rows: list[_Row] = []
        more = ""
        while True:
            page = msgspec.json.decode(await self._ask("GET", f"/v1/messages?limit=1000{more}"), type=_Rows)
            rows += page.messages
            if page.next_cursor is None:
                self.rows = rows
                return
            more = f"&cursor={quote(page.next_cursor)}"

    async def kept(self) -> float:
        """Wait until the archive has all that was written; how long that took."""
        began = time.monotonic()
        async with asyncio.timeout(_WITHIN_S):
            while True:
                await self.look()
                if len(self.rows) >= self.written:
                    return time.monotonic() - began
                await asyncio.sleep(_LOOK_S)

    async def cut_off(self, *, for_s: float) -> int:
        """How many messages were written meanwhile."""
        self._telegram.is_down = True
        for account in self.accounts:
            self._telegram.cut(account)
        count = self.talk(6)
        await asyncio.sleep(for_s)
        self._telegram.is_down = False
        return count

    def counts(self, *, is_over: bool) -> CrawlCounts:
        """`is_over`: nothing is waited for any more, so what is missing is lost."""
        different = len({(row.session_id, row.chat_id, row.message_id) for row in self.rows})
        missing = max(0, self.written - different)
        return CrawlCounts(
            written=self.written,
            archived=len(self.rows),
            waiting=0 if is_over else missing,
            lost=missing if is_over else 0,
            doubled=len(self.rows) - different,
        )

    # ---- the story ----

    async def play(self) -> None:
        screen, showing = self.screen, self._showing
        screen.say(f"[bold]{narration.title}[/]")
        screen.say(narration.crawl_opening)
        link = f"{self.url}/admin#key={self._key}"
        is_shown = showing.has_browser and await asyncio.to_thread(webbrowser.open, link)
        screen.note(narration.look_opened if is_shown else narration.look, url=self.url, key=self._key)
        for chapter in (self._in, self._seen, self._gap, self._past, self._found):
            await chapter()
            await self.beat()
        if not showing.is_once:
            await self._encore()

    async def _in(self) -> None:
        self.begin(narration.crawl_in, narration.crawl_in_lead)
        for number, person in enumerate(self.accounts, start=1):
            made = await self._service.create_session("demo", phone=person.phone, session_id=f"account-{number}")
            await self._service.signing_in.begin(made.session_id)
            signed_in = await self._service.signing_in.give_code(made.session_id, self._telegram.code_of(person.phone))
            self.screen.note(
                narration.crawl_in_end, name=person.first_name, session=signed_in.session_id, state=signed_in.state
            )
        async with asyncio.timeout(_WITHIN_S):
            while not all(self._service.line_of(person.user_id) for person in self.accounts):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)

    async def _seen(self) -> None:
        self.begin(narration.crawl_seen, narration.crawl_seen_lead)
        private = self.chats[0]
        said = [
            self.say(private, self.accounts[number % 2], words) for number, words in enumerate(narration.crawl_talk)
        ]
        count = len(said) + self.talk(10)
        await self.kept()
        self.screen.note(narration.crawl_seen_end, count=count, kept=len(self.rows))
        await self.beat()
        self._telegram.edit(private, said[1], narration.crawl_edit)
        self._telegram.delete(private, said[3])
        async with asyncio.timeout(_WITHIN_S):
            while True:
                await self.look()
                edited = next((row for row in self.rows if row.text == narration.crawl_edit), None)
                if edited is not None and any(row.deleted_at for row in self.rows):
                    break
                await asyncio.sleep(_LOOK_S)
        path = f"/v1/messages/{edited.session_id}/{edited.chat_id}/{edited.message_id}"
        versions = msgspec.json.decode(await self._ask("GET", path), type=_Whole).versions
        self.screen.note(narration.crawl_seen_changed, versions=len(versions))

    async def _gap(self) -> None:
        self.begin(narration.crawl_gap, narration.crawl_gap_lead)
        count = await self.cut_off(for_s=self._beat_s)
        seconds = await self.kept()
        self.screen.note(narration.crawl_gap_end, count=count, seconds=f"{seconds:.1f}")

    async def _past(self) -> None:
        reader = self.accounts[0]
        self.begin(narration.crawl_past, narration.crawl_past_lead, name=reader.first_name)
        for number in range(1, _OLD_POSTS + 1):
            self._telegram.say(self.channel, self.people[2], narration.crawl_news.format(number=number))
        link = self._telegram.invite(self.channel)
        await self._ask("POST", "/v1/sessions/account-1/join", {"link": link})
        before = len(self.rows)
        await self._ask("POST", f"/v1/sessions/account-1/chats/{self.channel.chat_id}/crawl", {})
        self.written += _OLD_POSTS
        await self.kept()
        self.screen.note(narration.crawl_past_end, count=len(self.rows) - before)

    async def _found(self) -> None:
        self.begin(narration.crawl_found, narration.crawl_found_lead)
        word = narration.crawl_word
        query = f"/v1/messages?limit=1000&text={quote(word)}"
        found = msgspec.json.decode(await self._ask("GET", query), type=_Rows).messages
        self.screen.note(narration.crawl_found_end, word=word, count=len(found), url=self.url)

    async def _encore(self) -> None:
        """Until cancelled."""
        self.screen.chapter(narration.encore, narration.crawl_encore_lead)
        while True:
            for _ in range(20):
                await asyncio.sleep(self._chance.uniform(0.6, 2.5))
                self.talk(1)
            self.screen.note(narration.crawl_encore_gap, seconds=int(_GAP_S))
            await self.cut_off(for_s=_GAP_S)

    async def settle(self) -> None:
        """Wait for what is on its way, for a while: accounts that were cut off a moment ago take their time to connect."""
        self._telegram.is_down = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                await self.kept()

    async def _ask(self, verb: str, path: str, body: object = None) -> bytes:
        return await ask(self.url, verb, path, body, key=self._key)


def crawl(showing: Showing) -> int:
    """The exit code: 0 unless a message is missing or there twice. Raises StartError."""
    return asyncio.run(_perform(showing))


async def _perform(showing: Showing) -> int:
    interruptions = Interruptions()
    with tempfile.TemporaryDirectory(prefix="peik-demo-") as folder:
        async with _opened(Path(folder), showing) as scene:
            screen = scene.screen
            is_whole = await interruptions.run(scene.play())
            if not is_whole:
                screen.say(f"\n{narration.stopping}")
            await interruptions.run(scene.settle())
            counts = scene.counts(is_over=is_whole)
            screen.chapter(f"{_CHAPTERS}. {narration.counts}", narration.crawl_counts_lead)
            rows = ((narration.crawl_written, counts.written), (narration.crawl_archived, counts.archived))
            faults = ((narration.crawl_lost, counts.lost), (narration.crawl_doubled, counts.doubled))
            waiting = [(narration.counts_waiting, counts.waiting, True)] if counts.waiting else []
            screen.table([*((*row, True) for row in rows), *waiting, *((*row, row[1] == 0) for row in faults)])
            screen.say("")
            screen.last(narration.crawl_last_line.format(**msgspec.structs.asdict(counts)))
    return 1 if counts.lost or counts.doubled else 0


@contextlib.asynccontextmanager
async def _opened(folder: Path, showing: Showing) -> AsyncIterator[CrawlScene]:
    clock = SystemClock()
    telegram = Accounts(clock, seed=showing.seed)
    key = f"demo-{secrets.token_hex(8)}"
    async with SimServer(seed=showing.seed) as bots:
        flags = {"store": f"sqlite:///{folder}/peik.db", "api_root": bots.url, "inbound": "off", "grace": "1s"}
        config = load(flags, environment={}, folder=folder)
        async with running(
            config, clock=clock, is_alone=True, make_clients=lambda config, clock: telegram.clients
        ) as runtime:
            dashboard = Dashboard(runtime, key, rest.build(runtime, key))
            service = runtime.accounts
            assert service is not None, "clients were given"
            async with _served(Gateway(runtime, dashboard)) as url:
                try:
                    yield CrawlScene(url, key, service=service, telegram=telegram, showing=showing)
                finally:
                    service.end_streams()
                    dashboard.end()


class _Server(GuardedServer):
    """uvicorn without its own signal handling: the demo has one."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def _served(app: Gateway) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = _Server(
        uvicorn.Config(
            app,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
