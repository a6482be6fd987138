"""A bot token as a type. Its repr and str are masked, so that no log line, error or format string can show one."""

import re

from peik.core.problem import BadInput

# Telegram's form is "<bot id>:<secret>"; the secret's length has changed over the years, so only the alphabet is checked.
# "/test" after it is a bot of Telegram's test servers: with it every path of that bot is right by itself.
_FORM = re.compile(r"([1-9][0-9]{0,15}):([A-Za-z0-9_-]{3,128})(/test)?")


class Token:
    """A bot's credential. Only `reveal()` gives its text, and only the carrier and the store call it."""

    __slots__ = ("_text", "bot_id")

    def __init__(self, text: str) -> None:
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise BadInput(
                code="malformed_token",
                detail="This is not a bot token. It should look like 123456789:AAE… as @BotFather gave it.",
            )
        self._text = match[0]
        self.bot_id = int(match[1])

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Token({self.bot_id}:***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)
