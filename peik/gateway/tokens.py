"""Who may come through the gateway: the token is the key. An unknown one is shown to Telegram once, and then served.

A wrong token costs Telegram one question per minute, however many requests come with it.
"""

import asyncio
import hmac
import math
from collections import OrderedDict

import msgspec

from peik.app.runtime import Runtime
from peik.core.methods import MethodClass
from peik.core.outcome import Delivered, Limited, Moved, Refused, Reply, Uncertain, Unsent, judge
from peik.core.token import Token
from peik.errors import BadInput
from peik.gateway.answers import AWAY, GatewayAnswer, failure, of_reply, too_many
from peik.outbox.store import BotRecord
from peik.telegram.routes import CallPatience, patience_with
from peik.web.limits import bot_holder

WRONG_S = 60.0
WRONG_MAX = 10_000
# Telegram's server itself takes 20 new tokens a minute from one address (docs/telegram.md, Too many requests). Whoever
# tries out tokens here must not use that up for the bots that are served.
CHECKS_PER_MINUTE = 20

UNAUTHORIZED = failure(401, "Unauthorized")
MALFORMED = failure(401, "Unauthorized: invalid token specified")
_QUESTION: CallPatience = patience_with("getMe", MethodClass.READ)


class Turned(Exception):
    """Not admitted; the answer says why."""

    def __init__(self, answer: GatewayAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class _Me(msgspec.Struct):
    id: int
    username: str | None = None


_decode_me = msgspec.json.Decoder(_Me).decode


class Tokens:
    def __init__(self, peik: Runtime) -> None:
        self._service = peik.outbox.service
        self._passage = peik.passthrough
        self._courier = peik.outbox.courier
        self._now = peik.clock.mono
        self._is_open = peik.config.gateway_open
        self._gate = peik.limits
        self._wrong: OrderedDict[Token, tuple[float, GatewayAnswer]] = OrderedDict()
        self._asked: dict[Token, asyncio.Future[GatewayAnswer | None]] = {}
        self._checks: list[float] = []

    async def admit(self, text: str, host: str | None = None) -> BotRecord:
        """The bot of this token. Raises Turned. `host`: where the request comes from; None: from this process."""
        try:
            bot = await self._admit(text, host)
        except Turned as turned:
            if turned.answer.status == 401 and turned.answer is not MALFORMED:
                self._wait(self._gate.wrong_wait_s(host, text, self._now()))
            raise
        self._wait(self._gate.holder_wait_s(host, bot_holder(bot.bot_id), None, self._now()))
        return bot

    def _wait(self, wait_s: float) -> None:
        if wait_s:
            raise Turned(too_many(math.ceil(wait_s)))

    async def _admit(self, text: str, host: str | None) -> BotRecord:
        try:
            token = Token(text)
        except BadInput:
            raise Turned(MALFORMED) from None
        known = self._service.known(token.bot_id)
        is_ours = known is not None and hmac.compare_digest(known.token.reveal(), token.reveal())
        if known is not None and is_ours and not self._is_doubted(token.bot_id):
            return known
        if not is_ours and not self._is_open:
            raise Turned(UNAUTHORIZED)
        # Whoever has guessed too often is not even asked about: Telegram's patience is for all of us.
        self._wait(self._gate.barred_s(host, self._now()))
        refusal = await self._check(token)
        admitted = self._service.known(token.bot_id)
        if is_ours and admitted is not None and refusal is AWAY:
            return (
                admitted  # Telegram doubted it once, and cannot be asked now: what comes is kept, and nothing is lost
            )
        if refusal is not None or admitted is None:
            raise Turned(refusal or UNAUTHORIZED)
        return admitted

    def _is_doubted(self, bot_id: int) -> bool:
        """Telegram has refused this token meanwhile; nothing is accepted under it any more unless Telegram takes it again."""
        sender = self._courier.senders.get(bot_id)
        paused = None if sender is None else sender.bot.paused
        return paused is not None and paused.startswith("Unauthorized")

    async def _check(self, token: Token) -> GatewayAnswer | None:
        """What Telegram thinks of a token: None if it takes it. Whoever comes in the meantime waits for the same answer."""
        if (refusal := self._remembered(token)) is not None:
            return refusal
        if (asked := self._asked.get(token)) is not None:
            return await asyncio.shield(asked)
        at = self._count_check()
        mine: asyncio.Future[GatewayAnswer | None] = asyncio.get_running_loop().create_future()
        self._asked[token] = mine
        refusal = AWAY  # what the others hear if this one is cancelled
        try:
            refusal = await self._ask(token, at)
            return refusal
        finally:
            del self._asked[token]
            mine.set_result(refusal)

    def _count_check(self) -> float:
        now = self._now()
        self._checks = [at for at in self._checks if at > now - 60]
        if len(self._checks) >= CHECKS_PER_MINUTE:
            wait_s = int(self._checks[0] + 60 - now) + 1
            raise Turned(too_many(wait_s))
        self._checks.append(now)
        return now

    async def _ask(self, token: Token, at: float) -> GatewayAnswer | None:
        reply = await self._passage.carry(token, "getMe", b"{}", patience=_QUESTION)
        match judge(reply, method="getMe"):
            case Delivered(result=result):
                if self._service.known(token.bot_id) is None:
                    await self._service.admit(token)
                else:
                    await self._service.change_bot(token.bot_id, token=token)  # it was rotated
                await self.learn(token.bot_id, result)
                return None
            case Limited():
                return of_reply(reply)
            case Refused() | Moved():
                return self._remember(token, reply)
            case Unsent():
                if at in self._checks:
                    self._checks.remove(at)  # Telegram never heard of it, and its patience is what is counted
                return AWAY
            case Uncertain():
                return AWAY

    def _remember(self, token: Token, reply: Reply) -> GatewayAnswer:
        answer = of_reply(reply)
        self._wrong[token] = (self._now() + WRONG_S, answer)
        self._wrong.move_to_end(token)
        while len(self._wrong) > WRONG_MAX:
            self._wrong.popitem(last=False)
        return answer

    def _remembered(self, token: Token) -> GatewayAnswer | None:
        until, answer = self._wrong.get(token, (0.0, None))
        if answer is not None and self._now() >= until:
            del self._wrong[token]
            return None
        return answer

    async def learn(self, bot_id: int, me: bytes) -> None:
        """Keep what getMe said, so that a bot can start while Telegram is away."""
        try:
            known, text = _decode_me(me), me.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if known.id == bot_id:
            await self._service.note_me(bot_id, text, known.username)
