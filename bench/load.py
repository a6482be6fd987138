"""The work that every measurement does: messages of about 200 bytes to 400 chats, from one bot."""

from collections.abc import Iterator

import msgspec

from peik.desk import Call

BOT_ID = 123456789
TOKEN = f"{BOT_ID}:AAE-bench-bench-bench-bench-bench-0"
CHATS = 400
TEXT_BYTES = 200

_FILLING = ("Your order has left the warehouse and will be with you soon. " * 4)[: TEXT_BYTES - 9]
_encode = msgspec.json.Encoder().encode


def params(number: int) -> bytes:
    """The parameters of one sendMessage as a caller would encode them."""
    return _encode({"chat_id": 1_000_000 + number % CHATS, "text": f"{number:08d} {_FILLING}"})


def call(number: int) -> Call:
    return Call(method="sendMessage", params=params(number))


def batch_bodies(letters: int, *, per_batch: int) -> Iterator[bytes]:
    """Bodies of POST /v1/letters/batch."""
    for start in range(0, letters, per_batch):
        numbers = range(start, min(start + per_batch, letters))
        yield _encode({"letters": [{"method": "sendMessage", "params": msgspec.Raw(params(n))} for n in numbers]})
