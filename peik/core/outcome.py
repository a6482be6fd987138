"""One try: the raw facts (`Reply`), such as how the network failed, and what they mean (`judge`): one of six outcomes."""

import enum

import msgspec

from peik.core.catalogue import CatalogueEntry, Scope, Verdict, look_up


class NetworkFault(enum.StrEnum):
    """How a try ended without an answer. The first group cannot have reached Telegram."""

    DNS = "dns"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    CONNECT_TIMEOUT = "connect_timeout"
    NOT_TRIED = "not_tried"  # closing, or no route is open
    SPOILED = "spoiled"  # the request itself cannot be made: a file of it is gone

    RESET = "reset"  # the peer closed or reset before a whole answer came
    TIMEOUT = "timeout"  # no answer within the try's time
    GARBLED = "garbled"  # what came back was not HTTP


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One try, as seen from our end of the wire.

    `status` is 0 when no whole answer came; then `fault` says why. `left` is False only if not one byte of the request
    can have reached the peer: that difference decides between "unsent" and "uncertain".
    """

    status: int = 0
    body: bytes = b""
    retry_after_s: int | None = None  # of the header; what Telegram asks for is in the body as well
    fault: NetworkFault | None = None
    left: bool = True
    detail: str = ""


# What a reply means. `judge` turns the raw facts of one try into one of six outcomes, and does nothing else.


class Delivered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Telegram said yes, or that it is already so."""

    result: bytes  # JSON as it came
    note: str = ""


class Limited(msgspec.Struct, frozen=True, kw_only=True):
    """429: wait. `may_have_arrived` only right after server errors on the same bot (docs/telegram.md, Too many requests)."""

    retry_after_s: float
    may_have_arrived: bool = False


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    to_chat_id: int


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Telegram said no. A passing refusal may be tried again; a final one may not."""

    code: int
    words: str
    advice: str
    scope: Scope
    is_passing: bool = False
    attempts_max: int | None = None
    may_be_mended: bool = False  # by a caller who hears of it at once
    may_have_arrived: bool = False  # only part of a multi-send was refused
    parameters: bytes = b""  # JSON as it came beside the words; nearly always nothing


class Unsent(msgspec.Struct, frozen=True, kw_only=True):
    """Not one byte reached Telegram: costs nothing."""

    why: str


class Uncertain(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes had left and no verdict came: it may have arrived."""

    why: str
    code: int = 0


Outcome = Delivered | Limited | Moved | Refused | Unsent | Uncertain

RETRY_AFTER_S_DEFAULT = 5.0  # a 429 without a figure; Telegram's own default for dropped queries
RETRY_AFTER_S_MAX = 7 * 86400.0  # a day has been seen; beyond a week it is a mistake of somebody's


class _Parameters(msgspec.Struct):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class _Envelope(msgspec.Struct):
    """Telegram's answer. Anything else that speaks HTTP to us is not Telegram."""

    ok: bool
    result: msgspec.Raw = msgspec.Raw(b"null")
    error_code: int = 0
    description: str = ""
    parameters: _Parameters | None = None


class _Beside(msgspec.Struct):
    parameters: msgspec.Raw = msgspec.Raw(b"")


_SPOILED = NetworkFault.SPOILED
_decode = msgspec.json.Decoder(_Envelope).decode
_decode_beside = msgspec.json.Decoder(_Beside).decode

# The HTTP layer of the Bot API server itself answers these with an empty body: a definite no (docs/telegram.md, Uncertain sends).
_HTTP_REFUSALS = frozenset({400, 413, 431, 501, 505})


def judge(reply: Reply, *, method: str, was_uncertain: bool = False, had_server_error: bool = False) -> Outcome:
    """What this try means.

    `was_uncertain`: an earlier try of the same letter may have arrived, so "already deleted" proves that it did.
    `had_server_error`: the bot saw a 5xx within the last 30 s, so that a 429 may hide a send that went through.
    """
    if reply.fault is _SPOILED:
        return Refused(code=0, words=reply.detail, advice="Send it again.", scope=Scope.MESSAGE)
    if reply.status == 0 or not reply.left:  # an answer to nothing is no answer
        why = f"{reply.fault}: {reply.detail}" if reply.detail else str(reply.fault or NetworkFault.RESET)
        return Uncertain(why=why) if reply.left else Unsent(why=why)
    try:
        reply.body.decode()  # msgspec looks only into what it decodes, and the result is kept as it came
        answer = _decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _judge_foreign(reply, had_server_error=had_server_error)
    if answer.ok and reply.status < 300:
        return Delivered(result=bytes(answer.result))
    code = answer.error_code or reply.status
    if answer.ok or not _is_consistent_no(reply.status, code):
        return _judge_foreign(reply, had_server_error=had_server_error)
    entry = look_up(code=code, words=answer.description, method=method)
    outcome = _apply(entry, answer, code=code, was_uncertain=was_uncertain, had_server_error=had_server_error)
    if isinstance(outcome, Refused) and answer.parameters is not None:
        return msgspec.structs.replace(outcome, parameters=bytes(_decode_beside(reply.body).parameters))
    return outcome


def _is_consistent_no(status: int, code: int) -> bool:
    """Whether status and body can be of one answer. Telegram's status is its error_code; some mirrors say 200 to all.

    A yes or a final no that came with a 429 or a 5xx was written by somebody in between, or is half of another answer.
    """
    return 400 <= code <= 599 and (code == status or not (status == 429 or status >= 500))


def _judge_foreign(reply: Reply, *, had_server_error: bool) -> Outcome:
    """An answer that is not Telegram's JSON: nginx before it, a proxy, or a filter that shows a page of its own."""
    if reply.status == 429:
        return Limited(retry_after_s=RETRY_AFTER_S_DEFAULT, may_have_arrived=had_server_error)
    if reply.status in _HTTP_REFUSALS and not reply.body:
        return Refused(
            code=reply.status, words=f"HTTP {reply.status}", advice="The request is malformed.", scope=Scope.MESSAGE
        )
    if reply.status == 413:
        return Refused(
            code=413, words="Request Entity Too Large", advice="Larger than Telegram takes.", scope=Scope.MESSAGE
        )
    return Uncertain(why=f"HTTP {reply.status} that is not Telegram's", code=reply.status)


def _apply(
    entry: CatalogueEntry, answer: _Envelope, *, code: int, was_uncertain: bool, had_server_error: bool
) -> Outcome:
    words = answer.description or f"HTTP {code}"
    parameters = answer.parameters or _Parameters()
    refused = Refused(code=code, words=words, advice=entry.advice, scope=entry.scope)
    match entry.verdict:
        case Verdict.ALREADY_SO:
            return Delivered(result=b"true", note=words)
        case Verdict.ALREADY_SO_ON_REPEAT:
            return Delivered(result=b"true", note=words) if was_uncertain else refused
        case Verdict.GONE_AGAIN:
            return Delivered(result=b"null", note=words)
        case Verdict.LIMITED:
            asked_s = RETRY_AFTER_S_DEFAULT if parameters.retry_after is None else parameters.retry_after
            wait_s = min(max(asked_s, 0.0), RETRY_AFTER_S_MAX)
            return Limited(retry_after_s=wait_s, may_have_arrived=had_server_error)
        case Verdict.MOVED:
            new = parameters.migrate_to_chat_id
            # A supergroup's id is negative and has 52 bits at most. To anywhere else nobody wants his letters taken.
            return Moved(to_chat_id=new) if new is not None and -(2**53) < new < 0 else refused
        case Verdict.PASSING:
            return msgspec.structs.replace(
                refused, is_passing=True, attempts_max=entry.attempts_max, may_be_mended=entry.may_be_mended
            )
        case Verdict.PARTIAL:
            return msgspec.structs.replace(refused, may_have_arrived=True)
        case Verdict.UNCERTAIN:
            return Uncertain(why=words, code=code)
        case Verdict.FINAL:
            return refused
