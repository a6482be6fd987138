"""Pages: broadcasts. Writing one, trying it, starting it; how far it is; its ledger."""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.archive.export import ExportFormat
from peik.archive.pages import download, form_of
from peik.broadcasts.api import BroadcastAnswer, ledger_csv, ledger_head, ledger_jsonl
from peik.broadcasts.audience import Audience, ContactAudience, ListAudience, listed, read_csv
from peik.broadcasts.model import Canary, Paid, Phase, RecipientState, read_recipient_state, steps_from
from peik.broadcasts.service import BroadcastRequest
from peik.core.call import chat_key
from peik.core.documents import ContactFilter
from peik.core.quiet import Quiet
from peik.errors import BadInput, NotFound, TooLarge
from peik.web.dashboard.board import LIVE, Board, Page, Visitor
from peik.web.dashboard.fields import PAGE, Fields, bot_seen, bots_seen

# A broadcast as somebody fills it in on a page: the call, who gets it, and how it goes out.


CSV_BYTES_MAX = 32 * 1024 * 1024
LIST_CHARS_MAX = 1024 * 1024
TEXT_CHARS_MAX = 20_000
PARAMS_CHARS_MAX = 64 * 1024
PARSE_MODES = ("HTML", "MarkdownV2")
CHAT_TYPES = ("private", "group", "supergroup", "channel")
_BETWEEN = re.compile(r"[\s,;]+")


async def request_of(fields: Fields, *, bot_id: int, by: str) -> BroadcastRequest:
    """Raises BadInput with what must be fixed."""
    method, params = _call(fields)
    return BroadcastRequest(
        bot_id=bot_id,
        name=fields.text("name"),
        method=method,
        params=params,
        audience=await _audience(fields),
        canary=_canary(fields),
        quiet=_quiet(fields),
        paid=_paid(fields),
        key=fields.text("key"),
        created_by=by,
    )


def _call(fields: Fields) -> tuple[str, dict[str, Any]]:
    """A text, or any other method with its parameters as JSON."""
    text, method = fields.text("text", chars_max=TEXT_CHARS_MAX), fields.text("method")
    if method is None:
        if text is None:
            raise BadInput(code="no_text", detail="Say what to send: a text, or a method with its parameters.")
        mode = fields.text("parse_mode")
        return "sendMessage", {"text": text} if mode is None else {"text": text, "parse_mode": mode}
    if text is not None:
        raise BadInput(code="text_and_method", detail="Give a text, or a method with its parameters, not both.")
    try:
        params = msgspec.json.decode(
            fields.text("params", chars_max=PARAMS_CHARS_MAX) or "{}", type=dict[str, msgspec.Raw]
        )
    except msgspec.DecodeError:
        raise BadInput(code="bad_params", detail="The parameters must be a JSON object.") from None
    return method, {name: msgspec.json.decode(value) for name, value in params.items()}


async def _audience(fields: Fields) -> Audience:
    match fields.text("audience"):
        case "list":
            words = _BETWEEN.split(fields.need("chats", chars_max=LIST_CHARS_MAX))
            return await asyncio.to_thread(listed, [word for word in words if word])
        case "csv":
            return await _from_csv(fields)
        case "contacts":
            return ContactAudience(wanted=_contacts(fields))
    raise BadInput(code="no_audience", detail="Say who gets it: a list, a CSV file, or known chats.")


async def _from_csv(fields: Fields) -> ListAudience:
    file = fields.file("csv")
    if file is None:
        raise BadInput(code="no_csv", detail="Choose a CSV file with a column chat_id.")
    raw = await file.read(CSV_BYTES_MAX + 1)
    if len(raw) > CSV_BYTES_MAX:
        raise TooLarge(code="csv_too_large", detail=f"A CSV has at most {CSV_BYTES_MAX // 1024 // 1024} MB.")
    return await asyncio.to_thread(read_csv, raw)  # a million rows take a while, and others are to be served


def _contacts(fields: Fields) -> ContactFilter:
    languages = [word for word in _BETWEEN.split(fields.text("languages") or "") if word]
    return ContactFilter(
        types=frozenset(fields.all("type")) or None,
        languages=frozenset(languages) or None,
        seen_since_ms=fields.instant_ms("seen_since"),
        seen_before_ms=fields.instant_ms("seen_before"),
        campaign=fields.text("campaign"),
        is_gone=False,
    )


def _canary(fields: Fields) -> Canary | None:
    percent, count = fields.decimal("canary_percent"), fields.id("canary_count")
    if percent is None and count is None:
        return None
    limit = fields.decimal("canary_limit")
    return Canary(count=count, percent=percent, limit=0.2 if limit is None else limit / 100)


def _quiet(fields: Fields) -> Quiet | None:
    start, end, zone = fields.text("quiet_start"), fields.text("quiet_end"), fields.text("quiet_tz")
    if start is None and end is None:
        return None
    if start is None or end is None:
        raise BadInput(code="bad_quiet", detail="Quiet hours have a beginning and an end.")
    return Quiet(start=start, end=end, tz=zone or "UTC")


def _paid(fields: Fields) -> Paid | None:
    stars_max = fields.decimal("stars_max")
    if not fields.is_on("paid"):
        return None
    if stars_max is None:
        raise BadInput(code="bad_paid", detail="A paid broadcast needs a bound in Stars that it must not pass.")
    return Paid(stars_max=stars_max)


if TYPE_CHECKING:
    from peik.broadcasts.model import Broadcast
    from peik.broadcasts.service import BroadcastService, Line

Steps = Callable[[str], Awaitable["Broadcast"]]


class BroadcastPages:
    def __init__(self, board: Board, service: "BroadcastService") -> None:
        self._board = board
        self._service = service

    def table(self) -> tuple[Page, ...]:
        one = "/admin/broadcasts/{broadcast_id}"
        return (
            ("GET", "/admin/broadcasts", self.show_all, Role.VIEWER, ""),
            ("GET", "/admin/broadcasts/new", self.show_form, Role.OPERATOR, ""),
            ("POST", "/admin/broadcasts", self.create, Role.OPERATOR, "broadcasts.create"),
            ("GET", one, self.show, Role.VIEWER, ""),
            ("GET", f"{one}/ledger", self.export, Role.VIEWER, ""),
            ("POST", f"{one}/preview", self.preview, Role.OPERATOR, "broadcasts.preview"),
            ("POST", f"{one}/start", self.start, Role.OPERATOR, "broadcasts.start"),
            ("POST", f"{one}/pause", self.pause, Role.OPERATOR, "broadcasts.pause"),
            ("POST", f"{one}/resume", self.resume, Role.OPERATOR, "broadcasts.resume"),
            ("POST", f"{one}/cancel", self.cancel, Role.OPERATOR, "broadcasts.cancel"),
            ("POST", f"{one}/recall", self.recall, Role.OPERATOR, "broadcasts.recall"),
            ("POST", f"{one}/delete", self.delete, Role.OPERATOR, "broadcasts.delete"),
        )

    # ---- looking ----

    async def show_all(self, request: Request, visitor: Visitor) -> Response:
        fields = Fields.asked(request)
        found = await self._service.find(bot_ids=visitor.bot_ids, before=fields.text("cursor"), limit=PAGE)
        return self._board.page(
            request,
            visitor,
            "broadcasts.html",
            rows=[(one, self._view(one)) for one in found],
            url="/admin/broadcasts",
            cursor=found[-1].id if len(found) == PAGE else None,
        )

    async def show_form(self, request: Request, visitor: Visitor) -> Response:
        return self._board.page(
            request,
            visitor,
            "broadcast_new.html",
            bots=[bot for bot in bots_seen(self._board.peik.outbox.service, visitor) if not bot.token.is_account],
            parse_modes=PARSE_MODES,
            chat_types=CHAT_TYPES,
            key=secrets.token_hex(16),  # a form that is sent twice makes one broadcast
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        """With `?estimate=1` also what it would take. A large audience is counted for that, so a page that only asks whether
        something has changed gets none: there the first one stays."""
        one, fields = await self._seen(request, visitor), Fields.asked(request)
        state = _state(fields.text("state"))
        recipients, following = await self._service.recipients(
            one.id, state=state, after=fields.id("cursor"), limit=PAGE
        )
        path = f"/admin/broadcasts/{one.id}"
        has_estimate = fields.is_on("estimate") and LIVE not in request.headers
        return self._board.page(
            request,
            visitor,
            "broadcast.html",
            one=one,
            view=self._view(one),
            steps=[str(step) for step in steps_from(one.phase)],
            estimate=await self._service.estimate(one.id) if has_estimate else None,
            recipients=recipients,
            states=tuple(RecipientState),
            state_asked=state,
            may_delete=one.phase is Phase.DRAFT or one.phase.is_final,
            url=fields.address(path, "state"),
            export_url=fields.address(f"{path}/ledger", "state"),
            cursor=None if following is None else str(following),
        )

    async def export(self, request: Request, visitor: Visitor) -> Response:
        """The whole ledger, or what of it is in one state."""
        one, fields = await self._seen(request, visitor), Fields.asked(request)
        form = form_of(fields)
        lines = self._service.ledger(one.id, state=_state(fields.text("state")))
        return await download(_written(lines, form), form=form, name=f"broadcast-{one.id}")

    # ---- changing ----

    async def create(self, request: Request, visitor: Visitor) -> Response:
        fields = await Fields.sent(request)
        bot = bot_seen(self._board.peik.outbox.service, visitor, fields.need("bot_id"))
        try:
            wanted = await request_of(fields, bot_id=bot.bot_id, by=visitor.name)
        finally:
            await request.close()  # its file
        one = await self._service.create(wanted)
        self._board.note(request, target=one.id)
        return self._board.back(
            request, visitor, f"/admin/broadcasts/{one.id}?estimate=1", said="broadcasts_created", id=one.id
        )

    async def preview(self, request: Request, visitor: Visitor) -> Response:
        one = await self._seen(request, visitor)
        chat = (await Fields.sent(request)).need("chat_id")
        letter_id = await self._service.preview(one.id, chat_key(chat))
        path = f"/admin/broadcasts/{one.id}"
        return self._board.back(request, visitor, path, said="broadcasts_previewed", letter=letter_id, chat=chat)

    async def start(self, request: Request, visitor: Visitor) -> Response:
        """Now, or at a time."""
        one = await self._seen(request, visitor)
        at_ms = (await Fields.sent(request)).instant_ms("start_at")
        return self._back(request, visitor, await self._service.start(one.id, at_ms=at_ms), "broadcasts_moved_start")

    async def pause(self, request: Request, visitor: Visitor) -> Response:
        return await self._step(request, visitor, self._service.pause, "broadcasts_moved_pause")

    async def resume(self, request: Request, visitor: Visitor) -> Response:
        return await self._step(request, visitor, self._service.resume, "broadcasts_moved_resume")

    async def cancel(self, request: Request, visitor: Visitor) -> Response:
        return await self._step(request, visitor, self._service.cancel, "broadcasts_moved_cancel")

    async def recall(self, request: Request, visitor: Visitor) -> Response:
        return await self._step(request, visitor, self._service.recall, "broadcasts_moved_recall")

    async def delete(self, request: Request, visitor: Visitor) -> Response:
        one = await self._seen(request, visitor)
        await self._service.delete(one.id)
        return self._board.back(request, visitor, "/admin/broadcasts", said="broadcasts_deleted", id=one.id)

    async def _step(self, request: Request, visitor: Visitor, step: Steps, said: str) -> Response:
        one = await self._seen(request, visitor)
        return self._back(request, visitor, await step(one.id), said)

    # ---- ----

    async def _seen(self, request: Request, visitor: Visitor) -> "Broadcast":
        """Raises NotFound for another bot's, in the words for one that is not there."""
        broadcast_id = request.path_params["broadcast_id"]
        one = await self._service.get(broadcast_id)
        if not visitor.key.serves(one.bot_id):
            raise NotFound(code="unknown_broadcast", detail=f"There is no broadcast {broadcast_id} here (any more).")
        return one

    def _view(self, one: "Broadcast") -> BroadcastAnswer:
        return BroadcastAnswer.of(
            one, per_s=self._service.letters.per_s(one.bot_id), now_ms=self._board.peik.clock.wall_ms()
        )

    def _back(self, request: Request, visitor: Visitor, one: "Broadcast", said: str) -> Response:
        return self._board.back(request, visitor, f"/admin/broadcasts/{one.id}", said=said, id=one.id)


def _state(text: str | None) -> RecipientState | None:
    return None if text is None else read_recipient_state(text)


async def _written(pages: AsyncIterator[list["Line"]], form: ExportFormat) -> AsyncGenerator[bytes, None]:
    if form is ExportFormat.CSV:
        yield ledger_head()
    async for page in pages:
        yield ledger_csv(page) if form is ExportFormat.CSV else ledger_jsonl(page)
