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
from peik.alerts.api import AlertApi
from peik.app.openapi import Described, document
from peik.app.runtime import Runtime
from peik.archive.api import ArchiveHealth, MessageRoutes
from peik.broadcasts.api import BroadcastRoutes
from peik.contacts.api import ContactRoutes
from peik.core.letter import Enclosed
from peik.core.token import Token
from peik.erasure.api import ErasureApi
from peik.errors import Denied, Problem, Unavailable
from peik.importing.api import ImportRoutes
from peik.importing.service import import_desk_of
from peik.inbox.answers import inbox_stats
from peik.inbox.api import PUSHES, ArrivalRoutes, ConsumerRoutes, WebhookDoor
from peik.jobs.api import JobRoutes
from peik.monitoring.api import OverviewRoutes
from peik.monitoring.metrics import MetricsRoutes
from peik.monitoring.nodes import NodeApi, Nodes
from peik.monitoring.pulse import Pulse
from peik.notifications.api import NotificationRoutes, UserRoutes
from peik.outbox.answers import letter_view
from peik.outbox.api import BotBody, BotRoutes, LetterRoutes
from peik.outbox.service import LetterCall
from peik.outbox.store import LetterView
from peik.outbox.views import bot_view, route_view, stats_view
from peik.secrets.api import SecretApi
from peik.web import responses
from peik.web.access import Access, header_in
from peik.web.bodies import (
    call_of,
    decode,
    decode_batch,
    decode_letter,
    parse_id,
    read_body,
    read_multipart,
    read_traced,
    wait_s,
)
from peik.web.fast_routes import FastRoutes, Receive, Scope, Send
from peik.web.openapi import page
from peik.web.operations import routes_of
from peik.web.responses import Endpoint, Route

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
    nodes = Nodes(
        peik.config,
        peik.store.nodes,
        clock=peik.clock,
        bot_ids=lambda: [bot.bot_id for bot in peik.desk.bots()],
        is_whole=lambda: peik.leases.is_whole,
    )
    return (
        *_Routes(peik, access, nodes, pulse or pulse_of(peik), weakness=weakness_of(key)).table(),
        *LetterRoutes(peik.desk, peik.inbox, access).table(),
        *BotRoutes(peik.desk, access).table(),
        *ArrivalRoutes(peik.desk, peik.inbox, access).table(),
        *ConsumerRoutes(peik.desk, peik.inbox, access).table(),
        *KeyRoutes(peik.desk, access, keyring=peik.keyring, hooks=peik.hooks).table(),
        *routes_of(SecretApi(peik.custodian, peik.sessions), access),
        *routes_of(NodeApi(nodes), access),
        *SessionRoutes(peik.sessions, access).table(),
        *MessageRoutes(peik.sessions, access).table(),
        *JobRoutes(peik, access).table(),
        *BroadcastRoutes(peik, access).table(),
        *OverviewRoutes(peik.overview, access).table(),
        *routes_of(AlertApi(peik.alerts, peik.overview), access),
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
        *routes_of(ErasureApi(peik.forgetter), access),
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
            ("POST", "/v1/letters", self.post_letter, "acceptLetter", "letters"),
            ("POST", "/v1/letters/batch", self.post_batch, "acceptBatch", "letters"),
            ("GET", "/v1/letters/{letter_id}", self.get_letter, "getLetter", "letters"),
            ("GET", "/v1/stats", self.get_stats, "getStats", "letters"),
            ("POST", "/v1/bots", self.post_bot, "addBot", "bots"),
            ("GET", "/v1/bots", self.get_bots, "listBots", "bots"),
            ("GET", "/v1/bots/{bot_id}", self.get_bot, "getBot", "bots"),
            ("DELETE", "/v1/bots/{bot_id}", self.delete_bot, "removeBot", "bots"),
            ("GET", "/v1/routes", self.get_routes, "listRoutes", "routes"),
            ("GET", "/health", self.get_health, "getHealth", "health"),
            ("GET", "/ready", self.get_ready, "getReady", "health"),
        )

    # ---- letters ----

    async def post_letter(self, request: Request) -> Response:
        """Accept one call durably; with `?wait=10s`, answer with what became of it."""
        caller = self._admit(request, "send")
        wait = wait_s(request, most_s=self._peik.config.wait_max)
        key, trace = header_in(request.scope, b"idempotency-key"), read_traced(request)
        config = self._peik.config
        if (header_in(request.scope, b"content-type") or "").startswith("multipart/form-data"):
            body, enclosed = await read_multipart(request, self._peik.spool, file_bytes_max=config.upload_bytes_max)
        else:
            body, enclosed = decode_letter(await read_body(request, bytes_max=config.body_max)), ()

        def make(files: tuple[Enclosed, ...]) -> LetterCall:
            return caller.own(call_of(body, key=key, trace=trace, enclosed=files))

        accepted = await self._desk.accept_with_files(enclosed, make, blobs=self._peik.spool)
        if wait:
            return _letter(await self._desk.outcome(accepted, make(enclosed), wait))
        return _json({"id": str(accepted.letter_id), "state": accepted.state}, 202)

    async def post_batch(self, request: Request) -> Response:
        """Accept many calls in one commit, all or none."""
        caller = self._admit(request, "send")
        body = decode_batch(await read_body(request, bytes_max=self._peik.config.body_max))
        trace = read_traced(request)
        accepted = await self._desk.accept(caller.own_all([call_of(letter, trace=trace) for letter in body.letters]))
        return _json({"ids": [str(one.letter_id) for one in accepted]}, 202)

    async def get_letter(self, request: Request) -> Response:
        """One letter with its whole history; with `?wait=10s`, once it has ended."""
        caller = self._admit(request, "read")
        letter_id = parse_id(request.path_params["letter_id"], "letter_id")
        wait = wait_s(request, most_s=self._peik.config.wait_max)
        view = await self._desk.letter(letter_id)
        caller.must_see(view)
        view = await self._desk.wait(letter_id, wait) if wait else view
        return _json({**letter_view(view), "why": await self._desk.why(view)})

    async def get_stats(self, request: Request) -> Response:
        """How many letters stand where, over all and per bot, and what waits for the consumers of arrivals."""
        caller = self._admit(request, "read")
        tallies = await self._desk.tallies()
        letters = stats_view({bot_id: tally for bot_id, tally in tallies.items() if caller.sees(bot_id)})
        inbox = [tally for tally in await self._peik.inbox.tallies() if caller.sees(tally.consumer.bot_id)]
        return _json({**letters, "inbox": inbox_stats(inbox)})

    # ---- bots ----

    async def post_bot(self, request: Request) -> Response:
        """Add a bot by its token, or give a known one its new token."""
        self._admit(request, "admin").must_serve_all()
        body = decode(BotBody, await read_body(request, bytes_max=_SMALL_BODY))
        bot, is_new = await self._desk.save_bot(Token(body.token), inbound=body.inbound)
        return _json(bot_view(bot), 201 if is_new else 200)

    async def get_bots(self, request: Request) -> Response:
        """All bots, without their tokens, each with the node that serves it."""
        caller = self._admit(request, "read")
        serving = await self._nodes.serving()
        bots = [bot for bot in self._desk.bots() if caller.sees(bot.bot_id)]
        return _json({"bots": [{**bot_view(bot), "node": serving.get(bot.bot_id)} for bot in bots]})

    async def get_bot(self, request: Request) -> Response:
        """One bot, without its token, and the node that serves it."""
        caller = self._admit(request, "read")
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        caller.must_serve(bot_id)
        bot = self._desk.bot(bot_id)
        return _json({**bot_view(bot), "node": (await self._nodes.serving()).get(bot_id)})

    async def delete_bot(self, request: Request) -> Response:
        """Forget a bot that has no letters to send."""
        self._admit(request, "admin").must_serve_all()
        await self._desk.remove_bot(parse_id(request.path_params["bot_id"], "bot_id"))
        return Response(status_code=204)

    # ---- routes and health ----

    async def get_routes(self, request: Request) -> Response:
        """Every way to Telegram in the order of the settings: how it stands, and whether letters go by it."""
        self._admit(request, "read").must_serve_all()
        return _json({"routes": self._route_views()})

    def _route_views(self) -> list[dict[str, object]]:
        statuses = self._peik.courier.routes.statuses()
        return [route_view(status, is_in_use=is_in_use) for status, is_in_use in statuses]

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


def _letter(view: LetterView) -> Response:
    return _json(letter_view(view), 200 if view.state.is_final else 202)


def _json(value: object, status: int = 200) -> Response:
    return Response(_encode(value), status, media_type="application/json")
