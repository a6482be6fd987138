"""Server-sent events as they come in: bytes to frames, and places in feeds to the ids that a stream begins behind."""

import base64
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec

from peik.errors import Unavailable

NOT_PEIK = "not_peik"
FRAME_BYTES_MAX = 16 * 1024 * 1024
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # a session id that may stand in an id as it is


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    event: str
    data: str
    id: str | None  # of this frame; None: it had none
    number: int  # the line's own, which is Peik's addition; 0: it has none


async def frames(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[Frame, None]:
    """Also those that only tell an id. A frame that is cut off is none. Raises Unavailable if this cannot be a stream."""
    rest = b""
    async with aclosing(chunks):
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n\n")
            for one in whole:
                frame = _frame(one.decode("utf-8", "replace"))
                if frame is not None:
                    yield frame
            if len(rest) > FRAME_BYTES_MAX:
                raise Unavailable(code=NOT_PEIK, detail="What answers at this address is no stream of Peik's.")


def _frame(text: str) -> Frame | None:
    """Peik writes one line of data, and ends lines with LF."""
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")
    if "data" not in fields and "id" not in fields:
        return None
    number = fields.get("number", "")
    return Frame(
        event=fields.get("event", ""),
        data=fields.get("data", ""),
        id=fields.get("id"),
        number=int(number) if number.isdecimal() else 0,
    )


def id_of(places: Mapping[str, int], session_id: str | None) -> str:
    """As `peik.doors.session_sse` writes them: `session_id:number` of one session, or all places as one word."""
    if session_id is not None:
        number = places.get(session_id, 0)
        if _PLAIN.fullmatch(session_id):
            return f"{session_id}:{number}"
        places = {session_id: number}
    return base64.urlsafe_b64encode(msgspec.json.encode(places)).rstrip(b"=").decode()


def places_of(text: str) -> dict[str, int]:
    """What an id says. Raises Unavailable if it is none of Peik's."""
    name, colon, number = text.rpartition(":")
    try:
        if colon:
            return {name: int(number)}
        return _decode_places(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, msgspec.DecodeError):
        raise Unavailable(code=NOT_PEIK, detail="A stream gave an id that is none of Peik's.") from None


_decode_places = msgspec.json.Decoder(dict[str, int]).decode
