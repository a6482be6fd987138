"""Puts the dashboard together and stands before another application, which gets every path that is not the dashboard's."""

from starlette.responses import RedirectResponse

from peik.admins.attempts import Attempts
from peik.admins.people import People
from peik.admins.sign_ins import SignIns
from peik.admins.upkeep import Upkeep
from peik.app import Office
from peik.doors.dashboard import household, traffic
from peik.doors.dashboard.assets import Assets
from peik.doors.dashboard.board import Board, Page, Section, Visitor
from peik.doors.dashboard.door import App, Door, Receive, Scope, Send
from peik.doors.dashboard.live import Live
from peik.doors.dashboard.overview import OverviewPages
from peik.doors.dashboard.rendering import Renderer
from peik.doors.dashboard.settings import SettingsPages
from peik.doors.dashboard.sign_in import SignInPages
from peik.doors.dashboard.words import load


class Dashboard:
    def __init__(self, peik: Office, admin_key: str, otherwise: App) -> None:
        self._otherwise = otherwise
        self._alerts = peik.alerts
        assets = Assets()
        renderer = Renderer(load(), assets, peik.clock, alerts=self._alerts_of)
        papers = peik.store.papers
        people = People(papers, peik.clock)
        self.board = Board(
            peik,
            renderer,
            people=people,
            sign_ins=SignIns(papers, people, peik.clock, find_key=peik.keyring.find, admin_key=admin_key),
            audit=peik.audit,
        )
        self._live = Live(self.board)
        attempts = Attempts(papers, peik.clock)
        sign_in = SignInPages(self.board, attempts)
        self._upkeep = Upkeep(
            audit=peik.audit,
            sign_ins=self.board.sign_ins,
            attempts=attempts,
            clock=peik.settled,
            events=peik.events,
        )
        sections: tuple[Section, ...] = (
            sign_in,
            self._live,
            OverviewPages(self.board, peik.overview.now),
            SettingsPages(self.board),
            *traffic.sections(self.board),
            *household.sections(self.board),
        )
        self.pages: tuple[Page, ...] = tuple(page for section in sections for page in section.table())
        renderer.open({path for verb, path, *_ in self.pages if verb == "GET"})
        self._door = Door(self.board, self.pages, sign_in=sign_in, assets=assets)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == "/admin" or path.startswith("/admin/"):
            await self._door(scope, receive, send)
        elif path == "/" and scope["method"] in ("GET", "HEAD"):  # the address that `peik serve` prints, in a browser
            await RedirectResponse("/admin", status_code=303)(scope, receive, send)
        else:
            await self._otherwise(scope, receive, send)

    async def run(self) -> None:
        """Lets go of what is over, until cancelled."""
        await self._upkeep.run()

    def _alerts_of(self, visitor: Visitor) -> int:
        return sum(visitor.bot_ids is None or visitor.sees(alert.bot_id) for alert in self._alerts.ongoing())

    def end(self) -> None:
        """Streams end, so that a server that stops need not wait for them."""
        self._live.end()
