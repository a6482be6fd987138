"""What handing on one arrival means to those who do it: a taker, its verdict, and what the verdict costs. Values only."""

from typing import Protocol

import msgspec

from peik.core.arrival import Arrival
from peik.core.letter import Chat

WORDS_MAX = 500


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The taker has it."""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The taker could not do it: it costs the arrival a try."""

    words: str
    code: int | None = None
    trace: str | None = None


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """There was no taker: nothing that the arrival is to blame for."""

    why: str
    wait_s: float | None = None  # it asked for so much time


Verdict = Done | Failed | Away


class Taker(Protocol):
    async def deliver(self, arrival: Arrival, *, tries: int) -> Verdict:
        """Hand one on and say what came of it. Bounded in time; it raises only for surprises."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How often an arrival is tried, and the wait after the first failure; it doubles up to a minute."""

    attempts: int
    first_ms: int


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of an arrival's history. Fields of letters' histories have the same names."""

    at: int
    outcome: str
    code: int | None = None
    words: str
    traceback: str | None = None


def line_of(failed: Failed, *, at_ms: int) -> str:
    line = _Line(at=at_ms, outcome="failed", code=failed.code, words=failed.words[:WORDS_MAX], traceback=failed.trace)
    return msgspec.json.encode(line).decode()


class TellLimited(Protocol):
    """Tells a user, once, that what he writes is read more slowly than he writes it."""

    async def __call__(self, bot_id: int, user_id: int, chat: Chat, language_code: str | None) -> None: ...


async def tell_nobody(bot_id: int, user_id: int, chat: Chat, language_code: str | None) -> None:
    """The default: the event is enough."""


class _Person(msgspec.Struct):
    language_code: str | None = None


class _Sent(msgspec.Struct, rename={"sender": "from"}):
    sender: _Person | None = None
    user: _Person | None = None


_decode_sent = msgspec.json.Decoder(dict[str, _Sent]).decode


def language_of(arrival: Arrival) -> str | None:
    """What Telegram says of the user's language, if it does."""
    try:
        sent = _decode_sent(arrival.payload).get(arrival.type)
    except msgspec.DecodeError:
        return None
    person = None if sent is None else sent.sender or sent.user
    return None if person is None else person.language_code
