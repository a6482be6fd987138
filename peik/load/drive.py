"""The work itself, as an open loop: everything is due at its moment whatever became of what was before, and is timed from then.

A loop that waits for each answer before it asks again would ask less the slower Peik gets, and see nothing of it.
"""

import asyncio
import enum
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from peik.core.outcome import Reply
from peik.load.place import LoadPlace, bot_of
from peik.load.plan import Latencies, LoadLetters, LoadWay, LoadWork, Written, letters_plan, updates_plan

FIRST_CHAT = 10_000_001
TEXT = "Your order has left the warehouse and will be with you soon; here is what you asked for, and a link to more."
REST_WORKERS = 64
GATEWAY_WORKERS = 256  # each waits for Telegram's answer
WRITERS = 16
POLL_S = 5
AGAIN_S = 0.2
PATIENCE_S = 30.0  # without a single update that comes

T = TypeVar("T")


class LoadFate(enum.Enum):
    """What the caller of a letter was told."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"  # no answer: it may have been accepted


class LoadRequest(msgspec.Struct):
    """One letter, by its mark."""

    due_s: float
    fate: LoadFate
    chat: int = 0


class LoadAnswer(msgspec.Struct):
    """Of a gateway's answer, what is needed here."""

    ok: bool = False


class _Updates(msgspec.Struct):
    class Update(msgspec.Struct):
        class Message(msgspec.Struct):
            class Chat(msgspec.Struct):
                id: int

            chat: Chat
            text: str = ""

        update_id: int
        message: Message | None = None

    result: list[Update]


class Drive:
    """One run. Marks are words that no other run uses, and lead the text of each message."""

    def __init__(
        self, place: LoadPlace, work: LoadWork, *, seed: int, mark: str, grow: Callable[[int], None] = lambda done: None
    ) -> None:
        chance = random.Random(f"{seed} {mark}")
        self.place = place
        self.work = work
        self.mark = mark
        self.letters = letters_plan(work, chance)
        self.updates = updates_plan(work, chance)
        self._chats = [FIRST_CHAT + chance.randrange(work.chats) for _ in range(work.sends + 1)]
        self._grow = grow
        self.asked: dict[str, LoadRequest] = {}
        self.written: dict[str, float] = {}  # when it was due, by mark
        self.unwritten: dict[str, int] = {}  # why the simulated Telegram did not take it
        self.got: dict[str, int] = {}
        self.refusals: dict[str, int] = {}
        self._offsets: dict[int, int] = {}
        self.accepting, self.answering, self.getting = Latencies(), Latencies(), Latencies()
        self.late = Latencies()  # how late we ourselves were
        self.began_at = 0.0
        self._rest: asyncio.Queue[LoadLetters] = asyncio.Queue()
        self._gateway: asyncio.Queue[tuple[str, float, int, int]] = asyncio.Queue()
        self._people: asyncio.Queue[Written] = asyncio.Queue()

    @property
    def now_s(self) -> float:
        return time.time() - self.began_at

    async def run(self) -> None:
        """Until the last piece was due and every caller has his answer. Bots go on."""
        self.began_at = time.time()
        workers = [
            *(asyncio.create_task(_serve(self._rest, self._hand_in)) for _ in range(REST_WORKERS)),
            *(asyncio.create_task(_serve(self._gateway, self._send)) for _ in range(GATEWAY_WORKERS)),
            *(asyncio.create_task(_serve(self._people, self._write)) for _ in range(WRITERS)),
        ]
        bots = [asyncio.create_task(self._poll(number)) for number in range(self.work.bots)]
        try:
            doing = asyncio.create_task(self._do())
            await _first_trouble(doing, [*workers, *bots])
        finally:
            for task in (doing, *workers, *bots):
                task.cancel()
            await asyncio.gather(doing, *workers, *bots, return_exceptions=True)
        await asyncio.gather(*(self._confirm(number) for number in range(self.work.bots)))

    async def _do(self) -> None:
        pieces: list[LoadLetters | Written] = [*self.letters, *self.updates]
        for piece in sorted(pieces, key=lambda one: one.due_s):
            await asyncio.sleep(max(0.0, piece.due_s - self.now_s))
            self.late.add(due_s=piece.due_s, done_s=self.now_s)
            if isinstance(piece, Written):
                self._people.put_nowait(piece)
            elif piece.way is LoadWay.GATEWAY:
                entry = (f"{self.mark}L{piece.first:07d}", piece.due_s, piece.bot, self._chats[piece.first])
                self._gateway.put_nowait(entry)
            else:
                self._rest.put_nowait(piece)
        await self._people.join()
        await self._rest.join()
        await self._all_got()
        await self._gateway.join()

    async def _all_got(self) -> None:
        """Until the bots have every update, or none has come for a while: what is missing then is counted."""
        seen, since_s = -1, self.now_s
        while len(self.got) < len(self.written) and self.now_s - since_s < PATIENCE_S:
            if len(self.got) != seen:
                seen, since_s = len(self.got), self.now_s
            await asyncio.sleep(AGAIN_S)

    # ---- letters ----

    async def _hand_in(self, piece: LoadLetters) -> None:
        bot_id = str(bot_of(self.place.tokens[piece.bot]))
        numbers = range(piece.first, piece.first + piece.count)
        letters = [
            {"bot_id": bot_id, "method": "sendMessage", "params": self._params(f"L{number:07d}", self._chats[number])}
            for number in numbers
        ]
        if piece.way is LoadWay.BATCH:
            reply = await self.place.peik.ask("POST", "/v1/letters/batch", {"letters": letters})
        else:
            reply = await self.place.peik.ask("POST", "/v1/letters", letters[0])
        fate = self._fate(reply, is_taken=reply.status == 202)
        for number in numbers:
            self.asked[f"{self.mark}L{number:07d}"] = LoadRequest(
                due_s=piece.due_s, fate=fate, chat=self._chats[number]
            )
        if fate is LoadFate.ACCEPTED:
            self.accepting.add(due_s=piece.due_s, done_s=self.now_s)
        self._grow(piece.count)

    async def _send(self, entry: tuple[str, float, int, int]) -> None:
        """As a bot does: through the gateway, and it waits for Telegram's answer. Answers to people go this way, too."""
        mark, due_s, bot, chat = entry
        path = f"/bot{self.place.tokens[bot]}/sendMessage"
        reply = await self.place.peik.ask("POST", path, self._params(mark.removeprefix(self.mark), chat))
        is_taken = reply.status == 200 and msgspec.json.decode(reply.body, type=LoadAnswer).ok
        fate = self._fate(reply, is_taken=is_taken)
        self.asked[mark] = LoadRequest(due_s=due_s, fate=fate, chat=chat)
        if fate is LoadFate.ACCEPTED and mark.startswith(f"{self.mark}L"):
            self.answering.add(due_s=due_s, done_s=self.now_s)
        self._grow(1)

    def _params(self, mark: str, chat: int) -> dict[str, object]:
        return {"chat_id": chat, "text": f"{self.mark}{mark} {TEXT}"}

    def _fate(self, reply: Reply, *, is_taken: bool) -> LoadFate:
        if is_taken:
            return LoadFate.ACCEPTED
        why = str(reply.fault or reply.status)
        self.refusals[why] = self.refusals.get(why, 0) + 1
        is_in_doubt = reply.left if reply.fault is not None else reply.status >= 500 and reply.status != 503
        return LoadFate.UNKNOWN if is_in_doubt else LoadFate.REFUSED

    # ---- updates ----

    async def _write(self, piece: Written) -> None:
        mark = f"{self.mark}U{piece.number:07d}"
        body = {"bot": bot_of(self.place.tokens[piece.bot]), "user": FIRST_CHAT + piece.chat, "text": mark}
        self.written[mark] = piece.due_s
        reply = await self.place.sim.ask("POST", "/sim/write", body)
        if reply.status != 200:
            del self.written[mark]
            why = f"{reply.fault or reply.status} {reply.detail or reply.body.decode(errors='replace')[:200]}".strip()
            self.unwritten[why] = self.unwritten.get(why, 0) + 1

    async def _poll(self, number: int) -> None:
        """A bot: it reads updates through the gateway and answers each of them."""
        offset = 0
        while True:
            reply = await self._ask_updates(number, offset, POLL_S)
            if reply.status != 200:
                await asyncio.sleep(AGAIN_S)
                continue
            for update in msgspec.json.decode(reply.body, type=_Updates).result:
                offset = update.update_id + 1
                self._offsets[number] = offset
                if update.message is not None:
                    self._take(update.message.text, number, update.message.chat.id)

    def _take(self, mark: str, bot: int, chat: int) -> None:
        due_s = self.written.get(mark)
        if due_s is None:
            return  # of another run, or of a person
        self.got[mark] = self.got.get(mark, 0) + 1
        if self.got[mark] == 1:
            self.getting.add(due_s=due_s, done_s=self.now_s)
            self._gateway.put_nowait((f"{self.mark}A{mark.removeprefix(self.mark)[1:]}", due_s, bot, chat))

    async def _confirm(self, number: int) -> None:
        """The last ones, too: they are not to come again in another run."""
        if number in self._offsets:
            await self._ask_updates(number, self._offsets[number], 0)

    async def _ask_updates(self, number: int, offset: int, wait_s: int) -> Reply:
        path = f"/bot{self.place.tokens[number]}/getUpdates"
        asked = {"offset": offset, "timeout": wait_s, "limit": 100}
        return await self.place.peik.ask("POST", path, asked, timeout_s=wait_s + 30.0)


async def _serve(queue: "asyncio.Queue[T]", work: Callable[[T], Awaitable[None]]) -> None:
    while True:
        piece = await queue.get()
        await work(piece)
        queue.task_done()


async def _first_trouble(main: "asyncio.Task[None]", others: Sequence["asyncio.Task[None]"]) -> None:
    """Once the main task has ended. Raises what ended another one before it: a worker that died is no load."""
    await asyncio.wait([main, *others], return_when=asyncio.FIRST_COMPLETED)
    for task in (*others, main):
        if task.done():
            task.result()
