"""Brakes guessing: so many sign-ins that fail, for a name or from an address, and that one is refused for a while.

An attempt counts before it is looked at, and is taken back if it was right: a thousand guesses at once are no more than five.
Where somebody has signed in lately his attempts are counted apart, so that strangers elsewhere cannot lock him out by his name.
In a browser in which he has they are counted by that alone: behind a proxy that is not believed, all come from one address.
"""

import hashlib
import ipaddress
from collections.abc import Callable

import msgspec

from peik.clock import Clock
from peik.errors import Conflict, Forbidden
from peik.paper_ports import Filing, PaperStore

SHELF = "sign_in_attempts"
HOMES = "sign_in_homes"  # who has signed in from which network, and in which browser, all only as hashes
HOME_MS = 30 * 86_400_000
FAILURES_MAX = 5
WINDOW_MS = 15 * 60_000
REFUSED_MS = 15 * 60_000
_PAGE = 500


class Attempts:
    def __init__(self, papers: PaperStore, clock: Clock) -> None:
        self._papers = papers
        self._clock = clock

    async def begin(self, *, name: str | None, address: str, device: str = "") -> list[str]:
        """Count one, for the name and the address, or for the browser alone if it is known; what it was counted under. `device`:
        the word that the browser has kept. Raises Forbidden (`locked_out`)."""
        places = await self._places(name, address, device)
        while True:
            try:
                await self._count(places)
            except Conflict:
                continue  # somebody else tried at the same moment, and counts as well
            return places

    async def _places(self, name: str | None, address: str, device: str) -> list[str]:
        where = _place("address", _network(address))
        if name is None:
            return [where]
        home, browser = _home(name, address), _browser(name, device)
        known = await self._papers.those(HOMES, [home, browser])
        if browser in known:
            return [browser]
        return [where, home if home in known else _place("name", name.strip().lower())]

    async def forgive(self, places: list[str], *, name: str | None = None, address: str = "", device: str = "") -> None:
        """It was right: what it was counted under begins anew, and whoever has this name is at home at this address and in this
        browser."""
        filings = [Filing(shelf=SHELF, key=place, body=None) for place in places]
        if name is not None:
            homes = [_home(name, address), *([_browser(name, device)] if device else ())]
            filings += [Filing(shelf=HOMES, key=home, body=str(self._clock.wall_ms())) for home in homes]
        await self._papers.file(filings)

    async def sweep(self, *, at_ms: int) -> None:
        """Let go of those that are over; of homes that are too old at this settled time."""
        now_ms = self._clock.wall_ms()
        await self._let_go(SHELF, lambda body: not _recent(body, now_ms))
        await self._let_go(HOMES, lambda body: int(body) < at_ms - HOME_MS)

    async def _let_go(self, shelf: str, is_over: Callable[[str], bool]) -> None:
        after = None
        while page := await self._papers.papers(shelf, after=after, limit=_PAGE):
            over = [paper for paper in page if is_over(paper.body)]
            if over:
                await self._papers.file([Filing(shelf=shelf, key=paper.key, body=None) for paper in over])
            after = page[-1].key

    async def _count(self, places: list[str]) -> None:
        now_ms = self._clock.wall_ms()
        known = await self._papers.those(SHELF, places)
        filings = []
        for place in places:
            paper = known.get(place)
            recent = [] if paper is None else _recent(paper.body, now_ms)
            if len(recent) >= FAILURES_MAX:
                raise Forbidden(
                    code="locked_out", detail="Too many sign-ins failed. Wait a quarter of an hour, and try again."
                )
            filings.append(
                Filing(
                    shelf=SHELF,
                    key=place,
                    body=msgspec.json.encode([*recent, now_ms]).decode(),
                    version=0 if paper is None else paper.version,
                )
            )
        await self._papers.file(filings)


def _recent(body: str, now_ms: int) -> list[int]:
    """The attempts that still count: those of the last while, and all of them while somebody is refused for them."""
    times = msgspec.json.decode(body, type=list[int])
    if len(times) >= FAILURES_MAX and 0 <= now_ms - times[-1] < REFUSED_MS:  # a clock set back locks nobody for long
        return times
    return [at_ms for at_ms in times if 0 <= now_ms - at_ms < WINDOW_MS and len(times) < FAILURES_MAX]


def _place(kind: str, text: str) -> str:
    return f"{kind}:{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def _home(name: str, address: str) -> str:
    return _place("home", f"{name.strip().lower()} {_network(address)}")


def _browser(name: str, device: str) -> str:
    return _place("browser", f"{name.strip().lower()} {device}")


def _network(address: str) -> str:
    """Whoever has one address of IPv6 has all of its last 64 bits."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
