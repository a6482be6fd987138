"""REST: what people ask of letters. Lists, cancel, retry, resolve, dead letters by filter, lanes and chats."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.letter import State
from peik.desk import Desk
from peik.doors.access import Access
from peik.doors.bodies import decode, instant_ms, parse_id, read_body
from peik.doors.queries import filter_of, path_chat, read_chat, read_cursor, read_filter, read_limit
from peik.doors.replies import Route, json_response
from peik.doors.views import chat_view, lane_view, letter_view
from peik.errors import BadInput
from peik.ports import LetterFilter

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
    text: str | None = None
    error: str | None = None


class ChatBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/chats/{bot_id}/{chat_id}`. `held_until` null lets the chat go on."""

    reachable: bool | msgspec.UnsetType = msgspec.UNSET
    held_until: int | float | str | msgspec.UnsetType | None = msgspec.UNSET


class LetterRoutes:
    def __init__(self, desk: Desk, access: Access) -> None:
        self._desk = desk
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/letters", self.list_letters, "listLetters", "letters"),
            ("DELETE", "/v1/letters/{letter_id}", self.cancel, "cancelLetter", "letters"),
            ("POST", "/v1/letters/{letter_id}/retry", self.retry, "retryLetter", "letters"),
            ("POST", "/v1/letters/{letter_id}/resolve", self.resolve, "resolveLetter", "letters"),
            ("GET", "/v1/dead", self.list_dead, "listDead", "dead letters"),
            ("POST", "/v1/dead/retry", self.retry_dead, "retryDead", "dead letters"),
            ("DELETE", "/v1/dead", self.clear_dead, "clearDead", "dead letters"),
            ("GET", "/v1/lanes", self.list_lanes, "listLanes", "lanes"),
            ("GET", "/v1/chats", self.list_chats, "listChats", "chats"),
            ("PATCH", "/v1/chats/{bot_id}/{chat_id}", self.change_chat, "changeChat", "chats"),
        )

    async def list_letters(self, request: Request) -> Response:
        """Letters by state, bot, chat, user, type, time, words of text or error; the newest first."""
        caller = self._access.admit(request, "read")
        return await self._page(request, caller.narrow(read_filter(request)))

    async def list_dead(self, request: Request) -> Response:
        """Dead letters, the newest first, with the same filters."""
        caller = self._access.admit(request, "read")
        wanted = msgspec.structs.replace(read_filter(request), state=State.FAILED)
        return await self._page(request, caller.narrow(wanted))

    async def _page(self, request: Request, wanted: LetterFilter) -> Response:
        limit = read_limit(request)
        views = await self._desk.find(wanted, before=read_cursor(request), limit=limit)
        cursor = str(views[-1].id) if len(views) == limit else None
        return json_response({"letters": [letter_view(view) for view in views], "next_cursor": cursor})

    async def cancel(self, request: Request) -> Response:
        """Take a letter back. 409 if it is being sent right now, or has ended."""
        letter_id = await self._own(request)
        return json_response(letter_view(await self._desk.cancel(letter_id)))

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

    async def retry_dead(self, request: Request) -> Response:
        """Send all dead letters of a filter again."""
        caller = self._access.admit(request, "send")
        text = await read_body(request, bytes_max=_SMALL_BODY)
        body = decode(FilterBody, text) if text.strip() else FilterBody()
        given = {name: str(value) for name, value in msgspec.structs.asdict(body).items() if value is not None}
        return json_response({"retried": await self._desk.retry_dead(caller.narrow(filter_of(given)))}, 202)

    async def clear_dead(self, request: Request) -> Response:
        """Clear away all dead letters of a filter; a line of each stays in the message log."""
        caller = self._access.admit(request, "send")
        wanted = read_filter(request, also=())
        if wanted.state not in (None, State.FAILED):
            raise BadInput(code="bad_state", detail="Only dead letters can be cleared.")
        wanted = msgspec.structs.replace(wanted, state=None)
        return json_response({"cleared": await self._desk.clear_dead(caller.narrow(wanted))})

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


def _bot_id(request: Request) -> int | None:
    text = request.query_params.get("bot_id")
    return None if text is None else parse_id(text, "bot_id")
