"""What a form or an address says, field by field. A browser sends every field of a form: what is empty was not given."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import ImmutableMultiDict, UploadFile
from starlette.requests import Request

from peik.errors import BadInput, NotFound
from peik.outbox.service import OutboxService
from peik.outbox.store import BotRecord
from peik.web.dashboard.board import Visitor, must_see
from peik.web.openapi import WORD_CHARS_MAX
from peik.web.parse import instant_ms, parse_id, whole_number

CHARS_MAX = 200
_WITHOUT_OFFSET = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})(T(?P<minute>[0-9]{2}:[0-9]{2})(:(?P<second>[0-9]{2}(\.[0-9]{1,6})?))?)?",
    re.ASCII,
)
PAGE = 50  # rows of a list


class Fields:
    def __init__(self, given: ImmutableMultiDict[str, Any]) -> None:
        self._given = given

    @classmethod
    async def sent(cls, request: Request) -> "Fields":
        """Of a form. The dashboard has read it already, and bounded it."""
        return cls(await request.form())

    @classmethod
    def asked(cls, request: Request) -> "Fields":
        """Of an address."""
        return cls(request.query_params)

    def text(self, name: str, *, chars_max: int = CHARS_MAX) -> str | None:
        """Without the space around it. Raises BadInput if it is too long, or has what no database can be asked with."""
        value = self._given.get(name)
        text = value.strip() if isinstance(value, str) else ""
        return _checked(text, name, chars_max) or None

    def need(self, name: str, *, chars_max: int = CHARS_MAX) -> str:
        text = self.text(name, chars_max=chars_max)
        if text is None:
            raise BadInput(code="empty_field", detail=f"{name} is empty: fill it in.")
        return text

    def secret(self, name: str) -> str:
        """As it was typed, its spaces too."""
        value = self._given.get(name)
        if not isinstance(value, str) or not value:
            raise BadInput(code="empty_field", detail=f"{name} is empty: fill it in.")
        return _checked(value, name, 1024)

    def all(self, name: str) -> list[str]:
        """Of boxes that may be ticked together."""
        given = [value.strip() for value in self._given.getlist(name) if isinstance(value, str)]
        return [_checked(value, name, CHARS_MAX) for value in given if value]

    def is_on(self, name: str) -> bool:
        return bool(self._given.get(name))

    def id(self, name: str) -> int | None:
        """A number that is not negative."""
        text = self.text(name)
        return None if text is None else parse_id(text, name)

    def whole(self, name: str) -> int | None:
        """Also a negative one, as ids of groups are."""
        text = self.text(name)
        return None if text is None else whole_number(text, name)

    def decimal(self, name: str) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            number = float(text.replace(",", "."))
        except ValueError:
            number = float("nan")
        if not abs(number) < float("inf"):
            raise BadInput(code=f"bad_{name}", detail=f"{name} must be a number.")
        return number

    def instant(self, name: str) -> str | None:
        """A moment as REST takes it. What a browser's own field for times gives has no offset, and means UTC."""
        text = self.text(name)
        if text is None:
            return None
        moment = text
        if (bare := _WITHOUT_OFFSET.fullmatch(text)) is not None:
            moment = f"{bare['day']}T{bare['minute'] or '00:00'}:{bare['second'] or '00'}Z"
        instant_ms(moment, name)  # says what is wrong with it
        return moment

    def instant_ms(self, name: str) -> int | None:
        return instant_ms(self.instant(name), name)

    def file(self, name: str) -> UploadFile | None:
        """A file that was chosen."""
        value = self._given.get(name)
        return value if isinstance(value, UploadFile) and value.filename else None

    def address(self, path: str, *names: str) -> str:
        """The same list again: the path with those of these fields that were given."""
        given = {name: text for name in names if (text := self.text(name)) is not None}
        return f"{path}?{urlencode(given)}" if given else path


def _checked(text: str, name: str, chars_max: int) -> str:
    if len(text) > chars_max:
        raise BadInput(code="field_too_long", detail=f"{name} has at most {chars_max} characters.")
    if any(char == "\x00" or "\ud800" <= char <= "\udfff" for char in text):
        raise BadInput(code="bad_field", detail=f"{name} has a character that cannot be kept.")
    return text


# Filters of lists as visitors fill them in: an empty field says nothing, and a time without a zone is meant as UTC.


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
