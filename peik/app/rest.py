"""The REST door: parse, ask the desk, render. The routes that carry traffic are plain functions on the raw request."""

from collections import defaultdict
from functools import lru_cache

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from peik import __version__
from peik.accounts.api import SessionRoutes
from peik.admin.api import Audited, AuditRoutes, KeyRoutes
from peik.admin.model import weakness_of
from peik.app.apis import apis_of, nodes_of
from peik.app.openapi import Described, document
from peik.app.runtime import Runtime
from peik.archive.api import ArchiveHealth, MessageRoutes
from peik.broadcasts.api import BroadcastRoutes
from peik.contacts.api import ContactRoutes
from peik.core.units import rfc3339
from peik.errors import Denied, Problem, Unavailable
from peik.importing.api import ImportRoutes
from peik.importing.service import import_desk_of
from peik.inbox.webhook_endpoint import PUSHES, WebhookDoor
from peik.monitoring.api import OverviewRoutes
from peik.monitoring.metrics import MetricsRoutes
from peik.monitoring.nodes import Nodes
from peik.monitoring.pulse import Pulse
from peik.notifications.api import NotificationRoutes, UserRoutes
from peik.telegram.routes import RouteStatus
from peik.web import responses
from peik.web.access import Access
from peik.web.fast_routes import FastRoutes, Receive, Scope, Send
from peik.web.openapi import page
from peik.web.responses import Endpoint, Route
from peik.web.routes import routes_of

_SMALL_BODY = 64 * 1024
_VERBS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
_TRAFFIC = ("/v1/letters", "/v1/letters/batch")
_encode = msgspec.json.Encoder().encode


class Rest(Starlette):
    """What carries traffic goes past the framework."""

    shortcuts: FastRoutes
    pushes: WebhookDoor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.shortcuts(scope, receive, send)


def build(peik: Runtime, key: str, pulse: Pulse | None = None) -> Rest:
    # Plain routes, described by app/openapi.py: a framework that reads bodies and writes documents by itself would cost a
    # tenth of a millisecond a request, and its pages load scripts from other hosts.
    app = Rest()
    app.add_exception_handler(Problem, responses.on_problem)
    app.add_exception_handler(HTTPException, responses.on_http_error)
    app.add_exception_handler(ClientDisconnect, responses.on_gone)
    app.add_exception_handler(Exception, responses.on_surprise)
    app.pushes = WebhookDoor(peik.desk, peik.receiver.pushed, gate=peik.gate, now=peik.clock.mono)
    app.add_route(f"{PUSHES}{{bot_id}}", app.pushes.answer, methods=_VERBS)
    routes = all_routes(peik, key, pulse)
    audited = Audited(peik.audit, access_of(peik, key))
    verbs: dict[str, dict[str, Endpoint]] = defaultdict(dict)
    for verb, path, endpoint, operation_id, _ in routes:
        verbs[path][verb] = audited.wrap(verb, endpoint, operation_id)
    # Paths without places first: `/v1/letters/cancel` is no letter.
    by_verb = {path: _by_verb(endpoints) for path, endpoints in verbs.items()}
    for path, endpoint in sorted(by_verb.items(), key=lambda one: "{" in one[0]):
        app.add_route(path, endpoint, methods=_VERBS)
    app.shortcuts = FastRoutes(
        super(Rest, app).__call__,
        exact={path: by_verb[path] for path in _TRAFFIC},
        under={PUSHES: (app.pushes.answer, "bot_id")},
    )
    openapi, docs = _described(
        tuple((verb, path, endpoint.__doc__ or "", name, tag) for verb, path, endpoint, name, tag in routes)
    )
    _serve_text(app, "/openapi.json", openapi, "application/json")
    _serve_text(app, "/docs", docs, "text/html; charset=utf-8")
    return app


@lru_cache(maxsize=4)
def _described(routes: tuple[Described, ...]) -> tuple[bytes, bytes]:
    """What is said of the routes, for programs and for people: the same for every Peik of a process."""
    described = document(routes)
    return _encode(described), page(described).encode()


def all_routes(peik: Runtime, key: str, pulse: Pulse | None = None) -> tuple[Route, ...]:
    access = access_of(peik, key)
    nodes = nodes_of(peik)
    declared = (routes_of(api, access, body_max=peik.config.body_max) for api in apis_of(peik))
    return (
        *(route for routes in declared for route in routes),
        *_Routes(peik, access, nodes, pulse or pulse_of(peik), weakness=weakness_of(key)).table(),
        *KeyRoutes(peik.desk, access, keyring=peik.keyring, hooks=peik.hooks).table(),
        *SessionRoutes(peik.sessions, access).table(),
        *MessageRoutes(peik.sessions, access).table(),
        *BroadcastRoutes(peik, access).table(),
        *OverviewRoutes(peik.overview, access).table(),
        *MetricsRoutes(
            peik.overview,
            peik.figures,
            access,
            is_open=peik.config.metrics == "open",
            store=str(peik.config.store_kind),
            temp_bytes=lambda: peik.job_hands.folders.view().held_bytes,
            answering=peik.answering,
            papers=peik.store.papers,
        ).table(),
        *UserRoutes(peik.notifications.links, access).table(),
        *NotificationRoutes(peik.notifications, access).table(),
        *ContactRoutes(peik.desk, peik.store.contacts, access).table(),
        *AuditRoutes(peik.audit, access).table(),
        *ImportRoutes(peik.desk, import_desk_of(peik.config, peik.store, clock=peik.clock), access).table(),
    )


def sections(app: Starlette) -> frozenset[str]:
    """What may follow `/v1/`."""
    paths = [str(getattr(route, "path", "")) for route in app.routes]
    return frozenset(path.split("/")[2] for path in paths if path.startswith("/v1/"))


def access_of(peik: Runtime, key: str) -> Access:
    return Access(key, find=peik.keyring.find, wall_ms=peik.clock.wall_ms, gate=peik.gate, now=peik.clock.mono)


def pulse_of(peik: Runtime) -> Pulse:
    return Pulse(store=peik.store.nodes, trouble=peik.store.trouble, clock=peik.clock, events=peik.events)


def _by_verb(endpoints: dict[str, Endpoint]) -> Endpoint:
    """One route per path, so that a verb that it does not know is answered 405 with those that it does."""
    allowed = ", ".join(endpoints)

    async def answer(request: Request) -> Response:
        endpoint = endpoints.get(request.method)
        if endpoint is None:
            raise HTTPException(405, headers={"Allow": allowed})
        return await endpoint(request)

    return answer


def _serve_text(app: Starlette, path: str, body: bytes, media_type: str) -> None:
    async def answer(request: Request) -> Response:
        return Response(body, media_type=media_type)

    app.add_route(path, answer, methods=["GET"])


class _Routes:
    def __init__(
        self, peik: Runtime, access: Access, nodes: Nodes, pulse: Pulse, *, weakness: str | None = None
    ) -> None:
        self._weakness = weakness  # of the admin key
        self._peik = peik
        self._desk = peik.desk
        self._nodes = nodes
        self._pulse = pulse
        self._admit = access.admit
        self._archive = None
        if peik.sessions is not None:
            self._archive = ArchiveHealth(peik.config, peik.sessions, peik.clock)

    def table(self) -> tuple[Route, ...]:
        """Every route: verb, path, what it does, its stable operation id, its tag."""
        return (
            ("GET", "/v1/routes", self.get_routes, "listRoutes", "routes"),
            ("GET", "/health", self.get_health, "getHealth", "health"),
            ("GET", "/ready", self.get_ready, "getReady", "health"),
        )

    # ---- routes and health ----

    async def get_routes(self, request: Request) -> Response:
        """Every way to Telegram in the order of the settings: how it stands, and whether letters go by it."""
        self._admit(request, "read").must_serve_all()
        return _json({"routes": self._route_views()})

    def _route_views(self) -> list[dict[str, object]]:
        statuses = self._peik.courier.routes.statuses()
        return [_route_view(status, is_in_use=is_in_use) for status, is_in_use in statuses]

    async def get_health(self, request: Request) -> Response:
        """200 while Peik is alive, whether or not Telegram can be reached; `status` is ok while calls can be stored."""
        routes = self._peik.courier.routes
        trouble = await self._pulse.trouble()
        store: dict[str, object] = {
            "status": "ok" if trouble is None else trouble.code,
            "why": None if trouble is None else trouble.detail,
            "kind": self._peik.config.store_kind,
            "weak": list(await self._pulse.weaknesses()),
        }
        parts: dict[str, object] = {
            "store": store,
            "telegram": {
                "status": "unreachable" if routes.is_open else "ok",
                "route": routes.in_use.name,
                "why": routes.in_use.status().why,
                "routes": [{name: view[name] for name in ("name", "state", "in_use")} for view in self._route_views()],
            },
        }
        if self._is_admitted(request):
            # Nobody else hears of it: it would tell strangers what to try.
            weak = [] if self._weakness is None else [f"PEIK_ADMIN_KEY can be guessed: {self._weakness}"]
            parts["access"] = {"status": "ok", "weak": weak}
        if self._archive is not None:
            parts |= await self._archive.parts(store)  # bots need none of it: `status` is about calls
        status = "ok" if trouble is None else "failing"
        return _json({"status": status, "version": __version__, "parts": parts})

    def _is_admitted(self, request: Request) -> bool:
        if "authorization" not in request.headers and "x-api-key" not in request.headers:
            return False
        try:
            return self._admit(request, "read").key.bot_ids is None
        except Denied:
            return False

    async def get_ready(self, request: Request) -> Response:
        """200 while a balancer may send requests here: the store answers, and this node does not drain."""
        trouble = await self._pulse.trouble()
        if trouble is not None:
            raise trouble
        if await self._pulse.is_draining():
            raise Unavailable(code="draining", detail="This node lets its bots go. Ask another one, or resume it.")
        return _json({"status": "ready", "version": __version__})


def _json(value: object, status: int = 200) -> Response:
    return Response(_encode(value), status, media_type="application/json")


def _route_view(status: RouteStatus, *, is_in_use: bool) -> dict[str, object]:
    return {
        "name": status.name,
        "kind": status.kind,
        "state": status.state,
        "in_use": is_in_use,
        "failures": status.failures,
        "why": status.why or None,
        "since": rfc3339(status.since_ms),
        "probe_at": rfc3339(status.probe_at_ms),
    }
