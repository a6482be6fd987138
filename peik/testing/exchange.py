"""What becomes of one request on its way to Telegram and back. A value; a server or a virtual network plays it."""

import enum

import msgspec

from peik.testing.answer import JSON_TYPE, Answer, encode, failure, too_many
from peik.testing.faults import Fault, Kind

_HTML = (
    "<html>\r\n<head><title>{0}</title></head>\r\n<body>\r\n<center><h1>{0}</h1></center>\r\n"
    "<hr><center>nginx/1.18.0</center>\r\n</body>\r\n</html>\r\n"
)

REASONS = {500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}


class How(enum.Enum):
    """How the client's side of it ends."""

    ANSWER = enum.auto()
    HANG = enum.auto()
    RESET = enum.auto()
    END = enum.auto()  # closed in good order, without an answer
    CUT = enum.auto()  # part of the answer, then closed
    GARBAGE = enum.auto()


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """Let `late_s` pass, process the request if `processes`, let `slow_s` pass, then end as `how` says.

    `answer` replaces what processing gave, if it is set.
    """

    how: How = How.ANSWER
    processes: bool = True
    answer: Answer | None = None
    late_s: float = 0.0
    slow_s: float = 0.0
    share: float = 1.0
    garbage: bytes = b""


PLAIN = Exchange()


def planned(fault: Fault | None, *, late_s: float, slow_s: float) -> Exchange:
    """The exchange that a fault makes of a request."""
    if fault is None:
        return Exchange(slow_s=slow_s) if slow_s else PLAIN
    dropped = How.END if fault.by_end else How.RESET
    match fault.kind:
        case Kind.HANG:
            return Exchange(how=How.HANG, processes=fault.after)
        case Kind.LOSE_BEFORE:
            return Exchange(how=dropped, processes=False, slow_s=slow_s)
        case Kind.LOSE_AFTER:
            return Exchange(how=dropped, slow_s=slow_s)
        case Kind.FLOOD:
            return Exchange(processes=False, answer=failure(too_many(fault.retry_after)), slow_s=slow_s)
        case Kind.ERROR:
            return Exchange(
                processes=fault.after,
                answer=error_answer(fault.status, html=fault.html, words=fault.words),
                slow_s=slow_s,
            )
        case Kind.LATE:
            return Exchange(late_s=late_s, slow_s=slow_s)
        case Kind.TRUNCATE:
            return Exchange(how=How.CUT, share=fault.share, slow_s=slow_s)
        case Kind.GARBAGE:
            return Exchange(
                how=How.GARBAGE, processes=fault.after, garbage=fault.garbage.encode("latin-1"), slow_s=slow_s
            )
        case _:
            return PLAIN


def error_answer(status: int, *, html: bool, words: str = "") -> Answer:
    """A 5xx as the Bot API server gives it, or as the nginx before it does."""
    reason = REASONS.get(status, "Error")
    if html:
        return Answer(status, _HTML.format(f"{status} {reason}").encode(), (("Content-Type", "text/html"),))
    return Answer(status, encode({"ok": False, "error_code": status, "description": words or reason}), (JSON_TYPE,))
