"""Telegram's envelope: results, refusals, and what is said of a letter that Telegram has not answered yet."""

import enum
import math
from collections.abc import Mapping, Sequence

import msgspec

from peik.core.call import opened
from peik.core.letter import Chat, State
from peik.core.methods import MethodClass
from peik.core.outcome import RETRY_AFTER_S_DEFAULT, Reply
from peik.errors import Problem, TooMany, Unavailable
from peik.outbox.store import BotRecord, LetterView


class GatewayAnswer(msgspec.Struct, frozen=True):
    """One whole answer of the gateway."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside `ok` about a letter."""

    letter_id: str
    state: State


class _Failure(msgspec.Struct, kw_only=True, omit_defaults=True):
    ok: bool
    error_code: int
    description: str
    parameters: msgspec.Raw | dict[str, object] | None = None
    peik: PendingAnswer | None = None


_encode = msgspec.json.Encoder().encode


def success(result: bytes, *, description: str | None = None, told: PendingAnswer | None = None) -> GatewayAnswer:
    """`result` is JSON as it is to be shown."""
    more = b""
    if description is not None:
        more += b',"description":' + _encode(description)
    if told is not None:
        more += b',"peik":' + _encode(told)
    return GatewayAnswer(200, b'{"ok":true,"result":%b%b}' % (result, more))


def failure(
    code: int,
    description: str,
    *,
    parameters: bytes = b"",
    retry_after_s: int | None = None,
    told: PendingAnswer | None = None,
) -> GatewayAnswer:
    """The HTTP status is the error code, as at Telegram; a 429 says when to come back in the header too."""
    beside: msgspec.Raw | dict[str, object] | None = msgspec.Raw(parameters) if parameters else None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if retry_after_s is not None:
        headers = ((b"retry-after", b"%d" % retry_after_s),)
        if code == 429:
            beside = {"retry_after": retry_after_s}
    body = _Failure(ok=False, error_code=code, description=description, parameters=beside, peik=told)
    return GatewayAnswer(code, _encode(body), headers)


def too_many(wait_s: int) -> GatewayAnswer:
    """In Telegram's words: every library knows how to wait then."""
    return failure(429, f"Too Many Requests: retry after {wait_s}", retry_after_s=wait_s)


NOT_FOUND = failure(404, "Not Found")
TOO_LARGE = failure(413, "Request Entity Too Large")
AWAY = failure(502, "Bad Gateway: Telegram cannot be reached")
LATE = failure(504, "Gateway Timeout: Telegram did not answer")
SURPRISE = failure(500, "Internal Server Error: something went wrong inside Peik; its log says what")

# Peik's own checks, in the words that bots know from Telegram.
_WORDS = {
    "missing_chat_id": "Bad Request: chat_id is empty",
    "text_empty": "Bad Request: message text is empty",
    "text_too_long": "Bad Request: message is too long",
    "caption_too_long": "Bad Request: message caption is too long",
}


def of_problem(problem: Problem) -> GatewayAnswer:
    """What the service refuses. Nothing was accepted then."""
    if problem.code in _WORDS:
        return failure(400, _WORDS[problem.code])
    if problem.status == 413 or problem.code == "params_too_large":
        return failure(413, f"Request Entity Too Large: {problem.detail}")
    if isinstance(problem, TooMany):
        return too_many(problem.retry_after_s)
    if isinstance(problem, Unavailable):
        return failure(problem.status, f"Service Unavailable: {problem.detail}", retry_after_s=problem.retry_after_s)
    if problem.status == 409:
        return failure(409, f"Conflict: {problem.detail}")
    return failure(400, f"Bad Request: {problem.detail}")


# ---- what went straight through ----


class _Parameters(msgspec.Struct):
    retry_after: float | None = None


class _Refusal(msgspec.Struct):
    ok: bool
    parameters: _Parameters | None = None


_decode_refusal = msgspec.json.Decoder(_Refusal).decode


def of_reply(reply: Reply) -> GatewayAnswer:
    """What Telegram said, byte for byte. What is not its own JSON, and what it did not say, is put into its envelope."""
    if reply.status == 0 or not reply.left:
        return LATE if reply.left else AWAY
    if reply.status == 200 and reply.body.startswith(b'{"ok":true'):
        return GatewayAnswer(200, reply.body)
    try:
        known = _decode_refusal(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _of_foreign(reply)
    if reply.status != 200 and (known.ok or not 400 <= reply.status <= 599):
        return _of_foreign(reply)
    asked_s = known.parameters.retry_after if known.parameters is not None else None
    headers = () if asked_s is None else ((b"retry-after", b"%d" % max(0, round(asked_s))),)
    return GatewayAnswer(reply.status, reply.body, headers)


def _of_foreign(reply: Reply) -> GatewayAnswer:
    """A page of some server in between. Bots must not take it for an answer of Telegram's, whatever its status."""
    code = reply.status if 400 <= reply.status <= 599 else 502
    if code == 429:
        wait_s = math.ceil(RETRY_AFTER_S_DEFAULT if reply.retry_after_s is None else reply.retry_after_s)
        return failure(429, f"Too Many Requests: retry after {wait_s}", retry_after_s=wait_s)
    return failure(code, _PHRASES.get(code, "Bad Gateway"))


_PHRASES = {
    400: "Bad Request",  # Telegram's server says it without a body to what is no JSON, or no HTTP
    413: "Request Entity Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


# ---- letters ----


class ResultShape(enum.Enum):
    """What a method answers with, as far as it can be stood in for."""

    MESSAGE = "a message"
    MESSAGES = "as many messages as the album has items"
    MESSAGE_ID = "a message id"
    MESSAGE_IDS = "as many message ids as were named"
    TRUE = "true"
    REAL = "cannot be made up: links, topics, stories, files, and whether money has moved"

    @property
    def is_message(self) -> bool:
        """Whether it has message ids."""
        return self not in (ResultShape.TRUE, ResultShape.REAL)


_SHAPES = {
    "sendMediaGroup": ResultShape.MESSAGES,
    "copyMessage": ResultShape.MESSAGE_ID,
    "copyMessages": ResultShape.MESSAGE_IDS,
    "forwardMessages": ResultShape.MESSAGE_IDS,
    **dict.fromkeys(("postStory", "repostStory", "editStory", "stopPoll"), ResultShape.REAL),
    **dict.fromkeys(("editChatInviteLink", "revokeChatInviteLink", "editChatSubscriptionInviteLink"), ResultShape.REAL),
}

_SHAPE_OF_CLASS = {MethodClass.SEND: ResultShape.MESSAGE, MethodClass.WRITE: ResultShape.TRUE}


def shape_of(method: str, kind: MethodClass | None) -> ResultShape:
    if kind is None:
        return ResultShape.REAL
    return _SHAPES.get(method) or _SHAPE_OF_CLASS.get(kind, ResultShape.REAL)


def of_letter(
    view: LetterView, shape: ResultShape, bot: BotRecord, *, at_ms: int, first_id: int | None = None
) -> GatewayAnswer:
    """How a letter stands: Telegram's own result or refusal; or, as long as there is none, what stands in for it under ids
    from `first_id` on. None: they are all 0."""
    told = PendingAnswer(letter_id=str(view.id), state=view.state)
    if view.state is State.COMPLETED and view.result not in (None, "null"):
        assert view.result is not None
        return success(view.result.encode())
    if view.state in (State.FAILED, State.CANCELLED):
        return _of_failed(view, told)
    if shape is ResultShape.REAL:
        return failure(504, f"Gateway Timeout: not answered yet; letter {view.id} goes on all the same", told=told)
    return success(stand_in(shape, view, bot, at_ms=at_ms, first_id=first_id), told=told)


def of_edited(view: LetterView, bot: BotRecord, *, item: int, ids: Sequence[int], at_ms: int) -> GatewayAnswer:
    """What an edit of a message is answered with that was not sent yet."""
    told = PendingAnswer(letter_id=str(view.id), state=view.state)
    made = _decode_results(view.result) if view.state is State.COMPLETED and view.result is not None else []
    if item < len(made):
        return success(bytes(made[item]))
    is_album = _SHAPES.get(view.method) is ResultShape.MESSAGES
    messages = _messages(view, bot, at_ms=at_ms, first_id=ids[0] if ids else None, is_album=is_album)
    return success(_encode(messages[min(item, len(messages) - 1)] | {"edit_date": at_ms // 1000}), told=told)


def _decode_results(result: str) -> list[msgspec.Raw]:
    value = msgspec.Raw(result.encode())
    return msgspec.json.decode(value, type=list[msgspec.Raw]) if result.lstrip().startswith("[") else [value]


class _Line(msgspec.Struct):
    outcome: str
    code: int | None = None
    words: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"")


_decode_history = msgspec.json.Decoder(list[_Line]).decode
_CODE_OF_WORDS = {
    "Bad Request": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "Not Found": 404,
    "Conflict": 409,
    "Request Entity Too Large": 413,
}


def _of_failed(view: LetterView, told: PendingAnswer) -> GatewayAnswer:
    if view.state is State.CANCELLED:
        return failure(400, "Bad Request: the letter was taken back before it was sent", told=told)
    last = _decode_history(view.history)[-1] if view.history else _Line(outcome="")
    if last.outcome == "refused" and last.code:
        words = last.words or view.failed_reason or "Bad Request"
        # Telegram's own answers pass as they came, without a word of ours.
        return failure(last.code, words, parameters=bytes(last.parameters))
    reason = view.failed_reason or "it could not be sent"
    known = _CODE_OF_WORDS.get(reason.partition(":")[0])
    if known is not None:  # a chat that refused an earlier letter, in the words of then
        return failure(known, reason)
    if reason == "uncertain":
        return failure(502, "Bad Gateway: Telegram did not answer, and it may have arrived", told=told)
    return failure(400, f"Bad Request: {reason}", told=told)


# ---- standing in for Telegram ----


def stand_in(shape: ResultShape, view: LetterView, bot: BotRecord, *, at_ms: int, first_id: int | None = None) -> bytes:
    """A result as it would be but for its ids. 0 is Bot API's own sign for "accepted, not sent yet"."""
    match shape:
        case ResultShape.MESSAGE:
            return _encode(_messages(view, bot, at_ms=at_ms, first_id=first_id)[0])
        case ResultShape.MESSAGES:
            return _encode(_messages(view, bot, at_ms=at_ms, first_id=first_id, is_album=True))
        case ResultShape.MESSAGE_ID:
            return _encode({"message_id": first_id or 0})
        case ResultShape.MESSAGE_IDS:
            return _encode([{"message_id": _nth(first_id, item)} for item in range(messages_in(shape, view))])
        case _:
            return b"true"


def messages_in(shape: ResultShape, view: LetterView) -> int:
    """How many messages a letter makes."""
    match shape:
        case ResultShape.MESSAGES:
            return _count(_params(view).get("media"))
        case ResultShape.MESSAGE_IDS:
            return _count(_params(view).get("message_ids"))
    return 1


def _params(view: LetterView) -> dict[str, object]:
    return msgspec.json.decode(view.params, type=dict[str, object])


def _count(value: object) -> int:
    known = opened(value)
    return max(1, len(known)) if isinstance(known, list) else 1


def _nth(first_id: int | None, item: int) -> int:
    return 0 if first_id is None else first_id + item


def _messages(
    view: LetterView, bot: BotRecord, *, at_ms: int, first_id: int | None, is_album: bool = False
) -> list[dict[str, object]]:
    """What a send makes: one message, or those of an album, each with what the request says of it."""
    params = _params(view)
    whole: dict[str, object] = {"from": _sender(bot), "chat": _chat(view.chat), "date": at_ms // 1000}
    if view.thread:
        whole["message_thread_id"] = view.thread
    whole |= _reply_in(view, params)
    media = opened(params.get("media")) if is_album else None
    items = [one if isinstance(one, dict) else {} for one in media] if isinstance(media, list) and media else [None]
    return [
        {"message_id": _nth(first_id, n)} | whole | (_content(view.method, params) if one is None else _item(one))
        for n, one in enumerate(items)
    ]


def _content(method: str, params: Mapping[str, object]) -> dict[str, object]:
    content: dict[str, object] = {
        name: params[name] for name in ("text", "caption") if isinstance(params.get(name), str) and params[name]
    }
    kind = _KIND_OF_SEND.get(method)
    if kind is not None:
        content |= _media(kind, params.get(kind), params)
    markup = opened(params.get("reply_markup"))
    if isinstance(markup, dict) and isinstance(markup.get("inline_keyboard"), list):
        content["reply_markup"] = markup
    return content


def _item(media: Mapping[str, object]) -> dict[str, object]:
    caption: dict[str, object] = {"caption": media["caption"]} if isinstance(media.get("caption"), str) else {}
    kind = media.get("type")
    return caption | (_media(kind, media.get("media"), media) if isinstance(kind, str) else {})


# What a message has of each kind of media: the figures that a strict library wants, as far as the request gives them.
_FIGURES: dict[str, tuple[str, ...]] = {
    "photo": ("width", "height"),
    "video": ("width", "height", "duration"),
    "animation": ("width", "height", "duration"),
    "audio": ("duration",),
    "voice": ("duration",),
    "video_note": ("length", "duration"),
    "document": (),
    "sticker": ("width", "height"),
}
_KIND_OF_SEND = {"send" + "".join(word.capitalize() for word in kind.split("_")): kind for kind in _FIGURES}


def _media(kind: str, given: object, params: Mapping[str, object]) -> dict[str, object]:
    """A file that was named by its id is there; of what is uploaded or fetched nobody knows the id yet."""
    if kind not in _FIGURES or not isinstance(given, str) or not given or "://" in given or given[:1] in "{[":
        return {}
    file: dict[str, object] = {"file_id": given, "file_unique_id": ""}
    file |= {name: _figure(params.get(name)) for name in _FIGURES[kind]}
    if kind == "sticker":
        file |= {"type": "regular", "is_animated": False, "is_video": False}
    return {kind: [file] if kind == "photo" else file}


def _figure(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:9])
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _reply_in(view: LetterView, params: Mapping[str, object]) -> dict[str, object]:
    reply = opened(params.get("reply_parameters"))
    to = params.get("reply_to_message_id") if not isinstance(reply, dict) else reply.get("message_id")
    if isinstance(reply, dict) and str(reply.get("chat_id") or params.get("chat_id")) != str(params.get("chat_id")):
        return {}  # of another chat: that is no reply_to_message
    to = opened(to)
    message_id = to.get("id") if isinstance(to, dict) else to  # a letter that the bot was told an id of
    number = _figure(message_id)
    # Date 0 is Bot API's own sign for a message of which nothing more is known.
    return {"reply_to_message": {"message_id": number, "chat": _chat(view.chat), "date": 0}} if number else {}


class _Me(msgspec.Struct, omit_defaults=True):
    id: int
    is_bot: bool
    first_name: str
    username: str | None = None


def _sender(bot: BotRecord) -> _Me:
    if bot.me is None:
        return _Me(id=bot.bot_id, is_bot=True, first_name="", username=bot.username)
    return msgspec.json.decode(bot.me, type=_Me)


def _chat(chat: Chat) -> dict[str, object]:
    if isinstance(chat, str):
        # Its number is not known before the first answer; 0 is nobody's.
        named: dict[str, object] = {"id": 0, "type": "channel"}
        return named | ({"username": chat[1:]} if chat.startswith("@") else {})
    if chat > 0:
        return {"id": chat, "type": "private"}
    # Supergroups and channels share the numbers from -1000000000001 down; most that bots write to are supergroups.
    return {"id": chat, "type": "supergroup" if chat <= -1_000_000_000_000 else "group", "title": ""}
