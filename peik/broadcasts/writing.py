"""What each recipient is sent: the call of the broadcast with its chat, and {placeholders} filled in."""

import html
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from peik.broadcasts.ports import Outgoing
from peik.broadcasts.records import Broadcast, Entry, Recipient
from peik.core.letter import Chat, Priority
from peik.core.problem import BadInput

FILLED = ("text", "caption")
CONTACT_COLUMNS = ("name", "username", "language")
DELETED_AT_ONCE = 100  # by one deleteMessages
_PLACEHOLDER = re.compile(r"\{(\{)?([A-Za-z_][A-Za-z0-9_]*)\}(?(1)\})")  # {{name}} is {name}, plainly
_MARKDOWN = re.compile(r"([_*`\[])")
_MARKDOWN_V2 = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")


def label_of(broadcast_id: str) -> str:
    """The message_type of its letters."""
    return f"broadcast:{broadcast_id}"


def recall_label_of(broadcast: Broadcast) -> str:
    return f"{label_of(broadcast.id)}{_recall(broadcast)}"


def _recall(broadcast: Broadcast) -> str:
    """What tells letters of one recall from those of another: a letter of an earlier one is no letter of this."""
    return f":recall{broadcast.recalls or ''}"


def letter_to(broadcast: Broadcast, entry: Entry, recipient: Recipient) -> Outgoing:
    """The same for the same turn, whenever it is made: a repeat under its key must be the same call."""
    return Outgoing(
        method=broadcast.method,
        params=params_for(broadcast, recipient.chat, recipient.values),
        key=_key(broadcast.id, entry, ""),
        label=label_of(broadcast.id),
        number=entry.number,
        round=entry.round,
        priority=Priority.BULK,
        on_uncertain=broadcast.on_uncertain,
    )


def preview_of(broadcast: Broadcast, chat: Chat, recipient: Recipient | None) -> Outgoing:
    values = None if recipient is None else recipient.values
    return Outgoing(method=broadcast.method, params=params_for(broadcast, chat, values), priority=Priority.HIGH)


def deletion_of(broadcast: Broadcast, entry: Entry, recipient: Recipient) -> Outgoing:
    """The letter that takes its messages back."""
    ids = recipient.messages[:DELETED_AT_ONCE]
    method, what = (
        ("deleteMessage", {"message_id": ids[0]}) if len(ids) == 1 else ("deleteMessages", {"message_ids": ids})
    )
    return Outgoing(
        method=method,
        params=msgspec.json.encode({"chat_id": recipient.chat, **what}),
        key=_key(broadcast.id, entry, _recall(broadcast)),
        label=recall_label_of(broadcast),
        number=entry.number,
        round=entry.round,
        priority=Priority.BULK,
    )


def _key(broadcast_id: str, entry: Entry, what: str) -> str:
    return f"peik-broadcast:{broadcast_id}:{entry.number}{what}" + (f":{entry.round}" if entry.round else "")


def params_for(broadcast: Broadcast, chat: Chat, values: Mapping[str, str] | None) -> bytes:
    params = msgspec.json.decode(broadcast.params, type=dict[str, object])
    params["chat_id"] = chat
    if broadcast.paid is not None:
        params["allow_paid_broadcast"] = True
    escaped = _escape(params.get("parse_mode"))
    for name in FILLED:
        text = params.get(name)
        if isinstance(text, str):
            params[name] = _filled(text, values or {}, escaped)
    return msgspec.json.encode(params)


def _filled(text: str, values: Mapping[str, str], escaped: Callable[[str], str]) -> str:
    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:-1]
        value = values.get(found[2])
        return found[0] if value is None else escaped(value)

    return _PLACEHOLDER.sub(fill, text)


def _escape(parse_mode: object) -> Callable[[str], str]:
    """A value is text, whatever is in it: somebody's name must not break the markup."""
    match str(parse_mode or "").lower():
        case "html":
            return lambda text: html.escape(text, quote=True)
        case "markdownv2":
            return lambda text: _MARKDOWN_V2.sub(r"\\\1", text)
        case "markdown":
            return lambda text: _MARKDOWN.sub(r"\\\1", text)
        case _:
            return lambda text: text


def check_placeholders(params: Mapping[str, object], columns: Sequence[str]) -> None:
    """Raises BadInput for one that no column fills: it would be sent as it stands, to everybody."""
    known = f"there is no such column. There are: {', '.join(columns)}" if columns else "there are no columns"
    for name in FILLED:
        text = params.get(name)
        for is_plain, found in _PLACEHOLDER.findall(text) if isinstance(text, str) else ():
            if not is_plain and found not in columns:
                raise BadInput(
                    code="unknown_placeholder",
                    detail=f"{name} has {{{found}}}, and {known}. If it is meant as it stands, write {{{{{found}}}}}.",
                )
