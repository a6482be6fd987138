"""Letters as people look at them: a line in a list, or one with its whole history."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from peik.cli.client import Document
from peik.cli.output import age, facts, plain, state, table, when

_WORDS_MAX = 60
_SAYING = ("text", "caption", "question", "title", "phone_number", "emoji")
_PRIORITIES = {2: "critical", 1: "high", 0: "normal", -1: "bulk"}


def letters_table(letters: Sequence[Document], *, empty: str, is_dead: bool = False) -> RenderableType:
    """The last column is what one looks for first: why a letter is dead, or what it says."""
    several = len({letter["bot_id"] for letter in letters}) > 1
    columns = ["id", "age", "chat", "method", "tries", "says", "reason"]
    if not is_dead:
        columns = ["id", "state", "age", "chat", "method", "tries", "says"]
    if several:
        columns.insert(columns.index("chat"), "bot")
    rows = [[_cells(letter)[column] for column in columns] for letter in letters]
    return table(columns, rows, right=("id", "tries"), shrinking=("says", "method", "chat"), empty=empty)


def log_table(messages: Sequence[Document]) -> RenderableType:
    columns = ["id", "at", "state", "chat", "user", "type", "text", "error"]
    rows = [
        [
            one["id"],
            when(one["created_at"]),
            state(one["state"]),
            one["chat_id"],
            one["user_id"],
            one["message_type"],
            _shortened(str(one["text"] or one["method"])),
            one["error"],
        ]
        for one in messages
    ]
    shrinking = ("text", "error", "chat", "user", "type")
    return table(columns, rows, right=("id",), shrinking=shrinking, empty="There are no such messages.")


def _cells(letter: Document) -> dict[str, object]:
    return {
        "id": letter["id"],
        "state": state(letter["state"]),
        "age": age(letter["created_at"]),
        "bot": letter["bot_id"],
        "chat": _chat(letter),
        "method": letter["method"],
        "tries": _tries(letter),
        "says": _shortened(_says(letter)),
        "reason": letter["failed_reason"],
    }


def _attempts(letter: Document) -> str:
    """Uncertain tries may go beyond `attempts`, so that there is no "of" for them."""
    made = str(letter["attempts_made"])
    return made if letter["uncertain_tries"] else f"{made} of {letter['attempts']}"


def letter_page(letter: Document) -> RenderableType:
    priority = letter["priority"]
    head = facts(
        [
            ("letter", letter["id"]),
            ("state", state(letter["state"])),
            ("why", letter.get("why")),
            ("reason", None if letter["failed_reason"] is None else plain(letter["failed_reason"], "red")),
            ("bot", letter["bot_id"]),
            ("chat", _chat(letter)),
            ("method", letter["method"]),
            ("says", _says(letter)),
            ("priority", _PRIORITIES.get(priority, priority) if isinstance(priority, int) else priority),
            ("attempts", _attempts(letter)),
            ("uncertain tries", letter["uncertain_tries"] or None),
            ("after an uncertain try", letter["on_uncertain"]),
            ("message id", _message_id(letter["result"])),
            ("merged into", letter["merged_into"]),
            ("answers", _trace(letter)),
            ("accepted", when(letter["created_at"])),
            ("to be sent", when(letter["send_at"])),
            ("expires", when(letter["expires_at"])),
            ("ended", when(letter["finished_at"])),
        ]
    )
    history = letter["history"]
    lines = history if isinstance(history, list) else []
    if not lines:
        return head
    rows = [(when(line.get("at")), line.get("outcome"), line.get("code"), _words(line)) for line in lines]
    return Group(head, "", table(("tried", "outcome", "code", "Telegram's words"), rows, empty=""))


def _words(line: Document) -> str:
    retry = line.get("retry_after_s")
    return f"{line.get('words') or ''}" + (f" (asked to wait {retry:g} s)" if isinstance(retry, int | float) else "")


def _chat(letter: Document) -> str:
    return f"{letter['chat_id']}" + (f" · topic {letter['thread_id']}" if letter.get("thread_id") else "")


def _tries(letter: Document) -> str:
    uncertain = letter["uncertain_tries"]
    return f"{letter['attempts_made']}" + (f" ({uncertain}?)" if uncertain else "")


def _says(letter: Document) -> str:
    params = letter["params"]
    if not isinstance(params, dict):
        return ""
    return next((str(params[name]) for name in _SAYING if params.get(name)), "")


def _shortened(text: str) -> str:
    return text if len(text) <= _WORDS_MAX else text[: _WORDS_MAX - 1] + "…"


def _trace(letter: Document) -> str | None:
    if letter.get("trace") is None:
        return None
    return f"{letter['trace']}" + (" (likely)" if letter.get("trace_certainty") == "likely" else "")


def _message_id(result: object) -> object:
    return result.get("message_id") if isinstance(result, dict) else None
