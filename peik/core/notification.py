"""Notifications as pure decisions: how one reads, what several become, and when the next may go to the same person."""

import html
import re
from collections.abc import Mapping, Sequence

import msgspec

from peik.core.notice import places_of, put_in
from peik.core.problem import BadInput

TEXT_UNITS_MAX = 4096  # of a message, in UTF-16 code units after its markup is read
CAPTION_UNITS_MAX = 1024
BULLET = "• "
RATE_WINDOW_MS = 3600 * 1000
DEFAULT = "default"  # as a type: for every type; as a language: for every language
OWN_PLACES = frozenset({"title", "message"})

_TAG = re.compile(r"<[^<>]*>")
_PLACE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

# Those that carry a text of their own beside what they show.
CAPTIONED = frozenset({"sendPhoto", "sendDocument", "sendVideo", "sendAnimation", "sendAudio", "sendVoice"})


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What one notification has to say."""

    title: str
    message: str
    data: Mapping[str, str | int | float | bool] = {}
    is_html: bool = False  # the message is markup of the caller's own
    template: str | None = None  # None: the plain one


def rendered(said: Said) -> str:
    """As HTML of Telegram's. Raises BadInput if the template names what is not in the data."""
    message = said.message if said.is_html else html.escape(said.message, quote=False)
    if said.template is None:
        return f"<b>{html.escape(said.title, quote=False)}</b>\n\n{message}" if said.title else message
    values = {name: html.escape(_written(value), quote=True) for name, value in said.data.items()}
    values |= {"title": html.escape(said.title, quote=False), "message": message}
    for place in places_of(said.template):
        if place not in values:
            detail = f"The template of this type speaks of {{{place}}}: give it in data."
            raise BadInput(code="missing_data", detail=detail)
    return put_in(said.template, values).strip()


def merged(several: Sequence[Said]) -> list[str]:
    """The same as few messages: under one title if they share it, else one below the other. None is left out."""
    first = several[0]
    if len(several) > 1 and all(one.template is None and one.title == first.title for one in several):
        head = f"<b>{html.escape(first.title, quote=False)}</b>\n" if first.title else ""
        lines = [rendered(msgspec.structs.replace(one, title="")) for one in several]
        bullets = [BULLET + line if units_of(BULLET + line) <= TEXT_UNITS_MAX else line for line in lines]
        return _parts(bullets, head=head, between="\n")
    return _parts([rendered(one) for one in several], head="", between="\n\n")


def _parts(texts: Sequence[str], *, head: str, between: str) -> list[str]:
    parts: list[str] = []
    for text in texts:
        longer = f"{parts[-1]}{between}{text}" if parts else ""
        if parts and units_of(longer) <= TEXT_UNITS_MAX:
            parts[-1] = longer
        else:
            parts.append(head + text)
            if head and units_of(parts[-1]) > TEXT_UNITS_MAX:
                parts[-1] = text
    return parts


def units_of(markup: str) -> int:
    """How long Telegram finds it: without tags, in UTF-16 code units."""
    return len(html.unescape(_TAG.sub("", markup)).encode("utf-16-le", "surrogatepass")) // 2


def _written(value: str | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def check_template(text: str) -> None:
    """Raises BadInput if it could never be filled, or never be sent."""
    if not text.strip() or units_of(text) > TEXT_UNITS_MAX:
        raise BadInput(code="bad_template", detail=f"A template has 1 to {TEXT_UNITS_MAX} characters.")
    try:
        places = places_of(text)
    except ValueError as error:
        detail = f"The template cannot be read: {error}. Write {{{{ and }}}} for braces that are meant as such."
        raise BadInput(code="bad_template", detail=detail) from None
    for place in places:
        if _PLACE.fullmatch(place) is None:
            detail = f"{{{place}}} is no name of a field: letters, digits and underscores, beginning with a letter."
            raise BadInput(code="bad_template", detail=detail)


def template_keys(kind: str, language: str | None) -> list[str]:
    """Where a template is looked for, the best first: fa-IR, fa and the default of the type, then of all types."""
    code = (language or "").lower().replace("_", "-")
    languages = [one for one in dict.fromkeys((code, code.partition("-")[0], DEFAULT)) if one]
    return [f"{one}/{spoken}" for one in dict.fromkeys((kind, DEFAULT)) for spoken in languages]


# ---- when ----


def fresh(sent_ms: Sequence[int], *, at_ms: int) -> list[int]:
    """Of what was sent, that which still counts."""
    return [one for one in sent_ms if at_ms - RATE_WINDOW_MS < one <= at_ms]


def may_go_at(sent_ms: Sequence[int], *, at_ms: int, rate_max: int) -> int:
    """When one more may go to somebody who was sent these: at once, or when enough of them are an hour old."""
    counted = fresh(sent_ms, at_ms=at_ms)
    return at_ms if len(counted) < rate_max else sorted(counted)[-rate_max] + RATE_WINDOW_MS


def digest_at(at_ms: int, window_ms: int) -> int:
    """The end of the window in which this instant lies. Windows are the same on every node: they begin at full multiples."""
    return (at_ms // window_ms + 1) * window_ms
