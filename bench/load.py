"""The same work as calls of Peik's, and as bodies of its REST door."""

from collections.abc import Iterator

import msgspec

from bench.payload import BOT_ID, CHATS, TEXT_BYTES, TOKEN, params
from peik.core.letter import LetterCall

__all__ = ["BOT_ID", "CHATS", "TEXT_BYTES", "TOKEN", "batch_bodies", "call", "params"]

_encode = msgspec.json.Encoder().encode


def call(number: int) -> LetterCall:
    return LetterCall(method="sendMessage", params=params(number))


def batch_bodies(letters: int, *, per_batch: int) -> Iterator[bytes]:
    """Bodies of POST /v1/letters/batch."""
    for start in range(0, letters, per_batch):
        numbers = range(start, min(start + per_batch, letters))
        yield _encode({"letters": [{"method": "sendMessage", "params": msgspec.Raw(params(n))} for n in numbers]})
