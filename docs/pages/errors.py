"""Telegram's errors, from the catalogue."""

from docs.pages.markdown import code, table
from peik.core.catalogue import CATALOGUE, CatalogueEntry

_VERDICTS = {
    "already so": "success: the world is as the caller wants it",
    "already so, if tried before": "success if an earlier try may have arrived, otherwise final",
    "delivered, then deleted": "success, with nothing to show for it",
    "passing": "tried again after a backoff; costs one of the attempts",
    "final": "the letter fails at once, with Telegram's words",
    "partly done": "the letter fails at once, and counts an uncertain try",
    "uncertain": "it may have arrived: the letter's own `on_uncertain` decides",
    "moved": "re-addressed and sent again at once; costs nothing",
    "limited": "the chat, or the bot, waits as long as Telegram asks; costs nothing",
}


def errors_parts() -> list[str]:
    rows = [
        (str(entry.code), _words(entry), entry.verdict.value, entry.scope.value, _advice(entry)) for entry in CATALOGUE
    ]
    used = {entry.verdict.value for entry in CATALOGUE}
    meanings = [(name, meaning) for name, meaning in _VERDICTS.items() if name in used]
    return [
        (
            "What Peik makes of each answer of Telegram's. The table is read from top to bottom and the first row that fits "
            "wins: the code is equal, and the words, a regular expression, are found in the lower-cased description. The scope "
            "says how far a refusal reaches: one message, the whole chat (its letters fail at once until it opens again) or "
            "the whole bot (its letters wait). An unknown 5xx is uncertain, any other unknown code is final."
        ),
        table(("code", "words", "verdict", "scope", "what to do"), rows),
        "## Verdicts",
        table(("verdict", "what becomes of the letter"), meanings),
    ]


def _words(entry: CatalogueEntry) -> str:
    words = code(entry.words) if entry.words else "any"
    return f"{words}, for methods like {code(entry.methods)}" if entry.methods else words


def _advice(entry: CatalogueEntry) -> str:
    bound = "" if entry.attempts_max is None else f" At most {entry.attempts_max} attempts."
    mended = " To a bot that waits at the gateway it is passed on at once." if entry.may_be_mended else ""
    return f"{entry.advice}{bound}{mended}"
