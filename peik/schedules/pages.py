"""Pages: recurring work. What is due when, what became of it; making and editing a schedule, looked at before it is saved."""

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.errors import BadInput, NotFound
from peik.schedules.api import NEXT_SHOWN, is_his
from peik.schedules.model import (
    NAME_PATTERN,
    BroadcastWork,
    JobWork,
    LetterWork,
    MissedRuns,
    OverlapPolicy,
    Schedule,
    ScheduleRun,
    ScheduleState,
    Terms,
)
from peik.schedules.service import CHAT_TYPES
from peik.web.dashboard.board import Board, Page, Visitor, must_see_all
from peik.web.dashboard.fields import PAGE, Fields, Typed, bot_seen, bots_seen, refilled, typed_in
from peik.web.dashboard.render import moment_text, pretty, zone_named
from peik.web.parse import instant_ms

LIST = "/admin/schedules"
NEW = LIST + "/~new"  # which is no name of a schedule
TEXT_CHARS_MAX = 20_000
PARAMS_CHARS_MAX = 64 * 1024
CHATS_CHARS_MAX = 64 * 1024
KINDS = ("letter", "broadcast", "job")
# What says something with some kinds only. Filled in beside another one, it is refused: nobody is guessed about.
_FIT = {
    "chat_id": ("letter",),
    "expires_in": ("letter",),
    "text": ("letter", "broadcast"),
    "parse_mode": ("letter", "broadcast"),
    "method": ("letter", "broadcast"),
    "chats": ("broadcast",),
    "languages": ("broadcast",),
    "campaign": ("broadcast",),
    "seen_within_days": ("broadcast",),
    "job_kind": ("job",),
    "user": ("job",),
}
_BETWEEN = re.compile(r"[\s,;]+")


class SchedulePages:
    """A schedule of a letter or a broadcast is its bot's; one of a job is for those who see every bot."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._service = board.peik.schedules.service

    def table(self) -> tuple[Page, ...]:
        one = LIST + "/{name}"
        return (
            ("GET", LIST, self.show_all, Role.VIEWER, ""),
            ("GET", NEW, self.show_form, Role.OPERATOR, ""),
            ("POST", NEW, self.create, Role.OPERATOR, "schedules.create"),
            ("GET", one, self.show, Role.VIEWER, ""),
            ("GET", f"{one}/edit", self.show_edit, Role.OPERATOR, ""),
            ("POST", f"{one}/edit", self.edit, Role.OPERATOR, "schedules.edit"),
            ("POST", f"{one}/run", self.run, Role.OPERATOR, "schedules.run"),
            ("POST", f"{one}/pause", self.pause, Role.OPERATOR, "schedules.pause"),
            ("POST", f"{one}/resume", self.resume, Role.OPERATOR, "schedules.resume"),
            ("POST", f"{one}/delete", self.delete, Role.OPERATOR, "schedules.delete"),
        )

    # ---- looking ----

    async def show_all(self, request: Request, visitor: Visitor) -> Response:
        after = Fields.asked(request).text("cursor")
        found, cursor = await self._service.find(bot_ids=visitor.bot_ids, after=after, limit=PAGE)
        return self._board.page(request, visitor, "schedules.html", rows=found, cursor=cursor)

    async def show(self, request: Request, visitor: Visitor) -> Response:
        one, fields = await self._seen(request, visitor), Fields.asked(request)
        before = fields.id("cursor")
        runs = await self._service.runs(one.name, before=None if before is None else f"{before:013d}", limit=PAGE)
        return self._board.page(
            request,
            visitor,
            "schedule.html",
            one=one,
            upcoming=self._service.upcoming(one, NEXT_SHOWN),
            runs=[(run, _made_url(run)) for run in runs],
            edits=await self._service.edits(one.name, limit=PAGE) if before is None else [],
            has_ended=one.state is ScheduleState.ENDED,
            cursor=f"{runs[-1].due_at_ms:013d}" if len(runs) == PAGE else None,
        )

    async def show_form(self, request: Request, visitor: Visitor) -> Response:
        return self._form(request, visitor, None)

    async def show_edit(self, request: Request, visitor: Visitor) -> Response:
        one = await self._seen(request, visitor)
        return _with(self._form(request, visitor, one), Typed(_edit_url(one), tuple(_written_fields(one, visitor))))

    def _form(
        self,
        request: Request,
        visitor: Visitor,
        one: Schedule | None,
        *,
        preview: list[int] | None = None,
        params: dict[str, Any] | None = None,
        digest: str = "",
    ) -> Response:
        seen = bots_seen(self._board.peik.outbox.service, visitor)
        return self._board.page(
            request,
            visitor,
            "schedule_form.html",
            one=one,
            action=NEW if one is None else _edit_url(one),
            bots=[bot for bot in seen if not bot.token.is_account],
            work_kinds=KINDS if visitor.bot_ids is None else KINDS[:2],
            job_kinds=sorted(self._board.peik.jobs.workers.kinds.by_name),
            chat_types=sorted(CHAT_TYPES),
            missed=tuple(MissedRuns),
            overlaps=tuple(OverlapPolicy),
            name_pattern=NAME_PATTERN.strip("^$").replace("-]", "\\-]"),  # browsers read it more strictly than Python
            preview=preview,
            params=params,
            digest=digest,
        )

    # ---- making and editing ----

    async def create(self, request: Request, visitor: Visitor) -> Response:
        fields = await Fields.sent(request)
        name = fields.need("name")
        if re.fullmatch(NAME_PATTERN, name) is None:
            raise BadInput(
                code="bad_name", detail="A schedule is named by 1 to 64 letters, digits and . _ - only.", field="name"
            )
        return await self._saved(request, visitor, name, None)

    async def edit(self, request: Request, visitor: Visitor) -> Response:
        one = await self._seen(request, visitor)
        (await Fields.sent(request)).check_seen(one.revision)
        return await self._saved(request, visitor, one.name, one)

    async def _saved(self, request: Request, visitor: Visitor, name: str, old: Schedule | None) -> Response:
        """What was shown is saved. Anything else is shown first."""
        fields = await Fields.sent(request)
        terms = self._terms(fields, visitor, None if old is None else old.terms)
        found = self._service.preview(name, terms)
        digest = _digest(name, found.terms)
        if fields.text("shown") != digest:
            self._board.note(request, target=name, detail="looked at, not saved")
            return await self._looked_at(request, visitor, old, found, digest)
        saved, _ = await self._service.put(name, terms, by=visitor.name, must_be_new=old is None)
        self._board.note(request, target=name)
        said = "schedules_saved" if old is None else "schedules_edited"
        return self._board.back(request, visitor, f"{LIST}/{saved.name}", said=said, name=saved.name)

    async def _looked_at(
        self, request: Request, visitor: Visitor, old: Schedule | None, found: Schedule, digest: str
    ) -> Response:
        due_ms = self._service.upcoming(found, NEXT_SHOWN)
        first = self._service.as_due(found, due_ms[0])
        response = self._form(
            request,
            visitor,
            old,
            preview=due_ms,
            digest=digest,
            params=first.params,
        )
        return _with(response, await typed_in(request.url.path, await request.form()))

    def _terms(self, fields: Fields, visitor: Visitor, old: Terms | None) -> Terms:
        """Raises BadInput, NotFound, Forbidden."""
        kind = fields.need("what")
        if kind not in KINDS:
            raise BadInput(code="bad_what", detail="It is a letter, a broadcast or a job.", field="what")
        for name, kinds in _FIT.items():
            if kind not in kinds and fields.text(name, chars_max=CHATS_CHARS_MAX) is not None:
                raise BadInput(
                    code="not_of_this_kind",
                    detail="This is filled in, and means nothing for what was chosen above. Empty it, or choose otherwise.",
                    field=name,
                )
        if kind != "broadcast" and fields.all("type"):
            raise BadInput(code="bad_types", detail="Kinds of chats are for a broadcast: untick them.", field="type")
        if kind == "job":
            must_see_all(visitor)
        service = self._board.peik.outbox.service
        zone = fields.text("tz") or visitor.zone
        return Terms(
            cron=fields.need("cron"),
            tz=zone,
            title=fields.text("title"),
            bot_id=0 if kind == "job" else bot_seen(service, visitor, fields.need("bot_id")).bot_id,
            letter=_letter(fields, old) if kind == "letter" else None,
            broadcast=_broadcast(fields, old) if kind == "broadcast" else None,
            job=_job(fields, old) if kind == "job" else None,
            missed=_one_of(MissedRuns, fields, "missed"),
            overlap=_one_of(OverlapPolicy, fields, "overlap"),
            starts_at_ms=instant_ms(fields.instant("starts_at"), "starts_at"),
            ends_at_ms=instant_ms(fields.instant("ends_at"), "ends_at"),
            runs_max=fields.id("runs_max"),
        )

    # ---- what is done to one ----

    async def run(self, request: Request, visitor: Visitor) -> Response:
        one = await self._seen(request, visitor)
        run = await self._service.run_now(one.name, by=visitor.name)
        return self._back(request, visitor, one, "schedules_run_now" if run.reason is None else "schedules_run_refused")

    async def pause(self, request: Request, visitor: Visitor) -> Response:
        one = await self._seen(request, visitor)
        return self._back(request, visitor, await self._service.pause(one.name), "schedules_paused")

    async def resume(self, request: Request, visitor: Visitor) -> Response:
        one = await self._seen(request, visitor)
        return self._back(request, visitor, await self._service.resume(one.name), "schedules_resumed")

    async def delete(self, request: Request, visitor: Visitor) -> Response:
        one = await self._seen(request, visitor)
        await self._service.delete(one.name)
        return self._board.back(request, visitor, LIST, said="schedules_deleted", name=one.name)

    def _back(self, request: Request, visitor: Visitor, one: Schedule, said: str) -> Response:
        return self._board.back(request, visitor, f"{LIST}/{one.name}", said=said, name=one.name)

    async def _seen(self, request: Request, visitor: Visitor) -> Schedule:
        """Raises NotFound for another bot's, in the words for one that is not there."""
        one = await self._service.get(request.path_params["name"])
        if not is_his(visitor.caller, one):
            raise NotFound(code="unknown_schedule", detail=f"There is no schedule {one.name!r} here (any more).")
        return one


# ---- what is made, as it is filled in; of an edited one stays what the form does not ask for ----


def _letter(fields: Fields, old: Terms | None) -> LetterWork:
    method, params = _call(fields)
    chat = fields.text("chat_id")
    if chat is not None and "chat_id" in params:
        raise BadInput(code="chat_twice", detail="The chat is named here and in the parameters.", field="chat_id")
    if chat is not None:
        params["chat_id"] = _chat(chat)
    hours = fields.decimal("expires_in")
    kept = old.letter if old is not None and old.letter is not None else LetterWork()
    expires_in_s = None if hours is None else round(hours * 3600)
    return replace(kept, method=method, params=params, expires_in_s=expires_in_s)


def _broadcast(fields: Fields, old: Terms | None) -> BroadcastWork:
    method, params = _call(fields)
    named = [_chat(word) for word in _words(fields.text("chats", chars_max=CHATS_CHARS_MAX))]
    types, languages, campaign = fields.all("type"), _words(fields.text("languages")), fields.text("campaign")
    days = fields.id("seen_within_days")
    if named and (types or languages or campaign or days is not None):
        raise BadInput(code="bad_audience", detail="Name chats, or say which known chats, not both.", field="chats")
    kept = old.broadcast if old is not None and old.broadcast is not None else BroadcastWork()
    return replace(
        kept,
        method=method,
        params=params,
        chat_ids=named or None,
        types=types or None,
        languages=languages or None,
        campaign=campaign,
        seen_within_days=days,
    )


def _job(fields: Fields, old: Terms | None) -> JobWork:
    kept = old.job if old is not None and old.job is not None else JobWork(kind="")
    return replace(kept, kind=fields.need("job_kind"), params=_params(fields), user=fields.text("user") or "")


def _call(fields: Fields) -> tuple[str, dict[str, Any]]:
    """A text, or any other method with its parameters as JSON."""
    text, method = fields.text("text", chars_max=TEXT_CHARS_MAX), fields.text("method")
    params, mode = _params(fields), fields.text("parse_mode")
    if method is None:
        if text is None:
            raise BadInput(code="no_text", detail="Say what to send: a text, or a method with its parameters.")
        if "text" in params:
            raise BadInput(code="text_twice", detail="The text is given here and in the parameters.", field="text")
        return "sendMessage", {**params, "text": text, **({} if mode is None else {"parse_mode": mode})}
    if text is not None:
        raise BadInput(code="text_and_method", detail="Give a text, or a method with its parameters, not both.")
    if mode is not None:
        raise BadInput(
            code="parse_mode_apart",
            detail="The formatting is for the text above; write parse_mode into the parameters.",
            field="parse_mode",
        )
    return method, params


def _params(fields: Fields) -> dict[str, Any]:
    try:
        return msgspec.json.decode(fields.text("params", chars_max=PARAMS_CHARS_MAX) or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        raise BadInput(code="bad_params", detail="The parameters must be a JSON object.", field="params") from None


def _chat(word: str) -> int | str:
    return int(word) if re.fullmatch(r"-?[0-9]{1,19}", word) else word


def _words(text: str | None) -> list[str]:
    return [word for word in _BETWEEN.split(text or "") if word]


def _one_of(kind: Any, fields: Fields, name: str) -> Any:
    try:
        return kind(fields.need(name))
    except ValueError:
        raise BadInput(code=f"bad_{name}", detail=f"{name} is one of {', '.join(kind)}.", field=name) from None


def _work(terms: Terms) -> LetterWork | BroadcastWork:
    work = terms.letter or terms.broadcast
    assert work is not None, "a job has no method"
    return work


def _digest(name: str, terms: Terms) -> str:
    """Of what is shown before it is saved."""
    return hashlib.blake2b(msgspec.json.encode((name, terms)), digest_size=12).hexdigest()


# ---- an edited one, as it would be filled in ----


def _written_fields(one: Schedule, visitor: Visitor) -> Iterator[tuple[str, str]]:
    terms = one.terms
    yield from (("what", terms.kind), ("cron", terms.cron), ("tz", terms.tz), ("title", terms.title or ""))
    yield from (("bot_id", str(terms.bot_id)), ("missed", terms.missed), ("overlap", terms.overlap))
    yield "runs_max", "" if terms.runs_max is None else str(terms.runs_max)
    for name, at_ms in (("starts_at", terms.starts_at_ms), ("ends_at", terms.ends_at_ms)):
        if at_ms is not None:
            yield name, moment_text(at_ms, zone_named(visitor.zone) or UTC, visitor.language).replace(" ", "T")[:16]
    if terms.job is not None:
        yield from (("job_kind", terms.job.kind), ("user", terms.job.user), ("params", _shown(terms.params)))
        return
    params, method = dict(terms.params), _work(terms).method
    if terms.letter is not None:
        yield "chat_id", str(params.pop("chat_id", ""))
        if terms.letter.expires_in_s is not None:
            yield "expires_in", f"{terms.letter.expires_in_s / 3600:g}"
    if method == "sendMessage":
        yield from (("text", str(params.pop("text", ""))), ("parse_mode", str(params.pop("parse_mode", ""))))
    else:
        yield "method", method
    yield "params", _shown(params)
    if terms.broadcast is not None:
        yield "chats", "\n".join(map(str, terms.broadcast.chat_ids or ()))
        yield from (("type", one_type) for one_type in terms.broadcast.types or ())
        yield "languages", ", ".join(terms.broadcast.languages or ())
        yield "campaign", terms.broadcast.campaign or ""
        days = terms.broadcast.seen_within_days
        yield "seen_within_days", "" if days is None else str(days)


def _shown(params: dict[str, Any]) -> str:
    return pretty(params) if params else ""


def _with(response: Response, typed: Typed) -> Response:
    """The page with its form filled in."""
    response.body = refilled(bytes(response.body).decode(), typed).page.encode()
    response.headers["content-length"] = str(len(response.body))
    return response


def _edit_url(one: Schedule) -> str:
    return f"{LIST}/{one.name}/edit"


def _made_url(run: ScheduleRun) -> str | None:
    """Where what it made can be seen."""
    if run.made is None:
        return None
    return f"/admin/{run.kind}s/{run.made}"
