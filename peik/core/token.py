"""A bot token as a type. Its repr and str are masked, so that no log line, error or format string can show one."""

import re

from peik.errors import BadInput

# Telegram's form is "<bot id>:<secret>"; the secret's length has changed over the years, so only the alphabet is checked.
# "/test" after it is a bot of Telegram's test servers: with it every path of that bot is right by itself.
_FORM = re.compile(r"([1-9][0-9]{0,15}):([A-Za-z0-9_-]{3,128})(/test)?")
# An account of a person has no token: its place is taken by a mark that no bot's token can be, so that nobody can come to a
# door with it.
_ACCOUNT = re.compile(r"([1-9][0-9]{0,15}):@account")
# In texts of others. They stand in URLs, right behind "bot", and URLs stand in errors; times and ports are shorter. Some write
# their signs as %3A, also twice (%253A), or as \u003a.
_WITHIN = re.compile(
    r"(?<![0-9])([1-9][0-9]{4,15}(?::|%(?:25)*3a|\\+u003a))(?:[a-z0-9_-]|%(?:25)*(?:2d|5f)){10,}", re.IGNORECASE
)

_PASSWORD = re.compile(r"(://[^\s:/?#@\"']*):[^\s/?#\"']*@")


def without_tokens(text: str) -> str:
    """A text that may hold tokens, fit to be kept and shown. Before it is cut: half a token is still one."""
    return _WITHIN.sub(r"\1***", text)


def without_secrets(text: str) -> str:
    """The same for the log, without the passwords of addresses besides: of stores, of proxies, of whatever a library calls."""
    return _PASSWORD.sub(r"\1:***@", without_tokens(text))


class Token:
    """A bot's credential. Only `reveal()` gives its text, and only the carrier and the store call it."""

    __slots__ = ("_text", "bot_id", "is_account")

    bot_id: int
    is_account: bool  # a person's, which letters go out for by MTProto: there is nothing secret in it

    def __init__(self, text: str) -> None:
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise BadInput(
                code="malformed_token",
                detail="This is not a bot token. It should look like 123456789:AAE… as @BotFather gave it.",
            )
        self._text = match[0]
        self.bot_id = int(match[1])
        self.is_account = False

    @classmethod
    def of_account(cls, user_id: int) -> "Token":
        """In the place of a token, for an account of a person."""
        return cls.stored(f"{user_id}:@account")

    @classmethod
    def stored(cls, text: str) -> "Token":
        """As `reveal` gave it, whether of a bot or of an account: for stores alone."""
        match = _ACCOUNT.fullmatch(text)
        if match is None:
            return cls(text)
        token = cls.__new__(cls)
        token._text = match[0]  # noqa: SLF001  its own
        token.bot_id = int(match[1])
        token.is_account = True
        return token

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
