"""Who is written to: a list of chats, or the rows of a CSV. Duplicates go, what cannot be a chat is refused."""

import csv
import io
import re
from collections.abc import Iterable, Mapping

import msgspec

from peik.core.call import chat_key
from peik.core.letter import Chat
from peik.core.problem import BadInput
from peik.paper_ports import ContactFilter

RECIPIENTS_MAX = 1_000_000
COLUMNS_MAX = 50
VALUE_CHARS_MAX = 1000
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CHAT = re.compile(r"-?[0-9]{1,15}|@[A-Za-z0-9_]{1,64}")


class ListAudience(msgspec.Struct, frozen=True, kw_only=True):
    """Chats, each with the values of its columns."""

    recipients: tuple[tuple[Chat, dict[str, str] | None], ...]
    columns: tuple[str, ...] = ()
    duplicates: int = 0


class ContactAudience(msgspec.Struct, frozen=True, kw_only=True):
    """Known chats of the bot, as they are when the broadcast starts."""

    wanted: ContactFilter = ContactFilter()


Audience = ListAudience | ContactAudience


def listed(chats: Iterable[int | str]) -> ListAudience:
    """Raises BadInput."""
    return _gathered(((chat, None, f"Chat {index + 1}") for index, chat in enumerate(chats)), ())


def read_csv(raw: bytes) -> ListAudience:
    """Rows with a column chat_id; the others can be named in {placeholders}. Raises BadInput, with the line."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(code="bad_csv", detail="The CSV is not text in UTF-8.") from None
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    try:
        head = [name.strip() for name in next(rows, [])]
        return _gathered(_read_rows(rows, _checked_head(head)), tuple(name for name in head if name != "chat_id"))
    except csv.Error as error:
        raise BadInput(code="bad_csv", detail=f"Line {rows.line_num} of the CSV cannot be read: {error}.") from None


def _delimiter(text: str) -> str:
    """Spreadsheets of half the world write semicolons."""
    head = text.partition("\n")[0]
    return max(",;\t", key=head.count) if any(mark in head for mark in ",;\t") else ","


def _checked_head(head: list[str]) -> list[str]:
    if "chat_id" not in head:
        raise BadInput(code="bad_csv", detail="The first line of the CSV must name its columns, chat_id among them.")
    if len(set(head)) != len(head) or len(head) > COLUMNS_MAX:
        raise BadInput(code="bad_csv", detail=f"Columns have different names, and there are at most {COLUMNS_MAX}.")
    for name in head:
        if _COLUMN.fullmatch(name) is None:
            raise BadInput(
                code="bad_csv", detail=f"The name of a column has Latin letters, digits and _ only, not {name[:40]!r}."
            )
    return head


def _read_rows(rows: "csv._reader", head: list[str]) -> Iterable[tuple[str, dict[str, str] | None, str]]:  # type: ignore[name-defined]
    for row in rows:
        where = f"Line {rows.line_num} of the CSV"
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(head):
            raise BadInput(code="bad_csv", detail=f"{where} has {len(row)} cells; the first line has {len(head)}.")
        values = dict(zip(head, row, strict=True))
        chat = values.pop("chat_id")
        if any(len(value) > VALUE_CHARS_MAX for value in values.values()):
            raise BadInput(code="bad_csv", detail=f"{where}: a value has at most {VALUE_CHARS_MAX} characters.")
        yield chat, values or None, where


def _gathered(
    rows: Iterable[tuple[int | str, Mapping[str, str] | None, str]], columns: tuple[str, ...]
) -> ListAudience:
    """Of several rows of one chat the first counts."""
    found: dict[Chat, dict[str, str] | None] = {}
    seen = 0
    for chat, values, where in rows:
        seen += 1
        if seen > RECIPIENTS_MAX:
            raise BadInput(
                code="too_many_recipients", detail=f"A broadcast has at most {RECIPIENTS_MAX} recipients; make several."
            )
        found.setdefault(_chat(chat, where), None if values is None else dict(values))
    if not found:
        raise BadInput(code="no_recipients", detail="There is nobody to write to.")
    return ListAudience(recipients=tuple(found.items()), columns=columns, duplicates=seen - len(found))


def _chat(chat: int | str, where: str) -> Chat:
    text = str(chat).strip().removeprefix("'")  # as our own ledgers have it, for the sake of spreadsheets
    if isinstance(chat, bool) or _CHAT.fullmatch(text) is None:
        raise BadInput(code="bad_chat_id", detail=f"{where}: {str(chat)[:40]!r} is no chat. Give its number, or @name.")
    return chat_key(text)
