"""Which letter an archived message was: when a letter of an account is delivered, the message that it became gets its id.

Telegram's answer names the message; it comes into the archive about then, by the updates of the session. Nothing rests on this
mark, so it is given up after a few minutes. A crash loses none: who takes up an account looks through its last hour.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from peik.accounts.client import Me
from peik.accounts.registry import Registry
from peik.archive.store import Archive, Message, SessionFilter
from peik.clock import Clock
from peik.core.events import Event, Events, Settled, StoreFailed
from peik.core.letter import Chat, State
from peik.core.methods import MethodClass, classify
from peik.core.outcome import NetworkFault, Reply
from peik.errors import NotFound, StoreUnavailable, described
from peik.outbox.service import OutboxService
from peik.outbox.store import LetterFilter, LetterView
from peik.telegram.port import Request
from peik.wakeup import Wakeup

if TYPE_CHECKING:
    from peik.accounts.runner import SessionRunner  # it needs packages beyond the core install

FIRST_S = 0.5  # the update is often there before the answer
PAUSE_S_MAX = 60.0
GIVE_UP_S = 300.0
WAITING_MAX = 10_000
AT_ONCE = 100
TAKE_UP_S = 30.0  # between two looks for accounts that are new here
LAST_MS = 3_600_000
FOUND_PAGE = 500
KNOWN_S = 60.0  # so long it is believed which sessions an account has
RETRY_S = 5.0

Place = tuple[int, int]  # a chat and a message in it


class _Waiting:
    """A letter whose message has not been found yet."""

    __slots__ = ("account", "due_at", "ends_at", "pause_s", "places")

    def __init__(self, account: int, *, now: float, places: list[Place] | None = None) -> None:
        self.account = account
        self.places = places  # None: to be read from the letter
        self.pause_s = FIRST_S
        self.due_at = now + FIRST_S
        self.ends_at = now + GIVE_UP_S


class LetterLinks:
    """On each node, for the accounts that it acts for."""

    def __init__(
        self,
        *,
        archive: Archive,
        registry: Registry,
        letters: OutboxService,
        is_ours: Callable[[int], bool],
        clock: Clock,
        events: Events,
    ) -> None:
        self._archive = archive
        self._registry = registry
        self._letters = letters
        self._is_ours = is_ours
        self._clock = clock
        self._events = events
        self._bell = Wakeup()
        self._waiting: dict[int, _Waiting] = {}
        self._sessions: dict[int, list[str]] = {}
        self._known_at = float("-inf")
        self._ours: set[int] = set()  # accounts whose last hour was looked through
        self._take_up_at = 0.0
        events.listen(self._listen, Settled)

    def _listen(self, told: Sequence[Event]) -> None:
        for event in told:
            if isinstance(event, Settled) and event.state is State.COMPLETED and self._is_account(event.bot_id):
                self._note(event.letter_id, event.bot_id, event.method)

    def _is_account(self, bot_id: int) -> bool:
        bot = self._letters.known(bot_id)
        return bot is not None and bot.token.is_account

    def _note(self, letter_id: int, account: int, method: str, places: list[Place] | None = None) -> None:
        if classify(method)[1] is not MethodClass.SEND:
            return  # an edit makes no message
        if len(self._waiting) >= WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        self._waiting.setdefault(letter_id, _Waiting(account, now=self._clock.mono(), places=places))
        self._bell.ring()

    async def run(self) -> None:
        while True:
            try:
                if self._clock.mono() >= self._take_up_at:
                    await self._take_up()
                    self._take_up_at = self._clock.mono() + TAKE_UP_S
                await self._look()
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="the letters of archived messages", why=error.detail))
                await asyncio.sleep(RETRY_S)
                for one in self._waiting.values():
                    one.ends_at += RETRY_S  # what cannot be looked for is not missing
            await self._bell.wait(self._next_at())

    def _next_at(self) -> float:
        """At most so many are due at once; those that are left over are looked for at once, too."""
        return min([self._take_up_at, *(one.due_at for one in self._waiting.values())])

    async def _take_up(self) -> None:
        """Who had an account before may have died before it could mark its messages."""
        ours = {bot.bot_id for bot in self._letters.bots() if bot.token.is_account and self._is_ours(bot.bot_id)}
        self._ours &= ours
        for account in ours - self._ours:
            await self._look_back(account)
            self._ours.add(account)

    async def _look_back(self, account: int) -> None:
        since_ms = self._clock.wall_ms() - LAST_MS
        wanted = LetterFilter(state=State.COMPLETED, bot_id=account, since_ms=since_ms)
        before: int | None = None
        while True:
            page = await self._letters.find(wanted, before=before, limit=FOUND_PAGE)
            for view in page:
                self._note(view.id, account, view.method, places_of(view))
            if len(page) < FOUND_PAGE:
                return
            before = page[-1].id

    async def _look(self) -> None:
        now = self._clock.mono()
        due = [letter_id for letter_id, one in self._waiting.items() if one.due_at <= now][:AT_ONCE]
        marked: list[Message] = []
        done: list[int] = []
        for letter_id in due:
            one = self._waiting.get(letter_id)
            if one is None:
                continue  # there was no room for it any more
            found = await self._found(letter_id, one)
            if found is None:
                self._put_off(letter_id, one)
            else:
                marked += [msgspec.structs.replace(message, letter_id=letter_id) for message in found]
                done.append(letter_id)
        if marked:
            await self._archive.keep_messages(marked)
        for letter_id in done:
            self._waiting.pop(letter_id, None)

    def _put_off(self, letter_id: int, one: _Waiting) -> None:
        now = self._clock.mono()
        if now >= one.ends_at:
            self._waiting.pop(letter_id, None)
            return
        one.due_at = now + one.pause_s
        one.pause_s = min(one.pause_s * 2, PAUSE_S_MAX)

    async def _found(self, letter_id: int, one: _Waiting) -> list[Message] | None:
        """The messages to be marked; none if there is nothing left to do. None: some are not there yet."""
        if one.places is None:
            try:
                one.places = places_of(await self._letters.letter(letter_id))
            except NotFound:
                one.places = []  # cleared away already
        if not one.places:
            return []
        found: list[Message] = []
        for session_id in await self._sessions_of(one.account):
            versions = [await self._archive.versions(session_id, *place) for place in one.places]
            if not all(versions):
                continue
            found += [each[-1] for each in versions]
        return [message for message in found if message.letter_id is None] if found else None

    async def _sessions_of(self, account: int) -> list[str]:
        """Mostly one. Two that are signed in as one account have the same messages."""
        if self._clock.mono() - self._known_at >= KNOWN_S:
            self._sessions = {}
            for session in await self._registry.all(SessionFilter()):
                if session.user_id is not None:
                    self._sessions.setdefault(session.user_id, []).append(session.session_id)
            self._known_at = self._clock.mono()
        return self._sessions.get(account, [])


class _Chat(msgspec.Struct):
    id: int


class _Made(msgspec.Struct):
    message_id: int
    chat: _Chat | None = None


_MADE = msgspec.json.Decoder(_Made | list[_Made])


def places_of(view: LetterView) -> list[Place]:
    """The messages that a letter became, as Telegram's answer names them."""
    try:
        made = _MADE.decode(view.result or "null")
    except msgspec.DecodeError:
        return []
    chat: Chat = view.chat
    found = [
        (chat if one.chat is None else one.chat.id, one.message_id)
        for one in (made if isinstance(made, list) else [made])
        if one.message_id > 0
    ]
    return [(chat_id, message_id) for chat_id, message_id in found if isinstance(chat_id, int)]


# An account's letters through the ordinary outbox: the carrier that hands each try to the account's connection.
#
# MTProto has what the Bot API lacks: a number that makes a send the same send. It is made from the letter, so that a
# try that may have arrived is repeated without a second message.


_ROOM = 1000  # messages of one call (an album, forwards) take the numbers that follow
_NOT_CONNECTED = Reply(fault=NetworkFault.NOT_TRIED, left=False, detail="the account is not connected")
_CLOSING = Reply(fault=NetworkFault.NOT_TRIED, left=False, detail="closing")
_BROKEN_OFF = Reply(fault=NetworkFault.RESET, detail="closing")


def random_id_of(account: int, *, letter_id: int, number: int) -> int:
    """The same for every try of a letter. `number` is the letter's place in the account's order: a dead letter that is sent
    again gets another one, and so is another message."""
    digest = hashlib.blake2b(f"{account}|{letter_id}|{number}".encode(), digest_size=8, person=b"peik letter").digest()
    return int.from_bytes(digest, "big") % (2**63 - _ROOM) + 1


class AccountCarrier:
    """The port `Carrier`, for all accounts of a node: the token says whose letter it is."""

    def __init__(self, line_of: "Callable[[int], SessionRunner | None]") -> None:
        """`line_of` finds the line of an account by its user id."""
        self._line_of = line_of
        self._tries: set[asyncio.Task[Reply]] = set()
        self._is_closing = False

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        if self._is_closing:
            asyncio.get_running_loop().call_soon(done, _CLOSING)
            return
        task = asyncio.create_task(self._try(request))
        self._tries.add(task)
        task.add_done_callback(lambda ended: self._settle(ended, done))

    def _settle(self, ended: asyncio.Task[Reply], done: Callable[[Reply], None]) -> None:
        self._tries.discard(ended)
        done(_BROKEN_OFF if ended.cancelled() else ended.result())

    async def carry(self, request: Request) -> Reply:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def settle(reply: Reply) -> None:
            if not answer.done():  # the caller may have stopped waiting
                answer.set_result(reply)

        self.start(request, settle)
        return await answer

    async def close(self) -> None:
        self._is_closing = True
        tries = list(self._tries)
        for task in tries:
            task.cancel()
        if tries:
            await asyncio.wait(tries)
            await asyncio.sleep(0)  # every `done` was handed to the loop before this

    async def _try(self, request: Request) -> Reply:
        try:
            return await self._carried(request)
        except TimeoutError:
            return Reply(fault=NetworkFault.TIMEOUT, detail=f"no answer within {request.timeout_s:.0f} s")
        except Exception as error:  # noqa: BLE001  a client that breaks its word may have sent it
            return Reply(fault=NetworkFault.RESET, detail=described(error))

    async def _carried(self, request: Request) -> Reply:
        account = request.token.bot_id
        line = self._line_of(account)
        client = None if line is None else line.client
        if line is None or client is None:
            return _NOT_CONNECTED
        if request.method == "getMe" and line.me is not None:
            return _me(line.me)  # what a route is probed with
        letter = request.letter
        if letter is None:
            random_id = secrets.randbelow(2**63 - _ROOM) + 1  # nobody repeats it
        else:
            random_id = random_id_of(account, letter_id=letter[0], number=letter[1])
        async with asyncio.timeout(request.timeout_s):
            reply = await client.carry(request, random_id=random_id, access_of=line.access_of)
        if reply.status == 429 and reply.detail:
            line.limited(reply.detail, wait_s=reply.retry_after_s or 0)
        return reply


def _me(me: Me) -> Reply:
    shown = {"id": me.user_id, "is_bot": me.is_bot, "first_name": me.first_name, "username": me.username}
    return Reply(status=200, body=msgspec.json.encode({"ok": True, "result": shown}))
