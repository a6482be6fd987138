"""Who uses Peik in the seeded world: back-ends that send, and bots that read what people wrote and answer it."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from simulation.network import Answered, Lost
from simulation.promises import Promise

if TYPE_CHECKING:
    from simulation.node import Node
    from simulation.world import World

RETRY_S = 1.0
RETRY_S_MAX = 600.0
FAILS = 0.05  # how often a program fails with an update
IMPATIENT = 0.1  # how often somebody hangs up before Telegram may have answered
GATEWAY_S = 75.0
WORK_S_MAX = 12.0  # of a handler; its update is handed again if it dies within PEIK_POLLING_REDELIVERY
_encode = msgspec.json.encode
_decode = msgspec.json.decode


class Backend:
    """Sends letters one after the other, each again and again until it is answered; without a key only once."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self.name = name
        self._chance = world.chance_for(f"backend {name}")
        self._orders: deque[tuple[Promise, str]] = deque()
        self._bell = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        return not self._orders

    def order(self, promise: Promise, door: str) -> None:
        self._orders.append((promise, door))
        self._bell.set()

    async def run(self) -> None:
        while True:
            if not self._orders:
                self._bell.clear()
                await self._bell.wait()
            promise, door = self._orders[0]
            promise.asked_at = promise.asked_at or self._world.step()
            await self._send(promise, door)
            self._orders.popleft()

    async def _send(self, promise: Promise, door: str) -> None:
        wait_s = RETRY_S
        while True:
            try:
                answer = await (self._by_gateway(promise) if door == "gateway" else self._by_rest(promise))
            except Lost as lost:
                self._world.note(f"{self.name} {promise.name}: {lost}")
                if promise.key is None:
                    return  # nobody knows whether it was accepted
            else:
                if self._take(promise, door, answer):
                    return
                if promise.key is None and self._world.is_refusal_doubtful:
                    return
            await asyncio.sleep(wait_s * self._chance.uniform(0.5, 1.0))
            wait_s = min(1.5 * wait_s, RETRY_S_MAX)

    def _take(self, promise: Promise, door: str, answer: Answered) -> bool:
        """Whether that was an answer to be content with."""
        world = self._world
        world.note(f"{self.name} {promise.name}: {answer.status}")
        if answer.status in (429, 500, 502, 503, 504):
            if answer.status == 500:
                world.judge.note(f"{promise.name} was answered 500: {answer.body[:200]!r}")
            return False
        if door == "rest":
            if answer.status == 422 and promise.expires_at_ms is not None and not world.judge.is_stored(promise):
                return True  # its time had passed before it came here
            if answer.status != 202:
                world.judge.note(f"{promise.name} was answered {answer.status}: {answer.body[:200]!r}")
                return True
            promise.letter_id = int(answer.json()["id"])
        else:
            self._check(promise, answer)
        promise.acked_at = world.step()
        world.judge.acknowledged(promise)
        return True

    def _check(self, promise: Promise, answer: Answered) -> None:
        """What the gateway says of a letter must be so."""
        body = answer.json()
        if answer.status == 200:
            beside = body.get("peik")
            if beside is not None:
                promise.letter_id = int(beside["letter_id"])
            elif body["result"]["message_id"] and not promise.deliveries:
                self._world.judge.note(f"{promise.name} was answered as delivered, and never arrived")

    async def _by_rest(self, promise: Promise) -> Answered:
        body: dict[str, Any] = {
            "bot_id": promise.bot_id,
            "method": promise.method,
            "params": _params(promise),
            "priority": promise.priority or 0,
        }
        if promise.is_at_most_once:
            body["on_uncertain"] = "hold"
        if promise.send_at_ms is not None:
            body["send_at"] = promise.send_at_ms / 1000
        if promise.expires_at_ms is not None:
            body["expires_at"] = promise.expires_at_ms / 1000
        if promise.key is not None:
            body["idempotency_key"] = promise.key
        if promise.is_hooked:
            body["webhook_url"] = f"https://backend.example/{promise.name}"
        headers = {"authorization": f"Bearer {self._world.key}", "content-type": "application/json"}
        return await self._world.ask("POST", "/v1/letters", is_anywhere=True, headers=headers, body=_encode(body))

    async def _by_gateway(self, promise: Promise) -> Answered:
        params = _params(promise)
        if promise.key is not None:
            params["peik_idempotency_key"] = promise.key
        if promise.method == "sendDocument":
            return await self._world.upload(promise.bot_id, promise.method, params, promise.name.encode())
        is_impatient = promise.key is not None and self._chance.random() < IMPATIENT
        timeout_s = self._chance.uniform(0.05, 3.0) if is_impatient else GATEWAY_S
        # What others send for a bot is no sign that its program has dealt with an update of that chat.
        reader = "backend" if promise.answers is None else ""
        return await self._world.gateway(promise.bot_id, promise.method, params, reader=reader, timeout_s=timeout_s)


class Draft(msgspec.Struct, kw_only=True):
    """A message that a bot uses as soon as it has said it, sent or not: what it was told of it, and what it was promised."""

    bot_id: int
    chat: int
    name: str  # the text of all its versions begins so; no promise is called like this
    message_id: int = 0
    letter_id: int | None = None  # of the message, if it waited when it was answered
    shown: str = ""  # the last text that was accepted
    others: list[int] = msgspec.field(default_factory=list)  # letters of edits and of the deletion
    is_taken_back: bool = False
    was_never_sent: bool = False  # it was taken back by its own letter
    is_clear: bool = True  # every call was answered: what must be there in the end is known


class DraftWriter:
    """Says something through the gateway, and at once changes it, answers it, or takes it back."""

    def __init__(self, world: "World", draft: Draft) -> None:
        self._world = world
        self._draft = draft

    async def send(self) -> bool:
        """Whether the message has a name by which it can be used."""
        draft = self._draft
        draft.shown = f"{draft.name} 0"
        body = await self._call("sendMessage", text=draft.shown)
        if body is None:
            return False
        draft.message_id, draft.letter_id = body["result"]["message_id"], _letter_in(body)
        return draft.message_id > 0

    async def edit(self, text: str) -> None:
        body = await self._call("editMessageText", message_id=self._draft.message_id, text=text)
        if body is not None:
            self._draft.shown = text
            self._note(body)

    async def answer(self) -> None:
        """The answer's text tells which message it must stand under."""
        to = {"message_id": self._draft.message_id}
        await self._call("sendMessage", text=f"to {self._draft.name}", reply_parameters=to)

    async def take_back(self) -> None:
        body = await self._call("deleteMessage", message_id=self._draft.message_id)
        if body is not None:
            self._draft.is_taken_back = True
            self._draft.was_never_sent = (
                self._draft.letter_id is not None and "peik" not in body and self._is_cancelled()
            )
            self._note(body)

    def _is_cancelled(self) -> bool:
        row = self._world.witness.letter(self._draft.letter_id or 0)
        return row is not None and row.phase == 4

    def _note(self, body: dict[str, Any]) -> None:
        letter_id = _letter_in(body)
        if letter_id not in (None, self._draft.letter_id):
            self._draft.others.append(letter_id)

    async def _call(self, method: str, **params: Any) -> dict[str, Any] | None:
        """What Telegram, or Peik in its place, says yes to; None: no, or nobody knows."""
        world, draft = self._world, self._draft
        try:
            answer = await world.gateway(draft.bot_id, method, {"chat_id": draft.chat, **params})
        except Lost as lost:
            world.note(f"{draft.name} {method}: {lost}")
            draft.is_clear = False
            return None
        world.note(f"{draft.name} {method}: {answer.status}")
        if answer.status == 500:
            world.judge.note(f"{draft.name} was answered 500: {answer.body[:200]!r}")
        if answer.status == 200:
            body: dict[str, Any] = answer.json()
            return body
        if answer.status != 400:
            draft.is_clear = False  # what came of it is not known
        elif b"not found" in answer.body and self._is_there():
            world.judge.note(f"{draft.name} is not dead, and was not found: {answer.body[:200]!r}")
        return None

    def _is_there(self) -> bool:
        """Whether the message will be sent, or was sent, as far as anybody knows."""
        draft = self._draft
        row = None if draft.letter_id is None else self._world.witness.letter(draft.letter_id)
        return row is not None and row.phase <= 2 and not draft.is_taken_back


def _letter_in(body: dict[str, Any]) -> int | None:
    beside = body.get("peik")
    return None if beside is None else int(beside["letter_id"])


def _params(promise: Promise) -> dict[str, Any]:
    words = "caption" if promise.method == "sendDocument" else "text"
    params: dict[str, Any] = {"chat_id": promise.chat, words: f"{promise.name} {promise.method}"}
    if promise.thread and promise.target is None:
        params["message_thread_id"] = promise.thread
    if promise.target is not None:
        params["message_id"] = {"letter": str(promise.target.letter_id)}
    if promise.answers is not None:
        params["reply_parameters"] = {"message_id": promise.answers, "allow_sending_without_reply": True}
    return params


class Program:
    """A bot's own program. It reads by polling the gateway, by a webhook, or by handlers inside Peik's process.

    One that polls confirms an update with its next poll, as libraries do, while its handler is still at work: for less time
    than Peik waits before it believes that. When it dies its handlers die, and its connection is closed.
    """

    def __init__(self, world: "World", bot_id: int, kind: Literal["poll", "push", "handlers"]) -> None:
        self._world = world
        self.bot_id = bot_id
        self.kind = kind
        self.is_up = True
        self._chance = world.chance_for(f"program {bot_id}")
        self._offset = 0
        self._wait_s = RETRY_S
        self._bell = asyncio.Event()
        self.handed: dict[int, int] = {}  # by number: how often it was done with it
        self.acked: set[int] = set()  # numbers that Peik has heard of from this life that it has them
        self._life: list[asyncio.Future[None]] = []  # its poll and its handlers
        self.taken: set[int] = set()  # in this life
        self.payloads: dict[int, bytes] = {}
        self.order: list[int] = []  # numbers as they came first

    def up(self, is_up: bool) -> None:
        if is_up == self.is_up:
            return
        self.is_up = is_up
        self._offset = 0  # it remembers nothing over a crash, as bots do not
        self.acked.clear()
        self.taken.clear()
        for task in self._life:
            task.cancel()
        self._life.clear()
        self._bell.set()

    async def run(self) -> None:
        if self.kind == "push":
            await self._set_webhook()
        while True:
            self._bell.clear()
            if self.kind != "poll" or not self.is_up:
                await self._bell.wait()
                continue
            poll = self._begin(self._poll())
            await asyncio.wait([poll])
            if not poll.cancelled():
                poll.result()

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        """Something that ends with this life."""
        task = asyncio.ensure_future(work)
        self._life.append(task)
        task.add_done_callback(lambda one: self._life.remove(one) if one in self._life else None)
        return task

    async def _set_webhook(self) -> None:
        wait_s = RETRY_S
        while True:
            try:
                answer = await self._world.gateway(self.bot_id, "setWebhook", {"url": self.url})
            except Lost:
                answer = None
            if answer is not None and answer.status == 200:
                return
            await asyncio.sleep(wait_s)
            wait_s = min(1.5 * wait_s, RETRY_S_MAX)

    @property
    def url(self) -> str:
        return f"https://bot{self.bot_id}.example/hook"

    async def _poll(self) -> None:
        offset = self._offset
        try:
            answer = await self._world.gateway(
                self.bot_id, "getUpdates", {"offset": offset, "timeout": 20}, timeout_s=40.0
            )
        except Lost:
            answer = None
        if answer is None or answer.status != 200:
            await asyncio.sleep(self._wait_s)
            self._wait_s = min(1.5 * self._wait_s, RETRY_S_MAX)
            return
        self._wait_s = RETRY_S
        self.acked |= {number for number in self.taken if number < offset}
        for update in _decode(answer.body, type=_Updates).result:
            number = _decode(update, type=_Numbered).update_id
            self._take(number, bytes(update))
            self._begin(self._work(number, bytes(update)))
            self._offset = number + 1

    async def _work(self, number: int, body: bytes) -> None:
        await asyncio.sleep(self._chance.choice([0.0, 0.5, 3.0, WORK_S_MAX]))
        self._done(number)
        await self._answer(number, body)

    async def take_push(self, body: bytes) -> int:
        """The status that it answers."""
        if not self.is_up:
            return 502
        number = _decode(body, type=_Numbered).update_id
        self._take(number, body)
        await self._answer(number, body)
        if self._chance.random() < FAILS:
            return 500
        self._done(number)
        return 200

    async def handle(self, node: "Node", number: int, body: bytes) -> None:
        """In the process of Peik itself."""
        shown = _decode(body, type=_Numbered).update_id
        self._take(shown, body)
        if self._chance.random() < FAILS:
            raise ValueError("a handler that fails now and then")
        self._done(shown)

    def _take(self, number: int, body: bytes) -> None:
        world = self._world
        world.note(f"program {self.bot_id} gets {number}")
        # A node does not know to which life another one gave what it is to hand again: twice rather than never.
        if number in self.acked and not world.is_balanced:
            world.judge.note(f"update {number} of {self.bot_id} was handed on after it had been acknowledged")
        self.taken.add(number)
        if number not in self.payloads:
            self.payloads[number] = body
            self.order.append(number)

    def _done(self, number: int) -> None:
        self.handed[number] = self.handed.get(number, 0) + 1

    async def _answer(self, number: int, body: bytes) -> None:
        """Some updates are answered, with a key, so that a repeat of the update makes no second answer."""
        chat = chat_of(body)
        if chat is None or self._chance.random() > 0.3:
            return
        promise = self._world.promise(
            bot_id=self.bot_id, chat=chat, priority=None, key=f"answer-{number}", name=f"L{self.bot_id}{number:012d}",
            answers=_decode(body)["message"]["message_id"],
        )  # fmt: skip
        if promise is not None:
            self._world.backends[-1].order(promise, "gateway")


class _Updates(msgspec.Struct):
    result: list[msgspec.Raw]


class _Numbered(msgspec.Struct):
    update_id: int


def chat_of(body: bytes) -> int | None:
    """The private chat that an update came from."""
    message = _decode(body).get("message")
    if not isinstance(message, dict):
        return None
    chat = message["chat"]["id"]
    return chat if isinstance(chat, int) and chat > 0 else None
