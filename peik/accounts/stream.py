"""What accounts see, as server-sent events. After a break a reader goes on behind the last id that it had, or, with a name,
behind what the archive has noted for it; lines may come twice then, and none is lost."""

import base64
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from peik.accounts.feeds import NUMBER_MAX, FeedFilter, Follower
from peik.archive.store import FeedRecord
from peik.errors import BadInput, Unavailable
from peik.web.responses import HEARTBEAT, HEARTBEAT_S, RETRY_MS, frame, joined

if TYPE_CHECKING:
    from peik.accounts.service import AccountService

ID_SESSIONS_MAX = 32  # an id that names more places stands only at the end of a page: it is longer than most lines
RENEW_AFTER = 240  # quiet heartbeats, an hour of them: the archive forgets readers that do not move for days
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # a session id that may stand in an id as it is
_decode_places = msgspec.json.Decoder(dict[str, int]).decode


async def session_stream(
    sessions: "AccountService", wanted: FeedFilter, *, last_id: str | None, reader: str | None
) -> AsyncGenerator[bytes, None]:
    """Frames, until Peik ends. Raises BadInput for an id that is none of ours, and Unavailable while the archive is away."""
    had = None if last_id is None else places_of(last_id, wanted.session_id)
    if reader is None and had is None:
        return _frames(await sessions.follow(wanted), wanted.session_id, None)
    named = None if reader is None else await sessions.follow(wanted, reader=reader)
    begin = _furthest({} if named is None else named.places, had or {})
    # A place behind the end of a feed was never given, or is of an archive that was put back: from there on nothing would
    # be heard for a long time.
    ends = (await sessions.follow(wanted)).places
    begin = {session_id: min(begin[session_id], end) for session_id, end in ends.items() if session_id in begin}
    bookmark = None if named is None else Bookmark(named)
    if bookmark is not None:
        await bookmark.keep(begin)
    return _frames(await sessions.follow(wanted, after=begin), wanted.session_id, bookmark)


def _furthest(places: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {name: max(places.get(name, 0), others.get(name, 0)) for name in {*places, *others}}


class Bookmark:
    """The places of a reader with a name, as far as they are in the archive."""

    def __init__(self, named: Follower) -> None:
        self._named = named
        self._kept = dict(named.places)
        self._quiet = 0

    async def keep(self, places: Mapping[str, int]) -> None:
        """Raises StoreUnavailable."""
        self._quiet += 1
        moved = {name: number for name, number in places.items() if self._kept.get(name) != number}
        if not moved and self._quiet < RENEW_AFTER:
            return
        self._named.places = moved if self._quiet < RENEW_AFTER else dict(places)
        await self._named.confirm()
        self._kept.update(moved)
        self._quiet = 0


async def _frames(follower: Follower, session_id: str | None, bookmark: Bookmark | None) -> AsyncGenerator[bytes, None]:
    told = dict(follower.places)
    # The id comes before any line: who is cut off before the first one must not begin anew, behind what came meanwhile.
    yield b"retry: %d\nid: %b\n\n" % (RETRY_MS, id_of(told, session_id))
    try:
        while True:
            lines = await follower.next(timeout_s=HEARTBEAT_S)
            if not lines and follower.is_over:
                return
            if bookmark is not None:
                # That it was written does not mean that it came; that the reader is still there when there is more does,
                # as far as anything can.
                await bookmark.keep(told)
            if lines:
                for chunk in joined(_events(lines, session_id, before=told, after=follower.places)):
                    yield chunk
            elif told == follower.places:
                yield HEARTBEAT + b"\n"
            else:  # what came was not wanted, and need not be looked at again
                yield HEARTBEAT + b"id: %b\n\n" % id_of(follower.places, session_id)
            told = dict(follower.places)
    except Unavailable:
        return  # the reader comes back, and resumes where it was


def _events(
    lines: Sequence[FeedRecord], session_id: str | None, *, before: Mapping[str, int], after: Mapping[str, int]
) -> Iterable[bytes]:
    """Each with its own number, and with the id of everything up to itself; the last one, also of what was left out behind it."""
    places = dict(before)
    for index, line in enumerate(lines, start=1):
        places[line.session_id] = line.number
        if index == len(lines):
            name: bytes | None = id_of(after, session_id)
        else:
            name = id_of(places, session_id) if len(places) <= ID_SESSIONS_MAX or session_id is not None else None
        yield b"number: %d\n" % line.number + frame(line.kind.encode(), line.body.encode(), id=name)


# ---- ids ----


def id_of(places: Mapping[str, int], session_id: str | None) -> bytes:
    """`session_id:number` where one session is followed; else, or if its name cannot stand there, all places as one word."""
    if session_id is not None:
        number = places.get(session_id, 0)
        if _PLAIN.fullmatch(session_id):
            return f"{session_id}:{number}".encode()
        places = {session_id: number}
    return base64.urlsafe_b64encode(msgspec.json.encode(places)).rstrip(b"=")


def places_of(text: str, session_id: str | None) -> dict[str, int]:
    """What an id says. Raises BadInput if it is not one of this stream's."""
    name, colon, number = text.rpartition(":")
    if colon:
        if name != session_id or not (number.isascii() and number.isdigit() and len(number) <= 18):
            raise _bad_id()
        return {name: int(number)}
    try:
        whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        places = _decode_places(whole)
    except (ValueError, msgspec.DecodeError):
        raise _bad_id() from None
    if not all(0 <= number < NUMBER_MAX for number in places.values()):
        raise _bad_id()
    return places if session_id is None else {session_id: places.get(session_id, 0)}


def _bad_id() -> BadInput:
    return BadInput(
        code="bad_last_event_id",
        detail="Last-Event-ID is not one of this stream's. Send the last one that it gave, or none to begin now.",
    )
