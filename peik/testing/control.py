"""The tester's side over HTTP, under `/sim/`: any process in any language can drive the simulated Telegram."""

import base64
import functools
import inspect
import operator
from types import UnionType
from typing import ClassVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from peik.errors import BadInput, Problem
from peik.testing.answer import Answer, Json, Ledger, Pending, Refusal, UploadedFile, failure, success
from peik.testing.telegram import Telegram
from peik.testing.wire import SimRequest
from peik.testing.world import ChatType, SimBot, SimChat, SimUser, Status

# The control calls, one class each: its fields are what the call takes, `carry_out` is what it does.
#
# A bot is its id or its token, a user is an id, a chat its id or @name.


class Order(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    is_open: ClassVar[bool] = False  # takes any object, as `given`

    def carry_out(self, telegram: Telegram) -> object:
        raise NotImplementedError


class Health(Order):
    """The time there, and the number of bots."""

    def carry_out(self, telegram: Telegram) -> object:
        return {"now": telegram.now(), "bots": len(telegram.bots)}


# What happened


class Sent(Order):
    """Deliveries after a number; with `at_least` only when there are that many in all, or the timeout is over."""

    bot: int | None = None
    chat: int | None = None
    method: str | None = None
    after: int = 0
    limit: int = 1000
    at_least: int = 0
    timeout: float = 10.0

    def carry_out(self, telegram: Telegram) -> object:
        if self.at_least <= telegram.sent.total:
            return self.rows(telegram.sent)

        def answer() -> Answer:
            return success(self.rows(telegram.sent))

        pending = Pending(due_at=telegram.now() + self.timeout, ask=answer)
        telegram.awaited.append((self.at_least, pending))
        return pending

    def rows(self, ledger: Ledger) -> Json:
        found = ledger.where(bot_id=self.bot, chat_id=self.chat, method=self.method, after=self.after)
        return {"total": ledger.total, "deliveries": found[: self.limit]}


class Applied(Order):
    """The same of edits, deletions, answers and other writes that took effect."""

    bot: int | None = None
    chat: int | None = None
    method: str | None = None
    after: int = 0
    limit: int = 1000

    def carry_out(self, telegram: Telegram) -> object:
        found = telegram.applied.where(bot_id=self.bot, chat_id=self.chat, method=self.method, after=self.after)
        return {"total": telegram.applied.total, "deliveries": found[: self.limit]}


class ShowCounters(Order):
    """Requests by method, answers by status, faults by kind, and more."""

    def carry_out(self, telegram: Telegram) -> object:
        return telegram.counters.as_json()


class ShowMessage(Order):
    bot: int | str
    chat: int | str
    message_id: int

    def carry_out(self, telegram: Telegram) -> object:
        return telegram.message(self.bot, self.chat, self.message_id)


# The whole


class ShowOptions(Order):
    """All options."""

    def carry_out(self, telegram: Telegram) -> object:
        return telegram.options


class ChangeOptions(Order):
    """Some options are changed; all of them."""

    is_open = True
    given: dict[str, object]

    def carry_out(self, telegram: Telegram) -> object:
        telegram.options.change(self.given)
        return telegram.options


class Reset(Order):
    """Forgets bots, people, chats, ledger and counters, and ends all faults."""

    def carry_out(self, telegram: Telegram) -> object:
        telegram.faults.clear()
        telegram.forget()
        return True


# Bots, people, chats


class ShowBots(Order):
    """All bots, with `pending_update_count` and `webhook`."""

    def carry_out(self, telegram: Telegram) -> object:
        now = telegram.now()
        rows = []
        for bot in telegram.bots.values():
            bot.queue.expire(now)
            hook = bot.webhook.url if bot.webhook else ""
            rows.append({**bot.user.as_json(), "pending_update_count": bot.queue.size, "webhook": hook})
        return rows


class AddBot(Order):
    """A bot with this token; a known bot gets it as its new one."""

    token: str
    username: str = ""
    first_name: str = ""

    def carry_out(self, telegram: Telegram) -> object:
        return telegram.add_bot(self.token, username=self.username, first_name=self.first_name).user.as_json()


class Revoke(Order):
    bot: int | str

    def carry_out(self, telegram: Telegram) -> object:
        return {"token": telegram.revoke(self.bot)}


class AddUser(Order):
    """A person. Bots must not write first to one that is not reachable."""

    id: int
    first_name: str = ""
    language_code: str | None = None
    username: str | None = None
    last_name: str | None = None
    is_reachable: bool | None = None
    is_deactivated: bool | None = None
    personal_chat: int | None = None

    def carry_out(self, telegram: Telegram) -> object:
        user = telegram.user(
            self.id,
            self.first_name,
            self.language_code,
            self.username,
            last_name=self.last_name,
            is_reachable=self.is_reachable,
            is_deactivated=self.is_deactivated,
            personal_chat=self.personal_chat,
        )
        return user.as_json()


class AddChat(Order):
    """A group, supergroup or channel. `parent`: it holds that channel's direct messages; `guard`: a bot says who may come in."""

    type: ChatType
    title: str = ""
    id: int | None = None
    username: str | None = None
    is_forum: bool = False
    bots: list[int | str] = []
    slow_mode_s: int = 0
    parent: int = 0
    guard: int | str | None = None

    def carry_out(self, telegram: Telegram) -> object:
        chat = telegram.chat(
            self.type, self.title, chat_id=self.id, username=self.username, is_forum=self.is_forum, bots=[*self.bots],
            slow_mode_s=self.slow_mode_s, parent=self.parent, guard=self.guard,
        )  # fmt: skip
        return chat.as_json()


class AddTopic(Order):
    """A topic of a forum; its `message_thread_id`."""

    chat: int
    name: str

    def carry_out(self, telegram: Telegram) -> object:
        return {"message_thread_id": telegram.topic(self.chat, self.name).id, "name": self.name}


# What people do


class Upload(Order):
    """A person sends a photo, document, audio, video, animation, voice, video_note or sticker; the message."""

    bot: int | str
    user: int
    kind: str
    base64: str
    filename: str = "file.bin"
    content_type: str = "application/octet-stream"
    caption: str = ""
    chat: int | str | None = None

    def carry_out(self, telegram: Telegram) -> object:
        file = UploadedFile(filename=self.filename, content=_decoded(self.base64), content_type=self.content_type)
        return telegram.upload(self.bot, self.user, self.kind, file, caption=self.caption, chat=self.chat)


class Edit(Order):
    """A person changes a message; the message."""

    bot: int | str
    chat: int | str
    message_id: int
    text: str

    def carry_out(self, telegram: Telegram) -> object:
        return telegram.edit(self.bot, self.chat, self.message_id, self.text)


class Press(Order):
    bot: int | str
    user: int
    message_id: int
    data: str
    chat: int | str | None = None

    def carry_out(self, telegram: Telegram) -> object:
        return {"id": telegram.press(self.bot, self.user, self.message_id, self.data, chat=self.chat)}


class Ask(Order):
    bot: int | str
    user: int
    kind: str
    payload: dict[str, object] | None = None

    def carry_out(self, telegram: Telegram) -> object:
        return {"id": telegram.ask(self.bot, self.user, self.kind, self.payload)}


class PushUpdate(Order):
    """Any other update, as it is; its `update_id`, or null if it is filtered, too old or over a cap."""

    bot: int | str
    type: str
    payload: dict[str, object]
    date: float | None = None

    def carry_out(self, telegram: Telegram) -> object:
        event = telegram.update(self.bot, self.type, self.payload, date=self.date)
        return {"update_id": event.id if event else None}


class Block(Order):
    """A person blocks the bot, which is told."""

    bot: int | str
    user: int

    def carry_out(self, telegram: Telegram) -> object:
        telegram.block(self.bot, self.user)
        return True


class Unblock(Order):
    """A person lets the bot in again, which is told."""

    bot: int | str
    user: int

    def carry_out(self, telegram: Telegram) -> object:
        telegram.unblock(self.bot, self.user)
        return True


class Standing(Order):
    """The bot's standing in a group or channel becomes another; "kicked" by default."""

    bot: int | str
    chat: int | str
    status: Status = "kicked"
    by: int = 1

    def carry_out(self, telegram: Telegram) -> object:
        telegram.kick(self.bot, self.chat, by=self.by, status=self.status)
        return True


class Migrate(Order):
    chat: int
    by: int = 1

    def carry_out(self, telegram: Telegram) -> object:
        return {"chat_id": telegram.migrate(self.chat, by=self.by)}


# Trouble


class ShowFaults(Order):
    """The standing faults."""

    def carry_out(self, telegram: Telegram) -> object:
        telegram.faults.sweep()
        return telegram.faults.standing


class AddFault(Order):
    """A fault: `kind`, `seconds` and what that kind reads; the fault with its `id`."""

    is_open = True
    given: dict[str, object]

    def carry_out(self, telegram: Telegram) -> object:
        details = dict(self.given)
        kind, seconds = str(details.pop("kind", "")), details.pop("seconds", None)
        return telegram.faults.add(kind, seconds=msgspec.convert(seconds, float | None), **details)


class EndFaults(Order):
    """One by id, all of a kind, or all."""

    id: int | None = None
    kind: str | None = None

    def carry_out(self, telegram: Telegram) -> object:
        telegram.faults.clear(self.id if self.id is not None else self.kind)
        return True


class Outage(Order):
    """Connections are refused for that time."""

    seconds: float

    def carry_out(self, telegram: Telegram) -> object:
        return telegram.outage(self.seconds)


class Dark(Order):
    """Connections are refused, or not any more."""

    on: bool

    def carry_out(self, telegram: Telegram) -> object:
        telegram.dark(self.on)
        return True


# What else people do is `Telegram`'s own: its verbs, with their parameters as fields.


class SentFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A file inside JSON."""

    base64: str
    filename: str = "file"
    content_type: str = "application/octet-stream"

    def content(self) -> UploadedFile:
        return UploadedFile(filename=self.filename, content=_decoded(self.base64), content_type=self.content_type)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BadInput(code="not_base64", detail="`base64` holds the file's bytes in base64.") from None


class PeoplesOrder(Order):
    verb: ClassVar[str]

    def carry_out(self, telegram: Telegram) -> object:
        method = getattr(Telegram, self.verb)
        args: list[object] = [telegram]
        named: dict[str, object] = {}
        for name, parameter in list(inspect.signature(method).parameters.items())[1:]:
            given = getattr(self, name)
            match parameter.kind:
                case parameter.VAR_POSITIONAL:
                    args += given
                case parameter.VAR_KEYWORD:
                    named |= given
                case parameter.KEYWORD_ONLY:
                    named[name] = _unwrapped(given)
                case _:
                    args.append(_unwrapped(given))
        result = method(*args, **named)
        is_plain = result is None or isinstance(result, (dict, list, str, int))
        return result if is_plain and get_type_hints(method)["return"] is not type(None) else True


def _unwrapped(given: object) -> object:
    if isinstance(given, list):
        return [_unwrapped(one) for one in given]
    return given.content() if isinstance(given, SentFile) else given


def _on_the_wire(kind: object) -> object:
    """What JSON has in place of a type of `Telegram`'s parameters: numbers for bots, people and chats, base64 for files."""
    if kind is UploadedFile:
        return SentFile
    inner = get_args(kind)
    if not inner:
        return kind
    if get_origin(kind) is list:
        return list[_on_the_wire(inner[0])]  # type: ignore[misc]
    if get_origin(kind) in {Union, UnionType}:
        return functools.reduce(
            operator.or_, [_on_the_wire(one) for one in inner if one not in {SimBot, SimUser, SimChat}]
        )
    return kind


def _deed(verb: str) -> type[Order]:
    method = getattr(Telegram, verb)
    hints = get_type_hints(method)
    fields: list[tuple[str, object] | tuple[str, object, object]] = []
    for name, parameter in list(inspect.signature(method).parameters.items())[1:]:
        kind = _on_the_wire(hints[name])
        if parameter.kind is parameter.VAR_POSITIONAL:
            fields.append((name, list[kind], []))  # type: ignore[valid-type]
        elif parameter.kind is parameter.VAR_KEYWORD:
            fields.append((name, dict[str, kind], {}))  # type: ignore[valid-type]
        elif parameter.default is parameter.empty:
            fields.append((name, kind))
        else:
            fields.append((name, kind, parameter.default))
    namespace = {"verb": verb, "__annotations__": {"verb": ClassVar[str]}}
    made = msgspec.defstruct(
        verb, fields, bases=(PeoplesOrder,), namespace=namespace, kw_only=True, forbid_unknown_fields=True
    )
    assert issubclass(made, PeoplesOrder)
    return made


DEEDS = (
    "write", "set_member", "join", "vote", "choose", "react", "tick", "add_tasks", "web_app", "web_app_data", "buy", "erase",
    "timer", "manage", "pay", "subscribe", "boost", "unboost", "guest", "share", "drafts", "stop", "song", "connect", "stars",
    "game", "sticker_set", "picture", "answer",
)  # fmt: skip

# docs/reference/simulator.md is made of these.
CALLS: dict[tuple[str, str], type[Order]] = {
    ("GET", "health"): Health,
    ("GET", "sent"): Sent,
    ("GET", "applied"): Applied,
    ("GET", "counters"): ShowCounters,
    ("GET", "message"): ShowMessage,
    ("GET", "options"): ShowOptions,
    ("POST", "options"): ChangeOptions,
    ("POST", "reset"): Reset,
    ("GET", "bots"): ShowBots,
    ("POST", "bots"): AddBot,
    ("POST", "revoke"): Revoke,
    ("POST", "users"): AddUser,
    ("POST", "chats"): AddChat,
    ("POST", "topics"): AddTopic,
    **{("POST", verb): _deed(verb) for verb in DEEDS},
    ("POST", "upload"): Upload,
    ("POST", "edit"): Edit,
    ("POST", "press"): Press,
    ("POST", "ask"): Ask,
    ("POST", "update"): PushUpdate,
    ("POST", "block"): Block,
    ("POST", "unblock"): Unblock,
    ("POST", "standing"): Standing,
    ("POST", "migrate"): Migrate,
    ("GET", "faults"): ShowFaults,
    ("POST", "faults"): AddFault,
    ("DELETE", "faults"): EndFaults,
    ("POST", "outage"): Outage,
    ("POST", "dark"): Dark,
}


def handle(telegram: Telegram, request: SimRequest) -> Answer | Pending:
    """Answer one control call. Mistakes are answered 4xx with what to do next."""
    name = request.path.removeprefix(b"/sim/").decode("latin-1").strip("/")
    form = CALLS.get((request.verb.decode("latin-1"), name))
    if form is None:
        known = ", ".join(f"{verb} /sim/{path}" for verb, path in CALLS)
        return failure(Refusal(404, f"There is no such control call. There are: {known}."))
    try:
        given = msgspec.json.decode(request.body) if request.body else {}
        if isinstance(given, dict) and request.query:
            given = {**dict(parse_qsl(request.query.decode())), **given}
        if form.is_open:
            given = {"given": given}
        # Not strict, so that numbers in a query string are numbers.
        result = msgspec.convert(given, form, strict=False).carry_out(telegram)
    except msgspec.MsgspecError as error:
        return failure(Refusal(422, str(error)))
    except Problem as problem:
        return failure(Refusal(problem.status, problem.detail))
    return result if isinstance(result, Pending) else success(result)
