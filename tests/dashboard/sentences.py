"""Which sentences of the code may be shown on a page of the dashboard: read from the source, so that none is forgotten."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import peik

PEIK = Path(peik.__file__).parent
# Of these nobody hears at the dashboard: what is said in a terminal, to programs, or at the start.
_ELSEWHERE = re.compile(
    r"(^|/)(cli[a-z_]*|api|answers|wiring|tables|texts)\.py$"
    r"|^(cli|client|load|testing|demo|backups|importing|integrations|gateway|secrets|settings|monitoring|erasure/parts)\b"
    r"|^archive/(mongo|move|postgres|sqlite|cache)|^storage/(moving|open|message_log|executor|news)"
    r"|^storage/[a-z]+/(writer|erasure|session|database|store|nodes)\.py$"
    r"|^jobs/(processes|handover)\.py$|^app/(?!dashboard)|^(clock|__main__)\.py$|^alerts/(ways|service)\.py$"
    r"|^accounts/(stream|feeds|upkeep|telethon/updates)\.py$|^telegram/connect\.py$|^core/documents\.py$"
    r"|^web/(openapi|operations|connection|server|responses|bodies)\.py$|^inbox/(webhook_endpoint|delivery)\.py$"
)
# Parts of sentences, which begin small or end without a full stop, are said here.
_PARTS = re.compile(r"^(alerts/(rules|looks)|outbox/window|core/outcome|telegram/(routes|http|client))\.py$")
_SAYING = frozenset({"detail", "why", "reason", "words", "state_reason", "line", "failed_reason"})
_NAMED = frozenset({"detail", "why", "reason", "words", "CLEARED", "UNCERTAIN", "EXPIRED"})
# They look like sentences, and are none that anybody reads on a page.
_NOT_SAID = frozenset(
    {
        "to {}",
        "node {} {}",
        "there is always a way to try",
        "a connection carries one exchange at a time",
        "an exchange ends once",
        "whoever waited for an answer failed",
        "tuple[AlertRule[events.Event], ...]",
        "session_events.SessionRevoked | session_events.SessionUnfit | session_events.SessionFlooded",
        "The bot; may be left out when there is one.",
        "Wait for the end, at most so long: 10s.",
        "The next_cursor of the page before.",
        "A repeat with the same key within 48 hours is the same one.",
    }
)
HOLE = "{}"


def source_sentences() -> dict[str, str]:
    """Each with {} for what is put into it, and the file that says it."""
    found: dict[str, str] = {}
    for path in sorted(PEIK.rglob("*.py")):
        name = path.relative_to(PEIK).as_posix()
        if not _ELSEWHERE.search(name):
            for text in _said_in(ast.parse(path.read_text(encoding="utf-8")), has_parts=bool(_PARTS.match(name))):
                if text not in _NOT_SAID and not _is_bare(text):
                    found.setdefault(text, name)
    return found


def _said_in(tree: ast.Module, *, has_parts: bool) -> Iterator[str]:
    silent: set[int] = set()  # docstrings, and pieces of what is taken whole
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            silent.update(id(one) for one in ast.walk(node) if one is not node and isinstance(one, ast.Constant))
    for node in ast.walk(tree):
        if (isinstance(node, ast.keyword) and node.arg in _SAYING) or _is_saying(node):
            texts = (_text(one) for one in ast.walk(node.value) if id(one) not in silent)  # type: ignore[attr-defined]
            yield from (text for text in texts if text is not None and re.search(r"[a-z]{2} [a-z]|[a-z] \{", text))
        elif id(node) not in silent:
            text = _text(node)
            if text is not None and (_is_sentence(text) or (has_parts and _is_part(text))) and "[a-z" not in text:
                yield text


def _is_saying(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and any(isinstance(one, ast.Name) and one.id in _NAMED for one in node.targets)
        and not isinstance(node.value, ast.Call)
    )


def _is_bare(text: str) -> bool:
    return not re.search(r"[A-Za-z]", text.replace(HOLE, ""))


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else HOLE for one in node.values)
    return None


def _is_sentence(text: str) -> bool:
    return re.fullmatch(r"\s?[A-Z{][^\n]*[.?!]", text) is not None and len(text.split()) > 2 and "[a-z" not in text


def _is_part(text: str) -> bool:
    return re.search(r"[a-z]{2}", text.replace(HOLE, "")) is not None and " " in text.strip() and "\\b" not in text
