"""REST: what people ask of letters. Lists, cancel, change, retry, resolve, dead letters by filter, lanes and chats."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.letter import State
from peik.core.token import Token
from peik.errors import BadInput
from peik.inbox.service import InboxService
from peik.outbox.answers import letter_view
from peik.outbox.service import OutboxService
from peik.outbox.store import NOW, BotRecord, Counted, LetterFilter
from peik.outbox.views import bot_view, cause_view, chat_view, lane_view, wanted_of
from peik.web.access import Access, Caller
from peik.web.bodies import (
    decode,
    filter_of,
    instant_ms,
    parse_id,
    path_chat,
    read_body,
    read_chat,
    read_cursor,
    read_filter,
    read_limit,
    read_since,
    read_switch,
)
from peik.web.responses import Route, json_response

_SMALL_BODY = 64 * 1024


class ResolveBody(msgspec.Struct, forbid_unknown_fields=True):
    arrived: bool


class FilterBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/dead/retry`: which dead letters; all of them if nothing is said."""

    bot_id: int | str | None = None
    chat_id: int | str | None = None
    user_id: str | None = None
    message_type: str | None = None
    method: str | None = None
    since: int | float | str | None = None
    until: int | float | str | None = None
    text: str | None = None
    error: str | None = None
    cause: str | None = None
    dry_run: bool = False


class CancelBody(FilterBody, forbid_unknown_fields=True):
    """`POST /v1/letters/cancel`: which letters. At least one filter: nobody takes everything back by a slip."""

    state: str | None = None


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/letters/{letter_id}`. `send_at` is a time, or "now"."""

    priority: int | None = None
    send_at: int | float | str | None = None


class ChatBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/chats/{bot_id}/{chat_id}`. `held_until` null lets the chat go on."""

    reachable: bool | msgspec.UnsetType = msgspec.UNSET
    held_until: int | float | str | msgspec.UnsetType | None = msgspec.UNSET


class LetterRoutes:
    def __init__(self, desk: OutboxService, inbox: InboxService, access: Access) -> None:
        self._desk = desk
        self._inbox = inbox
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/letters", self.list_letters, "listLetters", "letters"),
            ("POST", "/v1/letters/cancel", self.cancel_all, "cancelLetters", "letters"),
            ("DELETE", "/v1/letters/{letter_id}", self.cancel, "cancelLetter", "letters"),
            ("PATCH", "/v1/letters/{letter_id}", self.change, "changeLetter", "letters"),
            ("POST", "/v1/letters/{letter_id}/retry", self.retry, "retryLetter", "letters"),
            ("POST", "/v1/letters/{letter_id}/resolve", self.resolve, "resolveLetter", "letters"),
            ("GET", "/v1/dead", self.list_dead, "listDead", "dead letters"),
            ("GET", "/v1/dead/causes", self.list_causes, "listCauses", "dead letters"),
            ("POST", "/v1/dead/retry", self.retry_dead, "retryDead", "dead letters"),
            ("DELETE", "/v1/dead", self.clear_dead, "clearDead", "dead letters"),
            ("GET", "/v1/lanes", self.list_lanes, "listLanes", "lanes"),
            ("GET", "/v1/chats", self.list_chats, "listChats", "chats"),
            ("PATCH", "/v1/chats/{bot_id}/{chat_id}", self.change_chat, "changeChat", "chats"),
        )

    async def list_letters(self, request: Request) -> Response:
        """Letters by state, bot, chat, user, type, time, words of text or error, or what they answer; the newest first.

        One page looks at so many letters and not further: `is_cut` says that it ended for that, and `next_cursor` goes on."""
        caller = self._access.admit(request, "read")
        wanted = read_filter(request, also=("cursor", "limit", "arrival_id"))
        if "arrival_id" in request.query_params:
            wanted = await self._answering(wanted, caller, request.query_params["arrival_id"])
        return await self._page(request, caller.narrow(wanted))

    async def _answering(self, wanted: LetterFilter, caller: Caller, arrival_id: str) -> LetterFilter:
        if wanted.trace is not None:
            raise BadInput(code="two_traces", detail="Say trace or arrival_id, not both.")
        view = await self._inbox.arrival(parse_id(arrival_id, "arrival_id"))
        caller.must_see_arrival(view)
        answers = wanted_of(view.arrival)
        since_ms = answers.since_ms if wanted.since_ms is None else wanted.since_ms
        return msgspec.structs.replace(wanted, trace=answers.trace, since_ms=since_ms)

    async def list_dead(self, request: Request) -> Response:
        """Dead letters, the newest first, with the same filters."""
        caller = self._access.admit(request, "read")
        wanted = msgspec.structs.replace(read_filter(request), state=State.FAILED)
        return await self._page(request, caller.narrow(wanted))

    async def _page(self, request: Request, wanted: LetterFilter) -> Response:
        limit = read_limit(request)
        page = await self._desk.page(wanted, before=read_cursor(request), limit=limit)
        cursor = None if page.cursor is None else str(page.cursor)
        letters = [letter_view(view) for view in page.letters]
        return json_response({"letters": letters, "next_cursor": cursor, "is_cut": page.is_cut})

    async def cancel(self, request: Request) -> Response:
        """Take a letter back. 409 if it is being sent right now, or has ended."""
        letter_id = await self._own(request)
        return json_response(letter_view(await self._desk.cancel(letter_id)))

    async def cancel_all(self, request: Request) -> Response:
        """Take back all letters of a filter that wait or are delayed; `dry_run` only counts them."""
        caller = self._access.admit(request, "send")
        body = decode(CancelBody, await read_body(request, bytes_max=_SMALL_BODY))
        wanted = _filter_in(body)
        if wanted == LetterFilter():
            detail = 'Say which letters: a filter at least, such as {"state": "waiting"}.'
            raise BadInput(code="no_filter", detail=detail)
        if wanted.state not in (None, State.WAITING, State.DELAYED):
            raise BadInput(code="bad_state", detail="Only letters that are waiting or delayed can be taken back.")
        wanted = caller.narrow(wanted)
        if body.dry_run:
            return _counted(await self._desk.count_open(wanted))
        return json_response({"cancelled": await self._desk.cancel_all(wanted)})

    async def change(self, request: Request) -> Response:
        """Give a letter that waits another priority, another time, or both. 409 if it is being sent right now, or has ended.

        `{"send_at": "now"}` sends a scheduled letter now, and ends the wait of one that backs off."""
        letter_id = await self._own(request)
        body = decode(ChangeBody, await read_body(request, bytes_max=_SMALL_BODY))
        changed = await self._desk.change(letter_id, priority=body.priority, send_at_ms=send_at_ms_of(body))
        return json_response(letter_view(changed))

    async def retry(self, request: Request) -> Response:
        """Send a dead letter again, at the end of its lane."""
        letter_id = await self._own(request)
        return json_response(letter_view(await self._desk.retry(letter_id)), 202)

    async def resolve(self, request: Request) -> Response:
        """Say what became of an uncertain letter: `{"arrived": true}` completes it, `false` sends it again."""
        letter_id = await self._own(request)
        body = decode(ResolveBody, await read_body(request, bytes_max=_SMALL_BODY))
        return json_response(letter_view(await self._desk.resolve(letter_id, arrived=body.arrived)))

    async def _own(self, request: Request) -> int:
        """The letter of the path, if the caller may act on it."""
        caller = self._access.admit(request, "send")
        letter_id = parse_id(request.path_params["letter_id"], "letter_id")
        caller.must_see(await self._desk.letter(letter_id))
        return letter_id

    async def list_causes(self, request: Request) -> Response:
        """What the newest dead letters died of, the most frequent cause first; figures in reasons are N, quoted words "…"."""
        caller = self._access.admit(request, "read")
        bot_id = _bot_id(request)
        narrowed = caller.narrow(LetterFilter(bot_id=bot_id))
        bot_ids = narrowed.bot_ids if bot_id is None else frozenset([bot_id])
        causes = await self._desk.causes(bot_ids=bot_ids, since_ms=read_since(request), limit=read_limit(request))
        return json_response({"causes": [cause_view(one) for one in causes]})

    async def retry_dead(self, request: Request) -> Response:
        """Send all dead letters of a filter again; `dry_run` only counts them."""
        caller = self._access.admit(request, "send")
        text = await read_body(request, bytes_max=_SMALL_BODY)
        body = decode(FilterBody, text) if text.strip() else FilterBody()
        wanted = caller.narrow(_filter_in(body))
        if body.dry_run:
            return _counted(await self._desk.count(msgspec.structs.replace(wanted, state=State.FAILED)))
        return json_response({"retried": await self._desk.retry_dead(wanted)}, 202)

    async def clear_dead(self, request: Request) -> Response:
        """Clear away all dead letters of a filter; a line of each stays in the message log. `dry_run` only counts them."""
        caller = self._access.admit(request, "send")
        wanted = read_filter(request, also=("dry_run",))
        if wanted.state not in (None, State.FAILED):
            raise BadInput(code="bad_state", detail="Only dead letters can be cleared.")
        wanted = caller.narrow(msgspec.structs.replace(wanted, state=State.FAILED))
        if read_switch(request, "dry_run"):
            return _counted(await self._desk.count(wanted))
        return json_response({"cleared": await self._desk.clear_dead(wanted)})

    # ---- lanes and chats ----

    async def list_lanes(self, request: Request) -> Response:
        """Lanes that have letters: how many, and why the first of them is waiting."""
        caller = self._access.admit(request, "read")
        bot = self._desk.bot(caller.bot_id_of(_bot_id(request)))
        lanes = await self._desk.lanes(bot.bot_id, read_chat(request), limit=read_limit(request))
        return json_response({"lanes": [lane_view(lane, why) for lane, why in lanes]})

    async def list_chats(self, request: Request) -> Response:
        """Chats of which something is known: other ids, out of reach, held."""
        caller = self._access.admit(request, "read")
        bot = self._desk.bot(caller.bot_id_of(_bot_id(request)))
        limit = read_limit(request)
        chats = await self._desk.chats(bot.bot_id, after=read_chat(request, "cursor"), limit=limit)
        cursor = str(chats[-1].chat) if len(chats) == limit else None
        return json_response({"chats": [chat_view(chat) for chat in chats], "next_cursor": cursor})

    async def change_chat(self, request: Request) -> Response:
        """Open a chat that could not be reached, hold it for a while, or let it go on."""
        caller = self._access.admit(request, "admin")
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        caller.must_serve(bot_id)
        chat = path_chat(request)
        body = decode(ChatBody, await read_body(request, bytes_max=_SMALL_BODY))
        if body.reachable is False:
            raise BadInput(code="bad_reachable", detail="A chat can be opened (true); hold it to keep letters back.")
        if body.reachable is True:
            await self._desk.open_chat(bot_id, chat)
        if body.held_until is not msgspec.UNSET:
            await self._desk.hold_chat(bot_id, chat, instant_ms(body.held_until, "held_until") or 0)
        return json_response({"bot_id": str(bot_id), "chat_id": str(chat)})


def send_at_ms_of(body: ChangeBody) -> int | None:
    return NOW if body.send_at == "now" else instant_ms(body.send_at, "send_at")


def _filter_in(body: FilterBody) -> LetterFilter:
    given = {name: str(value) for name, value in msgspec.structs.asdict(body).items() if value is not None}
    del given["dry_run"]
    return filter_of(given)


def _counted(counted: Counted) -> Response:
    return json_response({"count": counted.letters, "is_least": counted.is_least})


def _bot_id(request: Request) -> int | None:
    text = request.query_params.get("bot_id")
    return None if text is None else parse_id(text, "bot_id")


# REST: changing bots. Pause and resume, rotate the token, set limits.


PAUSED_BY_HAND = "paused by hand"


class BotBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/bots`."""

    token: str
    inbound: str = "off"


class LimitsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Telegram's figures as this bot shall start with them; what is left out stays."""

    is_on: bool | msgspec.UnsetType = msgspec.UNSET
    bulk_per_s: float | msgspec.UnsetType = msgspec.UNSET
    interactive_per_s: float | msgspec.UnsetType = msgspec.UNSET
    interactive_per_s_max: float | msgspec.UnsetType = msgspec.UNSET
    private_per_s: float | msgspec.UnsetType = msgspec.UNSET
    private_burst: int | msgspec.UnsetType = msgspec.UNSET
    group_per_min: int | msgspec.UnsetType = msgspec.UNSET


class BotChange(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/bots/{bot_id}`. What is not given stays; `limits` null goes back to the usual figures."""

    paused: bool | msgspec.UnsetType = msgspec.UNSET
    token: str | msgspec.UnsetType = msgspec.UNSET
    inbound: str | msgspec.UnsetType = msgspec.UNSET
    limits: LimitsBody | msgspec.UnsetType | None = msgspec.UNSET
    missed: str | msgspec.UnsetType | None = msgspec.UNSET


class BotRoutes:
    def __init__(self, desk: OutboxService, access: Access) -> None:
        self._desk = desk
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (("PATCH", "/v1/bots/{bot_id}", self.change_bot, "changeBot", "bots"),)

    async def change_bot(self, request: Request) -> Response:
        """Pause, resume, rotate the token, set limits and policies."""
        caller = self._access.admit(request, "admin")
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        caller.must_serve(bot_id)
        body = decode(BotChange, await read_body(request, bytes_max=_SMALL_BODY))
        return json_response(bot_view(await change_bot(self._desk, bot_id, body)))


async def change_bot(desk: OutboxService, bot_id: int, body: BotChange) -> BotRecord:
    """The same for everybody who takes this body."""
    paused: str | msgspec.UnsetType | None = msgspec.UNSET
    if body.paused is not msgspec.UNSET:
        paused = PAUSED_BY_HAND if body.paused else None
    return await desk.change_bot(
        bot_id,
        token=None if body.token is msgspec.UNSET else Token(body.token),
        inbound=None if body.inbound is msgspec.UNSET else body.inbound,
        paused=paused,
        limits=_limits(body.limits),
        missed=body.missed,
    )


def _limits(body: LimitsBody | msgspec.UnsetType | None) -> dict[str, float] | msgspec.UnsetType | None:
    if body is None or body is msgspec.UNSET:
        return body
    return {name: figure for name, figure in msgspec.structs.asdict(body).items() if figure is not msgspec.UNSET}
