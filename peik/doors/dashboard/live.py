"""`/admin/live`: tells open pages that something has changed, and nothing more. They ask for themselves again."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from starlette.requests import Request
from starlette.responses import Response

from peik.core.role import Role
from peik.doors.dashboard.board import COOKIE, Board, Page, Visitor
from peik.doors.dashboard.headers import cookie_of
from peik.doors.sse import RETRY_MS, ServerSentEvents, frame
from peik.errors import StoreUnavailable, Unavailable
from peik.events import Event

READERS_MAX = 200
OWN_READERS_MAX = 20  # of one browser: it has no more connections to one server anyway
GAP_S = 2.0  # between two ticks, however much happens
SILENCE_S = 10.0  # without one: what happens on other nodes is not heard here
LIFE_S = 600.0  # then the browser comes again


class Live:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._readers: dict[asyncio.Event, str] = {}  # whose each is
        self._is_over = False
        board.peik.events.listen(self.hear)

    def table(self) -> tuple[Page, ...]:
        return (("GET", "/admin/live", self.follow, Role.VIEWER, ""),)

    def hear(self, told: Sequence[Event]) -> None:
        for reader in self._readers:
            reader.set()

    def end(self) -> None:
        self._is_over = True
        self.hear(())

    async def follow(self, request: Request, visitor: Visitor) -> Response:
        if self._is_full(visitor.csrf):
            raise Unavailable(code="too_many_readers", detail="Too many pages are open. Reload this one by hand.")
        return ServerSentEvents(self._ticks(cookie_of(request, COOKIE) or "", visitor.csrf))

    def _is_full(self, whose: str) -> bool:
        own = sum(one == whose for one in self._readers.values())
        return len(self._readers) >= READERS_MAX or own >= OWN_READERS_MAX

    async def _ticks(self, token: str, whose: str) -> AsyncGenerator[bytes, None]:
        if self._is_full(whose):  # many were let in at once
            return
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + LIFE_S
        changed = asyncio.Event()
        self._readers[changed] = whose
        try:
            yield b"retry: %d\n\n" % RETRY_MS
            while not self._is_over and loop.time() < ends_at:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        await changed.wait()
                except TimeoutError:
                    pass
                changed.clear()
                if not await self._is_signed_in(token):
                    return
                yield frame(b"tick", b"{}")
                if not self._is_over:
                    await asyncio.sleep(GAP_S)
        finally:
            del self._readers[changed]

    async def _is_signed_in(self, token: str) -> bool:
        try:
            return await self._board.sign_ins.find(token) is not None
        except StoreUnavailable:
            return True  # a tick tells nothing; the page that it makes the browser ask for says what is wrong
