"""Filters of lists as visitors fill them in: an empty field says nothing, and a time without a zone is meant as UTC."""

import re
from collections.abc import Mapping
from urllib.parse import urlencode

from peik.desk import Desk
from peik.doors.bodies import parse_id
from peik.doors.dashboard.board import Visitor
from peik.doors.dashboard.reach import must_see
from peik.doors.queries import WORD_CHARS_MAX
from peik.errors import BadInput, NotFound
from peik.ports import BotRecord

_WITHOUT_ZONE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?", re.ASCII)
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


def in_utc(told: Mapping[str, str]) -> dict[str, str]:
    """The same with times that name their zone, as REST takes them."""
    return {name: _zoned(text) if name in _MOMENTS else text for name, text in told.items()}


def _zoned(text: str) -> str:
    if _WITHOUT_ZONE.fullmatch(text) is None:
        return text
    return f"{text}+00:00" if "T" in text else f"{text}T00:00+00:00"


def query_of(told: Mapping[str, object], **more: object) -> str:
    """As the end of an address; "" if there is nothing to say."""
    said = {name: str(value) for name, value in {**told, **more}.items() if value not in (None, "")}
    return f"?{urlencode(said)}" if said else ""


def bots_seen(desk: Desk, visitor: Visitor) -> list[BotRecord]:
    """Bots first, then accounts of people."""
    seen = (bot for bot in desk.bots() if visitor.sees(bot.bot_id))
    return sorted(seen, key=lambda bot: (bot.token.is_account, bot.bot_id))


def bot_seen(desk: Desk, visitor: Visitor, text: str) -> BotRecord:
    """Raises NotFound for a bot of others, in the words for one that is not there at all."""
    bot_id = parse_id(text, "bot_id")
    must_see(visitor, bot_id)
    return desk.bot(bot_id)


def bot_asked(desk: Desk, visitor: Visitor, text: str | None) -> BotRecord:
    """The bot that a field names, else the first that the visitor sees. Raises NotFound."""
    if text:
        return bot_seen(desk, visitor, text)
    for bot in bots_seen(desk, visitor):
        return bot
    raise NotFound(code="no_bot", detail="No bot is known yet: add one first.")
