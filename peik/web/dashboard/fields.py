"""What a form or an address says, field by field; and a refused form as it was filled in. A browser sends every field of a form:
what is empty was not given."""

import html.parser
import io
import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any
from urllib.parse import urlencode

import msgspec
from markupsafe import escape
from starlette.datastructures import FormData, ImmutableMultiDict, UploadFile
from starlette.requests import Request

from peik.errors import BadInput, Conflict, NotFound, Problem
from peik.outbox.service import OutboxService
from peik.outbox.store import BotRecord
from peik.web.dashboard.board import Visitor, must_see, zone_of_visit
from peik.web.dashboard.render import read_moment, zone_named
from peik.web.openapi import WORD_CHARS_MAX
from peik.web.parse import instant_ms, parse_id, whole_number

CHARS_MAX = 200
PAGE = 50  # rows of a list
_PARTED = re.compile(r"-?[0-9]{1,3}([,'\u066c\u00a0\u202f ][0-9]{3})+", re.ASCII)
_DIGITS = str.maketrans("۰۱۲۳۴۵۶۷۸۹٠١٢٣٤٥٦٧٨٩", "01234567890123456789")


class Fields:
    def __init__(self, given: ImmutableMultiDict[str, Any], zone: str) -> None:
        self._given = given
        self._zone = zone

    @classmethod
    async def sent(cls, request: Request) -> "Fields":
        """Of a form. The dashboard has read it already, and bounded it."""
        return cls(await request.form(), zone_of_visit(request))

    @classmethod
    def asked(cls, request: Request) -> "Fields":
        """Of an address."""
        return cls(request.query_params, zone_of_visit(request))

    def text(self, name: str, *, chars_max: int = CHARS_MAX) -> str | None:
        """Without the space around it. Raises BadInput if it is too long, or has what no database can be asked with."""
        value = self._given.get(name)
        # Browsers end lines by \r\n; Telegram, and whoever reads it there, by \n.
        text = value.replace("\r\n", "\n").strip() if isinstance(value, str) else ""
        return _checked(text, name, chars_max) or None

    def need(self, name: str, *, chars_max: int = CHARS_MAX) -> str:
        text = self.text(name, chars_max=chars_max)
        if text is None:
            raise BadInput(code="empty_field", detail=f"{name} is empty: fill it in.", field=name)
        return text

    def secret(self, name: str) -> str:
        """As it was typed, its spaces too."""
        value = self._given.get(name)
        if not isinstance(value, str) or not value:
            raise BadInput(code="empty_field", detail=f"{name} is empty: fill it in.", field=name)
        return _checked(value, name, 1024)

    def all(self, name: str) -> list[str]:
        """Of boxes that may be ticked together."""
        given = [value.strip() for value in self._given.getlist(name) if isinstance(value, str)]
        return [_checked(value, name, CHARS_MAX) for value in given if value]

    def is_on(self, name: str) -> bool:
        return bool(self._given.get(name))

    def id(self, name: str) -> int | None:
        """A number that is not negative."""
        text = self._whole_figures(name)
        return None if text is None else parse_id(text, name)

    def whole(self, name: str) -> int | None:
        """Also a negative one, as ids of groups are."""
        text = self._whole_figures(name)
        return None if text is None else whole_number(text, name)

    def figures(self, name: str) -> str | None:
        """In whichever digits a keyboard has: ۱۲ is 12."""
        text = self.text(name)
        return None if text is None else text.translate(_DIGITS)

    def _whole_figures(self, name: str) -> str | None:
        """Also as pages show them: 12,345."""
        text = self.figures(name)
        return text if text is None or not _PARTED.fullmatch(text) else re.sub(r"[^0-9-]", "", text)

    def decimal(self, name: str) -> float | None:
        text = self.figures(name)
        if text is None:
            return None
        try:
            number = float(text.replace(",", ".").replace("\u066b", "."))
        except ValueError:
            number = float("nan")
        if not abs(number) < float("inf"):
            raise BadInput(code=f"bad_{name}", detail=f"{name} must be a number.", field=name)
        return number

    def instant(self, name: str) -> str | None:
        """A moment as REST takes it. What is written without a zone is meant in that of the visitor."""
        text = self.text(name)
        if text is None:
            return None
        moment = zoned(text, self._zone)
        try:
            instant_ms(moment, name)
        except BadInput:
            raise BadInput(
                code="bad_moment", detail=f"{name} is no time. Write it like 2026-11-15 08:30.", field=name
            ) from None
        return moment

    def instant_ms(self, name: str) -> int | None:
        return instant_ms(self.instant(name), name)

    def check_seen(self, version: int) -> None:
        """A form that changes something says which version of it was shown. Raises Conflict if somebody else was faster."""
        seen = self.id(_SEEN)
        if seen is not None and seen != version:
            raise Conflict(
                code=_OVERTAKEN,
                detail="Somebody has changed it meanwhile. Look at the change in another tab; press again to keep what is here.",
            )

    def file(self, name: str) -> UploadFile | None:
        """A file that was chosen, now or before the form was refused."""
        value = self._given.get(name)
        return value if isinstance(value, UploadFile) and value.filename else kept_file(self._given, name)

    def address(self, path: str, *names: str) -> str:
        """The same list again: the path with those of these fields that were given."""
        given = {name: text for name in names if (text := self.text(name)) is not None}
        return f"{path}?{urlencode(given)}" if given else path


def _checked(text: str, name: str, chars_max: int) -> str:
    if len(text) > chars_max:
        raise BadInput(code="field_too_long", detail=f"{name} has at most {chars_max} characters.", field=name)
    if any(char == "\x00" or "\ud800" <= char <= "\udfff" for char in text):
        raise BadInput(code="bad_field", detail=f"{name} has a character that cannot be kept.", field=name)
    return text


# Filters of lists as visitors fill them in: an empty field says nothing, and a time without a zone is meant in the visitor's.


_MOMENTS = ("since", "until")


def asked(fields: Mapping[str, object], names: tuple[str, ...]) -> dict[str, str]:
    """Those of these fields that say something. Raises BadInput for one that cannot be asked for."""
    told = {}
    for name in names:
        value = fields.get(name)
        text = value.strip() if isinstance(value, str) else ""
        if len(text) > WORD_CHARS_MAX or any(char == "\x00" or "\ud800" <= char <= "\udfff" for char in text):
            raise BadInput(
                code="bad_filter", detail=f"{name} has at most {WORD_CHARS_MAX} characters, all of them plain."
            )
        if text:
            told[name] = text
    return told


def with_zones(told: Mapping[str, str], zone: str) -> dict[str, str]:
    """The same with times that name their zone, as REST takes them."""
    return {name: zoned(text, zone) if name in _MOMENTS else text for name, text in told.items()}


def zoned(text: str, zone: str) -> str:
    """A time as REST takes it, if it is one as people write it, by either calendar and in any digits."""
    plain = text.translate(_DIGITS)
    moment = read_moment(plain, zone_named(zone) or UTC)
    return plain if moment is None else moment.isoformat()


def query_of(told: Mapping[str, object], **more: object) -> str:
    """As the end of an address; "" if there is nothing to say."""
    said = {name: str(value) for name, value in {**told, **more}.items() if value not in (None, "")}
    return f"?{urlencode(said)}" if said else ""


def bots_seen(service: OutboxService, visitor: Visitor) -> list[BotRecord]:
    """Bots first, then accounts of people."""
    seen = (bot for bot in service.bots() if visitor.key.serves(bot.bot_id))
    return sorted(seen, key=lambda bot: (bot.token.is_account, bot.bot_id))


def bot_seen(service: OutboxService, visitor: Visitor, text: str) -> BotRecord:
    """Raises NotFound for a bot of others, in the words for one that is not there at all."""
    bot_id = parse_id(text, "bot_id")
    must_see(visitor, bot_id)
    return service.bot(bot_id)


def bot_asked(service: OutboxService, visitor: Visitor, text: str | None) -> BotRecord:
    """The bot that a field names, else the first that the visitor sees. Raises NotFound."""
    if text:
        return bot_seen(service, visitor, text)
    for bot in bots_seen(service, visitor):
        return bot
    raise NotFound(code="no_bot", detail="No bot is known yet: add one first.")


# A refused form comes back as it was filled in: the page that has it is rendered anew, and every field of the form gets what
# was typed, with the error beside the one that is to be mended. It works on the finished HTML, so that it holds for every form
# of the dashboard, and no template has to think of it. What is secret (passwords, tokens) is never sent back.


FROM = "from"  # the hidden field of every form that says which page it is on
CSRF = "csrf"
KEPT, KEPT_NAME, DROPPED = ".kept", ".kept_name", ".drop"  # behind the name of a field for a file
KEPT_BYTES_MAX = 256 * 1024
SECRETS = frozenset({"password", "token", "code", "proxy", "webhook_url"})  # never kept over a sign-in
_OURS = frozenset({CSRF, FROM})
_ONCE = frozenset({"key", "nonce"})  # hidden fields that make a repeat of the form the same request
_SEEN = "seen"  # the hidden field that says which version of something a form was made of
_OVERTAKEN = "changed_meanwhile"
_VOID = frozenset({"input", "br", "img", "hr", "meta", "link"})

# Where problems can be mended that are raised below the pages, which know nothing of fields: of these the first that was
# filled in, or else that the form has.
_MENDED_IN: dict[str, tuple[str, ...]] = {
    "bad_canary": ("canary_percent", "canary_count", "canary_limit"),
    "bad_quiet": ("quiet_start", "quiet_end"),
    "unknown_zone": ("quiet_tz", "tz"),
    "bad_paid": ("stars_max",),
    "no_recipients": ("chats", "csv"),
    "too_many_recipients": ("chats", "csv"),
    "bad_csv": ("csv",),
    "csv_too_large": ("csv",),
    "no_csv": ("csv",),
    "bad_chat_id": ("chats", "chat_id"),
    "no_audience": ("audience",),
    "no_text": ("text",),
    "text_empty": ("text", "params"),
    "text_too_long": ("text", "params", "message"),
    "caption_too_long": ("params",),
    "text_and_method": ("method",),
    "bad_params": ("params", "chat_id", "text"),
    "params_too_large": ("params", "text"),
    "not_a_send": ("method",),
    "not_queueable": ("method",),
    "bad_method": ("method",),
    "unknown_placeholder": ("text", "params"),
    "unknown_bot": ("bot_id", "token"),
    "wrong_bot": ("token",),
    "person_exists": ("name",),
    "bad_person": ("name",),
    "no_scope": ("scope",),
    "unusable_webhook": ("webhook_url",),
    "unknown_user": ("user_id",),
    "user_not_linked": ("user_id",),
    "which_recipient": ("user_id",),
    "empty_notification": ("message", "title"),
    "bad_template": ("text",),
    "unknown_template": ("type",),
    "bad_expires_in": ("minutes",),
    "code_expired": ("code",),
    "no_phone": ("phone",),
    "no_file": ("file",),
    "unfit_session": ("file",),
    "session_exists": ("session_id",),
    "not_confirmed": ("typed",),
    "other_recipients": ("number",),
    "bad_time": ("send_at", "start_at", "expires_at", "until"),
    "already_expired": ("send_at", "expires_at"),
}


class Typed(msgspec.Struct, frozen=True):
    """What was typed into a form, in its order."""

    action: str
    pairs: tuple[tuple[str, str], ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.pairs)

    def all(self, name: str) -> list[str]:
        return [value for one, value in self.pairs if one == name]

    def without_secrets(self) -> "Typed":
        return Typed(self.action, tuple(pair for pair in self.pairs if pair[0] not in SECRETS | {CSRF, "key"}))


async def typed_in(action: str, form: FormData) -> Typed:
    """Files that are text and not too long are kept, too: a browser fills in no file by itself."""
    pairs: list[tuple[str, str]] = []
    for name, value in form.multi_items():
        if isinstance(value, str):
            pairs.append((name, value))
        elif value.filename and (text := await _text_of(value)) is not None:
            pairs += [(name + KEPT_NAME, value.filename), (name + KEPT, text)]
    # Another file, or a box that was ticked, takes the place of a file that was kept before.
    again = [pair for pair in pairs if not _is_kept(pair[0])]
    for name in {name.removesuffix(KEPT) for name, _ in pairs if name.endswith(KEPT)}:
        if not any(pair[0] == name + DROPPED for pair in pairs):
            told = dict(pairs)  # the last one: what was chosen now stands behind what was kept
            again += [(name + KEPT_NAME, told.get(name + KEPT_NAME, "")), (name + KEPT, told[name + KEPT])]
    return Typed(action, tuple(again))


def _is_kept(name: str) -> bool:
    return name.endswith((KEPT, KEPT_NAME, DROPPED))


async def _text_of(file: UploadFile) -> str | None:
    await file.seek(0)
    raw = await file.read(KEPT_BYTES_MAX + 1)
    try:
        return raw.decode("utf-8-sig") if len(raw) <= KEPT_BYTES_MAX else None
    except UnicodeDecodeError:
        return None


def kept_file(given: ImmutableMultiDict[str, object], name: str) -> UploadFile | None:
    """The file that came back with a refused form."""
    text, file_name = given.get(name + KEPT), given.get(name + KEPT_NAME)
    if not isinstance(text, str) or not text or given.get(name + DROPPED):
        return None
    raw = text.encode()
    return UploadFile(io.BytesIO(raw), size=len(raw), filename=str(file_name or name))


def field_of(problem: Problem, typed: Typed, names: Iterable[str]) -> str | None:
    """In which of these fields the problem is to be mended; None: it is not said."""
    there = list(names)
    if problem.field is not None:
        return problem.field if problem.field in there else None
    ways = [name for name in _MENDED_IN.get(problem.code, ()) if name in there]
    filled = [name for name in ways if any(value.strip() for value in typed.all(name))]
    first_word = problem.detail.partition(" ")[0]
    for name in (first_word, *filled, *ways, problem.code.partition("_")[2]):  # bad_text, malformed_token
        if name in there:
            return name
    return None


class Refilled(msgspec.Struct, frozen=True):
    """The page, and in which field the problem is; `is_there` False: the page has no such form (any more)."""

    page: str
    is_there: bool


def refilled(
    page: str, typed: Typed, *, error: str = "", problem: Problem | None = None, kept_words: str = ""
) -> Refilled:
    """The page with its form for `typed.action` filled in. `error` is what is said beside the field of `problem`. `kept_words` is
    what is said of a file that was kept, with {name}, and behind a line end the name of the box that drops it."""
    scan = _Scan(typed)
    scan.feed(page)
    if scan.best is None:
        return Refilled(page, is_there=False)
    field = None if problem is None else field_of(problem, typed, scan.names[scan.best])
    filling = _Filling(typed, form=scan.best, field=field, error=error, kept_words=kept_words)
    if problem is not None and problem.code == _OVERTAKEN:
        filling.kept_hidden = _ONCE  # who was told of the change, and presses again, has seen it
    filling.feed(page)
    return Refilled("".join(filling.out), is_there=True)


class _Scan(html.parser.HTMLParser):
    """Which of the forms of a page it was: of those that go there, the one that has most of the fields."""

    def __init__(self, typed: Typed) -> None:
        super().__init__()
        self.names: list[list[str]] = []
        self.best: int | None = None
        self._typed = typed
        self._is_ours: list[bool] = []
        self._is_in = False
        self._most = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form":
            self.names.append([])
            self._is_ours.append(
                (given.get("method") or "").lower() == "post" and given.get("action") == self._typed.action
            )
            self._is_in = True
        elif self._is_in and tag in ("input", "select", "textarea") and given.get("type") != "hidden":
            name = given.get("name")
            if name:
                self.names[-1].append(name)

    def handle_endtag(self, tag: str) -> None:
        if tag != "form":
            return
        self._is_in = False
        typed = {name.removesuffix(KEPT) for name in self._typed.names}
        fits = len(typed.intersection(self.names[-1]))
        # Fields that the form lacks speak against it: `start` of a page may be asked in two ways.
        is_better = self._is_ours[-1] and self.names[-1] and (self.best is None or fits > self._most)
        if is_better:
            self.best, self._most = len(self.names) - 1, fits


class _Filling(html.parser.HTMLParser):
    def __init__(self, typed: Typed, *, form: int, field: str | None, error: str, kept_words: str) -> None:
        super().__init__(convert_charrefs=False)
        self.out: list[str] = []
        self.kept_hidden = _ONCE | {_SEEN}
        self._typed = typed
        self._form = form
        self._field = field
        self._error = error
        self._kept_words = kept_words
        self._seen = -1
        self._is_in = False
        self._folds: list[tuple[int, str]] = []  # where each open <details> stands in the output
        self._select: str | None = None
        self._missing: set[str] = set()
        self._is_textarea = False
        self._labels = 0
        self._is_marked = False  # the error is said behind the next end of a label
        self._marked_name = ""

    # ---- what stays as it is ----

    def handle_data(self, data: str) -> None:
        if not self._is_textarea:
            self.out.append(data)

    def handle_entityref(self, name: str) -> None:
        if not self._is_textarea:
            self.out.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        if not self._is_textarea:
            self.out.append(f"&#{name};")

    def handle_comment(self, data: str) -> None:
        self.out.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self.out.append(f"<!{decl}>")

    # ---- what is filled in ----

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            self.handle_starttag(tag, attrs)
        else:
            self.out.append(self.get_starttag_text() or "")  # shapes of a drawing

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or ""
        if tag == "form":
            self._seen += 1
            self._is_in = self._seen == self._form
            if self._is_in:
                self._unfold()
        elif tag == "details":
            self._folds.append((len(self.out), raw))
        elif tag == "label":
            self._labels += 1
        if not self._is_in or tag not in ("input", "select", "option", "textarea"):
            self.out.append(raw)
            return
        given = dict(attrs)
        match tag:
            case "input":
                self._input(given, raw)
            case "select":
                self._select = given.get("name") or ""
                values = self._typed.all(self._select)
                self._missing = {value for value in values if value}
                self.out.append(self._tag(tag, self._marked(given)))
            case "option" if self._select in self._typed.names:
                value = given.get("value")
                values = self._typed.all(self._select or "")
                self._missing.discard(value or "")
                self.out.append(self._tag(tag, _flagged(given, "selected", is_on=value in values)))
            case "textarea" if given.get("name") in self._typed.names:
                text = self._typed.all(given["name"] or "")[0]
                self.out.append(self._tag(tag, self._marked(given)))
                self.out.append("\n" + escape(text.replace("\r\n", "\n")))  # a browser drops the first line end
                self._is_textarea = True
                if text.strip():
                    self._unfold()
            case _:
                self.out.append(self._tag(tag, self._marked(given)) if tag != "option" else raw)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_in = False
        elif tag == "details" and self._folds:
            self._folds.pop()
        elif tag == "textarea":
            self._is_textarea = False
        elif tag == "select" and self._select is not None:
            # What was chosen and is not offered any more is not silently exchanged for the first that is.
            for value in sorted(self._missing):
                self.out.append(f'<option value="{escape(value)}" selected>{escape(value)}</option>')
            self._select, self._missing = None, set()
        self.out.append(f"</{tag}>")
        if tag == "label":
            self._labels -= 1
        if self._is_marked and (tag == "label" or self._labels <= 0):
            self._say()

    def _input(self, given: dict[str, str | None], raw: str) -> None:
        name, kind = given.get("name") or "", given.get("type") or "text"
        typed = self._typed.all(name)
        match kind:
            case "hidden":
                if name in self.kept_hidden and typed:
                    given["value"] = typed[0]
                self.out.append(self._tag("input", given))
            case "checkbox" | "radio":
                is_on = (given.get("value") or "on") in typed
                self.out.append(self._tag("input", self._marked(_flagged(given, "checked", is_on=is_on))))
            case "file":
                self.out.append(self._tag("input", self._marked(given)))
                self._keep(name)
            case "password":
                self.out.append(self._tag("input", self._marked(given)))
            case _:
                if typed:
                    given["value"] = typed[0]
                    if typed[0].strip():
                        self._unfold()
                self.out.append(self._tag("input", self._marked(given)))

    def _keep(self, name: str) -> None:
        if name + KEPT not in self._typed.names:
            return
        file_name, text = self._typed.all(name + KEPT_NAME)[0], self._typed.all(name + KEPT)[0]
        words, _, drop = self._kept_words.format(name=file_name).partition("\n")
        self.out.append(
            f'<input type="hidden" name="{name}{KEPT_NAME}" value="{escape(file_name)}">'
            f'<input type="hidden" name="{name}{KEPT}" value="{escape(text)}">'
            f'<span class="kept-file">{escape(words)}</span>'
            f'</label><label class="check"><input type="checkbox" name="{name}{DROPPED}" value="1"> <span>{escape(drop)}</span>'
        )

    def _marked(self, given: dict[str, str | None]) -> dict[str, str | None]:
        """The field with the mark that its error is below."""
        name = given.get("name")
        if not name or name != self._field or not self._error:
            return given
        self._field = None  # said once
        self._unfold()
        self._is_marked = True
        self._marked_name = name
        return {**given, "aria-invalid": "true", "aria-describedby": f"error-{name}", "autofocus": None}

    def _say(self) -> None:
        self._is_marked = False
        self.out.append(f'<p class="field-error" id="error-{escape(self._marked_name)}">{escape(self._error)}</p>')

    def _unfold(self) -> None:
        """What was filled in, or is to be mended, is in no closed fold."""
        for place, raw in self._folds:
            if " open" not in raw:
                self.out[place] = raw[:-1] + " open>"

    def _tag(self, tag: str, given: dict[str, str | None]) -> str:
        told = "".join(f" {name}" if value is None else f' {name}="{escape(value)}"' for name, value in given.items())
        return f"<{tag}{told}>"


def _flagged(given: dict[str, str | None], flag: str, *, is_on: bool) -> dict[str, str | None]:
    kept = {name: value for name, value in given.items() if name != flag}
    return {**kept, flag: None} if is_on else kept
