"""The messages that every measurement sends, Peik's and its peers': about 200 bytes of text, to 400 chats, from one bot."""

import msgspec

BOT_ID = 123456789
TOKEN = f"{BOT_ID}:AAE-bench-bench-bench-bench-bench-0"
CHATS = 400
TEXT_BYTES = 200

_FILLING = ("Your order has left the warehouse and will be with you soon. " * 4)[: TEXT_BYTES - 9]
_encode = msgspec.json.Encoder().encode


def fields(number: int, *, chats: int = CHATS) -> dict[str, int | str]:
    """The parameters of one sendMessage, as a program has them."""
    return {"chat_id": 1_000_000 + number % chats, "text": f"{number:08d} {_FILLING}"}


def params(number: int, *, chats: int = CHATS) -> bytes:
    """The same as a caller would encode them."""
    return _encode(fields(number, chats=chats))
