"""How sources ask Telegram: one call for one bot, judged. It never repeats one."""

from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from peik.carrier_ports import Request
from peik.core.arrival import mended
from peik.core.outcome import Delivered, Limited, Moved, Outcome, Refused, Uncertain, Unsent, judge
from peik.core.reply import Reply
from peik.core.token import Token

CALL_TIMEOUT_S = 20.0


class Way(Protocol):
    """The way to Telegram."""

    async def carry(self, request: Request) -> Reply: ...

    def when_back(self, ring: Callable[[], None]) -> None: ...


class WebhookInfo(msgspec.Struct, frozen=True):
    """What Telegram says of a bot's webhook, as far as it matters to us. `url` is empty if there is none."""

    url: str = ""
    pending_update_count: int = 0
    last_error_date: int = 0
    last_error_message: str = ""

    @property
    def host(self) -> str:
        """All of the address that may be shown: the rest can hold a secret."""
        try:
            return urlsplit(self.url if "://" in self.url else f"https://{self.url}").hostname or "?"
        except ValueError:
            return "?"


_decode_info = msgspec.json.Decoder(WebhookInfo).decode


def read_info(result: bytes) -> WebhookInfo | None:
    try:
        return _decode_info(result)
    except msgspec.DecodeError:
        return None


def webhook_url(public_url: str | None, bot_id: int) -> str | None:
    """Where Telegram is to push a bot's updates. None: nobody said where we can be reached."""
    return None if public_url is None else f"{public_url}/webhook/{bot_id}"


async def ask(
    way: Way, token: Token, method: str, params: bytes = b"{}", *, timeout_s: float = CALL_TIMEOUT_S
) -> Outcome:
    reply = await way.carry(Request(token=token, method=method, params=params, timeout_s=timeout_s))
    outcome = judge(reply, method=method)
    if isinstance(outcome, Uncertain) and reply.status == 200:
        # Telegram said yes in a way that cannot be read. If only its characters are broken, it is read all the same.
        whole = mended(reply.body)
        if whole is not None:
            return judge(Reply(status=200, body=whole), method=method)
    return outcome


def words_of(outcome: Outcome) -> str:
    """Why it did not work, for people."""
    match outcome:
        case Refused(words=words, advice=advice):
            return f"{words}. {advice}"
        case Unsent(why=why) | Uncertain(why=why):
            return why
        case Limited(retry_after_s=wait_s):
            return f"Telegram asked to wait {wait_s:g} s"
        case Delivered() | Moved():
            return "an answer that means nothing here"
