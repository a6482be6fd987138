"""Pages: broadcasts. Writing one, trying it, starting it; how far it is; its ledger."""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.archive.export import ExportFormat
from peik.archive.pages import download, form_of
from peik.broadcasts.api import BroadcastAnswer, ledger_csv, ledger_head, ledger_jsonl
from peik.broadcasts.audience import Audience, ContactAudience, ListAudience, listed, read_csv
from peik.broadcasts.model import (
    CONFIRMED_ABOVE,
    Canary,
    Paid,
    Phase,
    PhaseStep,
    RecipientState,
    read_recipient_state,
    steps_from,
)
from peik.broadcasts.service import BroadcastRequest
from peik.core.call import chat_key
from peik.core.documents import ContactFilter
from peik.core.quiet import Quiet
from peik.errors import BadInput, Conflict, NotFound, Problem, TooLarge
from peik.web.dashboard.board import LIVE, Board, Page, Visitor
from peik.web.dashboard.fields import PAGE, Fields, Typed, bot_seen, bots_seen, refilled
from peik.web.dashboard.render import moment_text, pretty, zone_named
from peik.web.parse import CHAT_PATTERN

# A broadcast as somebody fills it in on a page: the call, who gets it, and how it goes out.


CSV_BYTES_MAX = 32 * 1024 * 1024
LIST_CHARS_MAX = 1024 * 1024
TEXT_CHARS_MAX = 20_000
PARAMS_CHARS_MAX = 64 * 1024
PARSE_MODES = ("HTML", "MarkdownV2")
CHAT_TYPES = ("private", "group", "supergroup", "channel")
_UNSENT = (Phase.DRAFT, Phase.SCHEDULED)
FIRST_SHOWN = 3  # recipients, before a start
_BETWEEN = re.compile(r"[\s,;]+")


async def request_of(fields: Fields, *, bot_id: int, by: str, same: Audience | None = None) -> BroadcastRequest:
    """`same` is the audience of the broadcast that this one was made from. Raises BadInput with what is to be mended: parts that
    contradict each other are never guessed about."""
    method, params = _call(fields)
    return BroadcastRequest(
        bot_id=bot_id,
        name=fields.text("name"),
        method=method,
        params=params,
        audience=await _audience(fields, same),
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
        if fields.text("params", chars_max=PARAMS_CHARS_MAX) is not None:
            raise BadInput(
                code="params_alone",
                detail="There are parameters without a method: name it, or empty them.",
                field="method",
            )
        mode = fields.text("parse_mode")
        return "sendMessage", {"text": text} if mode is None else {"text": text, "parse_mode": mode}
    if text is not None:
        raise BadInput(code="text_and_method", detail="Give a text, or a method with its parameters, not both.")
    if fields.text("parse_mode") is not None:
        raise BadInput(
            code="parse_mode_apart",
            detail="The formatting is for the text above; write parse_mode into the parameters.",
            field="parse_mode",
        )
    try:
        params = msgspec.json.decode(
            fields.text("params", chars_max=PARAMS_CHARS_MAX) or "{}", type=dict[str, msgspec.Raw]
        )
    except msgspec.DecodeError:
        raise BadInput(code="bad_params", detail="The parameters must be a JSON object.") from None
    return method, {name: msgspec.json.decode(value) for name, value in params.items()}


# What is filled in of each audience: the fields that say something only with it. The boxes of kinds of chats have a usual
# value, and say nothing by themselves.
_PARTS = {
    "list": ("chats",),
    "csv": ("csv",),
    "contacts": ("languages", "seen_since", "seen_before", "campaign"),
}


async def _audience(fields: Fields, same: Audience | None) -> Audience:
    chosen = fields.text("audience")
    for way, names in _PARTS.items():
        given = [name for name in names if _is_given(fields, name)]
        if given and way != chosen:
            raise BadInput(
                code=f"not_{way}",
                detail=f"This is filled in, and not chosen as who gets it. Choose it above, or empty {given[0]}.",
                field=given[0],
            )
    match chosen:
        case "list":
            words = _BETWEEN.split(fields.need("chats", chars_max=LIST_CHARS_MAX))
            return await asyncio.to_thread(listed, [word for word in words if word])
        case "csv":
            return await _from_csv(fields)
        case "contacts":
            return ContactAudience(wanted=_contacts(fields))
        case "same" if same is not None:
            return same
    raise BadInput(code="no_audience", detail="Say who gets it: a list, a CSV file, or known chats.")


def _is_given(fields: Fields, name: str) -> bool:
    return fields.file(name) is not None if name == "csv" else fields.text(name, chars_max=LIST_CHARS_MAX) is not None


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
    limit = fields.decimal("canary_limit")
    if percent is None and count is None:
        if limit is not None:
            raise BadInput(
                code="limit_alone", detail="A share at which it stops needs a first slice.", field="canary_percent"
            )
        return None
    if percent is not None and count is not None:
        raise BadInput(code="two_slices", detail="Give a share or a number, not both.", field="canary_count")
    return Canary(count=count, percent=percent, limit=0.2 if limit is None else limit / 100)


def _quiet(fields: Fields) -> Quiet | None:
    start, end, zone = fields.text("quiet_start"), fields.text("quiet_end"), fields.text("quiet_tz")
    if start is None and end is None and zone is None:
        return None
    if start is None or end is None:
        name = "quiet_start" if start is None else "quiet_end"
        raise BadInput(code="half_quiet", detail="Quiet hours have a beginning and an end.", field=name)
    return Quiet(start=start, end=end, tz=zone or "UTC")


def _paid(fields: Fields) -> Paid | None:
    stars_max = fields.decimal("stars_max")
    if not fields.is_on("paid"):
        if stars_max is not None:
            raise BadInput(
                code="stars_alone",
                detail="A bound in Stars is for a paid broadcast: tick it, or empty this.",
                field="paid",
            )
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
            ("GET", f"{one}/edit", self.show_edit, Role.OPERATOR, ""),
            ("POST", f"{one}/edit", self.edit, Role.OPERATOR, "broadcasts.edit"),
            ("GET", f"{one}/start", self.show_start, Role.OPERATOR, ""),
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
        """Blank, or `?like=` another broadcast, whose recipients can be taken too."""
        like = Fields.asked(request).text("like")
        return self._form(request, visitor, None if like is None else await self._of(like, visitor), is_edited=False)

    async def show_edit(self, request: Request, visitor: Visitor) -> Response:
        one = await self._seen(request, visitor)
        if one.phase is not Phase.DRAFT:
            raise Conflict(code="not_a_draft", detail="Only a draft is edited. Duplicate this one.")
        return self._form(request, visitor, one, is_edited=True)

    def _form(self, request: Request, visitor: Visitor, one: "Broadcast | None", *, is_edited: bool) -> Response:
        action = f"/admin/broadcasts/{one.id}/edit" if one is not None and is_edited else "/admin/broadcasts"
        response = self._board.page(
            request,
            visitor,
            "broadcast_new.html",
            bots=[bot for bot in bots_seen(self._board.peik.outbox.service, visitor) if not bot.token.is_account],
            parse_modes=PARSE_MODES,
            chat_types=CHAT_TYPES,
            key=secrets.token_hex(16),  # a form that is sent twice makes one broadcast
            one=one,
            action=action,
            is_edited=is_edited,
        )
        if one is not None:
            filled = refilled(bytes(response.body).decode(), Typed(action, tuple(_written_fields(one, visitor))))
            response.body = filled.page.encode()
            response.headers["content-length"] = str(len(response.body))
        return response

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
        like = fields.text("like")
        first = await self._service.first(one.id, FIRST_SHOWN) if one.phase in _UNSENT else []
        shown = first[0] if first else None
        problem: Problem | None = None
        if like is not None:
            try:
                shown = await self._service.like(one.id, chat_key(like))
            except BadInput as error:
                problem = error
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
            may_edit=one.phase is Phase.DRAFT,
            first=first,
            like=like,
            shown=shown,
            message=await self._service.message_for(one.id, shown),
            problem=problem,
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
        like, same = fields.text("like"), None
        if like is not None and fields.text("audience") == "same":
            same = await self._service.audience_of((await self._of(like, visitor)).id)
        one = await self._service.create(await request_of(fields, bot_id=bot.bot_id, by=visitor.name, same=same))
        self._board.note(request, target=one.id)
        return self._board.back(
            request, visitor, f"/admin/broadcasts/{one.id}?estimate=1", said="broadcasts_created", id=one.id
        )

    async def edit(self, request: Request, visitor: Visitor) -> Response:
        one, fields = await self._seen(request, visitor), await Fields.sent(request)
        fields.check_seen(one.moved_at_ms)
        bot = bot_seen(self._board.peik.outbox.service, visitor, fields.need("bot_id"))
        has_same_list = one.wanted is None and fields.text("audience") == "same"
        same = ListAudience(recipients=(), columns=one.columns) if has_same_list else None
        wanted = await request_of(fields, bot_id=bot.bot_id, by=visitor.name, same=same)
        new = await self._service.edit(one.id, wanted, has_same_list=has_same_list)
        return self._board.back(
            request, visitor, f"/admin/broadcasts/{new.id}?estimate=1", said="broadcasts_edited", id=new.id
        )

    async def preview(self, request: Request, visitor: Visitor) -> Response:
        one = await self._seen(request, visitor)
        fields = await Fields.sent(request)
        chat, like = fields.need("chat_id"), fields.text("like")
        if re.fullmatch(CHAT_PATTERN, chat) is None:
            raise BadInput(code="bad_chat_id", detail="A chat is named by its number, or by @name.", field="chat_id")
        letter_id = await self._service.preview(one.id, chat_key(chat), like=None if like is None else chat_key(like))
        path = f"/admin/broadcasts/{one.id}"
        return self._board.back(request, visitor, path, said="broadcasts_previewed", letter=letter_id, chat=chat)

    async def show_start(self, request: Request, visitor: Visitor) -> Response:
        """What is about to happen: which bot writes to whom, to how many, and who the first are."""
        one = await self._seen(request, visitor)
        if PhaseStep.START not in steps_from(one.phase):
            raise Conflict(code="started", detail="This broadcast has begun.")
        first = await self._service.first(one.id, FIRST_SHOWN)
        return self._board.page(
            request,
            visitor,
            "broadcast_start.html",
            one=one,
            bot=self._board.peik.outbox.service.bot(one.bot_id),
            estimate=await self._service.estimate(one.id),
            first=first,
            message=await self._service.message_for(one.id, first[0] if first else None),
            typed_above=CONFIRMED_ABOVE,
        )

    async def start(self, request: Request, visitor: Visitor) -> Response:
        """Now, or at a time; only to those that were shown before."""
        one, fields = await self._seen(request, visitor), await Fields.sent(request)
        fields.check_seen(one.moved_at_ms)
        shown, at_ms = fields.id("shown"), fields.instant_ms("start_at")
        if shown is None:
            raise BadInput(code="not_shown", detail="Look first who gets it: open the page of its start.")
        if shown > CONFIRMED_ABOVE and fields.id("number") != shown:
            raise BadInput(
                code="number_not_typed", detail=f"Type the number of recipients, {shown}, to start it.", field="number"
            )
        started = await self._service.start(one.id, at_ms=at_ms, recipients=shown)
        said = "broadcasts_put_off" if started.phase is Phase.SCHEDULED else "broadcasts_moved_start"
        return self._back(request, visitor, started, said)

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
        return await self._of(request.path_params["broadcast_id"], visitor)

    async def _of(self, broadcast_id: str, visitor: Visitor) -> "Broadcast":
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


def _written_fields(one: "Broadcast", visitor: Visitor) -> Iterator[tuple[str, str]]:
    """A broadcast as the fields of its form."""
    params = msgspec.json.decode(one.params, type=dict[str, Any])
    yield "bot_id", str(one.bot_id)
    yield "name", one.name or ""
    if one.method == "sendMessage" and params.keys() <= {"text", "parse_mode"}:
        yield "text", params["text"]
        yield "parse_mode", params.get("parse_mode", "")
    else:
        yield "method", one.method
        yield "params", pretty(one.params)
    if one.wanted is None:
        yield "audience", "same"
    else:
        yield "audience", "contacts"
        yield from (("type", kind) for kind in sorted(one.wanted.types or ()))
        yield "languages", " ".join(sorted(one.wanted.languages or ()))
        yield "campaign", one.wanted.campaign or ""
        for name, at_ms in (("seen_since", one.wanted.seen_since_ms), ("seen_before", one.wanted.seen_before_ms)):
            if at_ms is not None:
                yield name, moment_text(at_ms, zone_named(visitor.zone) or UTC, visitor.language).replace(" ", "T")[:16]
    if one.canary is not None:
        yield "canary_percent", "" if one.canary.percent is None else f"{one.canary.percent:g}"
        yield "canary_count", "" if one.canary.count is None else str(one.canary.count)
        yield "canary_limit", f"{one.canary.limit * 100:g}"
    if one.quiet is not None:
        yield from (("quiet_start", one.quiet.start), ("quiet_end", one.quiet.end), ("quiet_tz", one.quiet.tz))
    if one.paid is not None:
        yield from (("paid", "1"), ("stars_max", f"{one.paid.stars_max:g}"))


def _state(text: str | None) -> RecipientState | None:
    return None if text is None else read_recipient_state(text)


async def _written(pages: AsyncIterator[list["Line"]], form: ExportFormat) -> AsyncGenerator[bytes, None]:
    if form is ExportFormat.CSV:
        yield ledger_head()
    async for page in pages:
        yield ledger_csv(page) if form is ExportFormat.CSV else ledger_jsonl(page)
