"""A trace: the thread from what a person wrote to what Telegram answered us. Pure: how it is written, how headers are read.

The trace of an arrival is made of its bot and of its number there: `u7000001.501` for what bot 7000001 gets as update 501. So
nothing has to be kept to know it, and a bot in any language can tell it. A letter keeps the trace of what it answers, or a word
that its sender chose. `~` before it says that this is likely and not certain.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import msgspec

from peik.errors import BadInput

Certainty = Literal["exact", "likely"]
LIKELY = "~"
CHARS_MAX = 64
HEADER = "X-Peik-Trace"
PARENT_HEADER = "traceparent"

_ARRIVAL = re.compile(r"u([1-9]\d{0,18})\.([1-9]\d{0,17})")
_WORD = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{CHARS_MAX - 1}}}")
# https://www.w3.org/TR/trace-context: a version that is newer than ours may say more after its flags.
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


def trace_of(bot_id: int, number: int) -> str:
    return f"u{bot_id}.{number}"


def likely(trace: str) -> str:
    return LIKELY + trace


def is_likely(written: str) -> bool:
    return written.startswith(LIKELY)


def plain(written: str) -> str:
    """The trace itself, however sure we are of it."""
    return written.removeprefix(LIKELY)


def certainty(written: str) -> Certainty:
    return "likely" if is_likely(written) else "exact"


def arrival_in(written: str) -> tuple[int, int] | None:
    """The bot and the number of the arrival that a trace begins with; None: it begins elsewhere."""
    found = _ARRIVAL.fullmatch(plain(written))
    return None if found is None else (int(found[1]), int(found[2]))


def read_trace(text: str) -> str:
    """A trace as somebody gives it. Raises BadInput if it cannot be one."""
    if _WORD.fullmatch(text) is None:
        raise BadInput(
            code="bad_trace", detail=f"A trace is 1 to {CHARS_MAX} letters, digits and . _ : - (the first one no sign)."
        )
    return text


def read_parent(header: str) -> str | None:
    """The trace id of a W3C `traceparent`. None: it is not one, and then, as the standard says, it is as if it were not there."""
    found = _PARENT.fullmatch(header.strip())
    return None if found is None else found[1]


# ---- what Telegram made of it ----


class _Message(msgspec.Struct):
    message_id: int


_decode_message = msgspec.json.Decoder(_Message | list[_Message]).decode


def message_ids_in(result: str | bytes) -> tuple[int, ...]:
    """The ids of the messages that a result tells of; none for one that is only "true"."""
    try:
        found = _decode_message(result)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
    return tuple(one.message_id for one in found) if isinstance(found, list) else (found.message_id,)


# Which trace the code that runs now belongs to. Anyone who hands an arrival on sets it; the outbox reads it when letters
# come.
#
# It is a context variable: tasks that a handler begins belong to the same trace, and handlers beside each other never
# mix.


_current: ContextVar[str | None] = ContextVar("peik_trace", default=None)


def current_trace() -> str | None:
    return _current.get()


@contextmanager
def under(trace: str | None) -> Iterator[None]:
    """What runs inside belongs to this trace; None: to none."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)
