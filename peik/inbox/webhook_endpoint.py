"""Where Telegram pushes updates. It answers 200 only after a commit, and never 410.

Telegram shows no key of the API; it shows the secret that its bot's webhook was set with."""

import hmac
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from peik.core.arrival import Update, mended, read_update
from peik.errors import BadInput, Denied, Problem
from peik.inbox.webhooks import PushedUpdates
from peik.outbox.service import OutboxService
from peik.web.access import host_of
from peik.web.bodies import read_body
from peik.web.limits import RequestLimits, bot_holder
from peik.web.responses import problem_response, surprise_response
from peik.web.routes import Scope

PUSHES = "/webhook/"  # and the id of a bot
BODY_BYTES_MAX = 1 << 20  # Telegram's own bound for an update is half of it (docs/telegram.md, The update queue)
_SECRET = b"x-telegram-bot-api-secret-token"  # the name of the header
_TAKEN = Response()


class WebhookDoor:
    def __init__(
        self,
        service: OutboxService,
        pushed: PushedUpdates,
        *,
        gate: RequestLimits | None = None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._service = service
        self._pushed = pushed
        self._gate = gate
        self._now = now

    async def answer(self, request: Request) -> Response:
        if request.method != "POST":
            raise HTTPException(405, headers={"Allow": "POST"})
        bot_id = _bot_id(request.path_params["bot_id"], self._service)
        # Who does not know the secret learns nothing, not even whether the bot is here.
        if bot_id is None or not _is_shown(request.scope, await self._pushed.secret(bot_id)):
            raise Denied(code="wrong_secret", detail="This is not the secret of this bot's webhook.")
        if self._gate is not None:
            # Telegram itself is no stranger.
            self._gate.vouch(host_of(request.scope), bot_holder(bot_id), self._now())
        await self._pushed.take_in(bot_id, _read(await read_body(request, bytes_max=BODY_BYTES_MAX)))
        return _TAKEN

    def take(self, word: str, scope: Scope, body: bytes, answered: Callable[[Response], None]) -> bool:
        """The same for a push as nearly all are: whole, well, and of a bot that has had one before. False: nothing was done, and
        `answer` has to be asked."""
        bot_id = _bot_id(word, self._service) if scope["method"] == "POST" and len(body) <= BODY_BYTES_MAX else None
        secret = None if bot_id is None else self._pushed.known_secrets.get(bot_id)
        if bot_id is None or secret is None or not _is_shown(scope, secret):
            return False
        try:
            update = read_update(body)
        except BadInput:
            return False

        def told(error: Exception | None) -> None:
            if error is None:
                answered(_TAKEN)
            elif isinstance(error, Problem):
                answered(problem_response(error))
            else:
                answered(surprise_response())
                raise error

        return self._pushed.take_in_at_once(bot_id, update, told)


def _is_shown(scope: Scope, secret: str) -> bool:
    for name, value in scope["headers"]:
        if name == _SECRET:
            return hmac.compare_digest(value, secret.encode())
    return False


def _bot_id(text: str, service: OutboxService) -> int | None:
    """The bot, if it wants its updates here."""
    if text.isascii() and text.isdecimal() and len(text) < 20:
        bot = service.known(int(text))
        if bot is not None and bot.inbound == "webhook":
            return bot.bot_id
    return None


def _read(body: bytes) -> Update:
    try:
        return read_update(body)
    except BadInput as problem:
        # A refusal would make Telegram try it again for a day, and keep back everything of that chat behind it. So what
        # can be mended is taken in.
        whole = mended(body)
        if whole is not None:
            try:
                return read_update(whole)
            except BadInput:
                pass
        raise Problem(code=problem.code, detail=problem.detail) from None
