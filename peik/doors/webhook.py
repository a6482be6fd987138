"""The webhook door: where Telegram pushes updates. It answers 200 only after a commit, and never 410.

Telegram shows no key of the API; it shows the secret that its bot's webhook was set with.
"""

import hmac
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from peik.core.arrival import Update, mended, read_update
from peik.core.gate import Gate, bot_holder
from peik.desk import Desk
from peik.doors.access import host_of
from peik.doors.bodies import read_body
from peik.doors.replies import Endpoint
from peik.errors import BadInput, Denied, Problem
from peik.inbox.pushed import Pushed

PUSHES = "/webhook/"  # and the id of a bot
BODY_BYTES_MAX = 1 << 20  # Telegram's own bound for an update is half of it (TELEGRAM.md §1.1)
_SECRET = b"x-telegram-bot-api-secret-token"  # the name of the header
_TAKEN = Response()


def webhook_door(
    desk: Desk, pushed: Pushed, *, gate: Gate | None = None, now: Callable[[], float] = lambda: 0.0
) -> Endpoint:
    async def answer(request: Request) -> Response:
        if request.method != "POST":
            raise HTTPException(405, headers={"Allow": "POST"})
        bot_id = _bot_id(request.path_params["bot_id"], desk)
        shown = next((value for name, value in request.scope["headers"] if name == _SECRET), b"")
        # Who does not know the secret learns nothing, not even whether the bot is here.
        if bot_id is None or not hmac.compare_digest(shown, (await pushed.secret(bot_id)).encode()):
            raise Denied(code="wrong_secret", detail="This is not the secret of this bot's webhook.")
        if gate is not None:
            gate.vouch(host_of(request.scope), bot_holder(bot_id), now())  # Telegram itself is no stranger
        await pushed.take_in(bot_id, _read(await read_body(request, bytes_max=BODY_BYTES_MAX)))
        return _TAKEN

    return answer


def _bot_id(text: str, desk: Desk) -> int | None:
    """The bot, if it wants its updates here."""
    if text.isascii() and text.isdecimal() and len(text) < 20:
        bot = desk.known(int(text))
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
