"""REST: keys of the API, and the secret that webhooks of single letters are signed with."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.audit import Audit, AuditLine, Outcome
from peik.admin.keys import Keyring
from peik.admin.model import Key, Scope
from peik.admin.sign_ins import who_of
from peik.core.units import rfc3339
from peik.errors import BadInput, Denied, Problem
from peik.outbox.hooks import Hooks
from peik.outbox.service import OutboxService
from peik.web.access import Access
from peik.web.bodies import read_body, read_limit
from peik.web.openapi import LIMIT, TIME, WORD, WORD_CHARS_MAX, Json, OperationRow, in_query, nullable, shape
from peik.web.parse import decode, instant_ms, parse_id
from peik.web.responses import Endpoint, Route, json_response

_SMALL_BODY = 64 * 1024
BOT_IDS_MAX = 1000


class KeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/keys`. Without `bot_ids` it is for every bot, also those to come."""

    name: str
    scopes: list[Scope]
    bot_ids: list[int | str] | None = None
    expires_at: int | float | str | None = None
    webhook_url: str | None = None
    rate: str | None = None


class KeyRoutes:
    def __init__(self, desk: OutboxService, access: Access, *, keyring: Keyring, hooks: Hooks) -> None:
        self._desk = desk
        self._access = access
        self._keyring = keyring
        self._hooks = hooks

    def table(self) -> tuple[Route, ...]:
        return (
            ("POST", "/v1/keys", self.post_key, "makeKey", "keys"),
            ("GET", "/v1/keys", self.get_keys, "listKeys", "keys"),
            ("DELETE", "/v1/keys/{key_id}", self.delete_key, "revokeKey", "keys"),
            ("GET", "/v1/webhooks/secret", self.get_secret, "getWebhookSecret", "keys"),
        )

    async def post_key(self, request: Request) -> Response:
        """Make a key. Its text, and the secret of its webhook, are shown now and never again."""
        self._access.admit(request, "admin").must_serve_all()
        body = decode(KeyBody, await read_body(request, bytes_max=_SMALL_BODY))
        return _not_cached(json_response(await make_key(self._keyring, self._desk, body), 201))

    async def get_keys(self, request: Request) -> Response:
        """Every key without its text, and when it was last used, to about a minute."""
        self._access.admit(request, "admin").must_serve_all()
        return json_response({"keys": [key_view(key) for key in self._keyring.known()]})

    async def delete_key(self, request: Request) -> Response:
        """Revoke a key. It opens nothing any more; its webhook still hears of the letters that it had brought."""
        self._access.admit(request, "admin").must_serve_all()
        await self._keyring.revoke(parse_id(request.path_params["key_id"], "key_id"))
        return Response(status_code=204)

    async def get_secret(self, request: Request) -> Response:
        """What webhooks of single letters (`webhook_url` in the letter) are signed with."""
        self._access.admit(request, "admin").must_serve_all()
        return _not_cached(json_response({"webhook_secret": await self._hooks.own_secret()}))


def _not_cached(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response


async def make_key(keyring: Keyring, desk: OutboxService, body: KeyBody) -> dict[str, object]:
    """The new key with its secrets, which are shown once."""
    made = await keyring.make(
        body.name,
        body.scopes,
        bot_ids=_bot_ids(desk, body.bot_ids),
        expires_at_ms=instant_ms(body.expires_at, "expires_at"),
        webhook_url=body.webhook_url,
        rate=body.rate,
    )
    shown = {**key_view(made.key), "key": made.text}
    if made.webhook_secret is not None:
        shown["webhook_secret"] = made.webhook_secret
    return shown


def _bot_ids(desk: OutboxService, given: list[int | str] | None) -> frozenset[int] | None:
    if given is None:
        return None
    if len(given) > BOT_IDS_MAX:
        raise BadInput(code="too_many_bot_ids", detail=f"A key names at most {BOT_IDS_MAX} bots.")
    return frozenset(desk.bot(parse_id(str(one), "bot_id")).bot_id for one in given)


def key_view(key: Key) -> dict[str, object]:
    return {
        "id": str(key.id),
        "name": key.name,
        "scopes": key.scopes,
        "bot_ids": None if key.bot_ids is None else [str(bot_id) for bot_id in sorted(key.bot_ids)],
        "created_at": rfc3339(key.created_at_ms),
        "expires_at": rfc3339(key.expires_at_ms),
        "last_used_at": rfc3339(key.last_used_at_ms),
        "webhook_url": key.webhook_url,
        "rate": None if key.rate is None else str(key.rate),
    }


# REST: the audit log, and what makes REST itself write it: every call that changes something, but for the traffic.


_ANSWER_BYTES_MAX = 64 * 1024
_FILTERS = ("who", "action", "since", "until", "cursor", "limit")
# What programs do all day. It is in the letters, arrivals and jobs themselves, with the key that did it.
TRAFFIC = frozenset(
    {
        "acceptLetter", "acceptBatch", "notify", "notifyMany", "queueJob", "queueJobs", "noteSeen",
        "acknowledgeArrivals", "linkUser", "setReader", "importContacts", "keepImport",
    }
)  # fmt: skip


class AuditRoutes:
    def __init__(self, audit: Audit, access: Access) -> None:
        self._audit = audit
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (("GET", "/v1/audit", self.get_audit, "listAudit", "audit"),)

    async def get_audit(self, request: Request) -> Response:
        """Who did what to Peik, by whichever door, the newest first."""
        self._access.admit(request, "admin").must_serve_all()
        query = request.query_params
        unknown = set(query) - set(_FILTERS)
        if unknown:
            raise BadInput(
                code="unknown_filter",
                detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {', '.join(_FILTERS)}.",
            )
        if any(not 0 < len(value) <= WORD_CHARS_MAX for value in query.values()):
            raise BadInput(code="bad_filter", detail=f"A filter has 1 to {WORD_CHARS_MAX} characters.")
        page = await self._audit.find(
            who=query.get("who"),
            action=query.get("action"),
            since_ms=_moment(query.get("since"), "since"),
            until_ms=_moment(query.get("until"), "until"),
            cursor=_cursor(query.get("cursor")),
            limit=read_limit(request),
        )
        return json_response({"audit": [audit_view(line) for line in page.lines], "next_cursor": page.cursor})


def audit_view(line: AuditLine) -> dict[str, object]:
    return {
        "id": line.id,
        "at": rfc3339(line.at_ms),
        "who": line.who,
        "action": line.action,
        "target": line.target,
        "outcome": line.outcome,
        "detail": line.detail,
        "address": line.address,
    }


class Audited:
    """Wraps endpoints of REST, so that what they do is in the audit log: begun before, ended after."""

    def __init__(self, audit: Audit, access: Access) -> None:
        self._audit = audit
        self._access = access

    def wrap(self, verb: str, endpoint: Endpoint, operation_id: str) -> Endpoint:
        if verb == "GET" or operation_id in TRAFFIC:
            return endpoint

        async def audited(request: Request) -> Response:
            try:
                caller = self._access.admit(request, "read")
            except Denied:
                return await endpoint(request)  # which says the same, and does nothing
            who = who_of(caller.key)
            self._audit.refusals.check(who)
            line = await self._audit.begin(
                who=who,
                action=operation_id,
                target="/".join(map(str, request.path_params.values())),
                address="" if request.client is None else request.client.host,
            )
            try:
                response = await endpoint(request)
            except Problem as problem:
                if isinstance(problem, Denied):
                    self._audit.refusals.note(who)
                await self._audit.end(line, is_done=False, detail=f"{problem.code}: {problem.detail}")
                raise
            await self._audit.end(line, is_done=response.status_code < 400, detail=_outcome(response))
            return response

        audited.__doc__ = endpoint.__doc__
        return audited


def _outcome(response: Response) -> str:
    """What came to be, and how many: the rest of an answer is in Peik, and some of it is shown once."""
    if response.media_type != "application/json" or len(response.body) > _ANSWER_BYTES_MAX:
        return ""
    try:
        told = msgspec.json.decode(response.body, type=_Told)
    except msgspec.DecodeError:
        return ""
    facts = (("id", told.id), ("mark", told.mark), ("count", told.count))
    return ", ".join(f"{name} {value}" for name, value in facts if value is not None)


class _Told(msgspec.Struct):
    id: str | None = None
    mark: str | None = None  # of a person who is forgotten
    count: int | None = None


def _moment(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    try:
        return instant_ms(float(text), name)
    except ValueError:
        return instant_ms(text, name)


def _cursor(text: str | None) -> str | None:
    if text is not None and not (text.isascii() and text.isprintable()):
        raise BadInput(code="bad_cursor", detail="A cursor is the next_cursor of the page before.")
    return text


# The audit log's part of the OpenAPI document.


_TEXT: Json = {"type": "string"}

AUDIT_SCHEMAS: Json = {
    "AuditLine": shape(
        id=_TEXT,
        at=TIME,
        who=_TEXT | {"description": "A person, `key <name>`, `admin key` or `command line`."},
        action=_TEXT | {"description": "The operation of REST, or what the dashboard calls it."},
        target=_TEXT,
        outcome={
            "type": "string",
            "enum": [str(outcome) for outcome in Outcome],
            "description": "begun: it is under way, or was cut off.",
        },
        detail=_TEXT,
        address=_TEXT,
    ),
    "AuditPage": shape(
        audit={"type": "array", "items": {"$ref": "#/components/schemas/AuditLine"}}, next_cursor=nullable(_TEXT)
    ),
}

AUDIT_OPERATIONS: dict[str, OperationRow] = {
    "listAudit": OperationRow(
        answers={200: "AuditPage"},
        parameters=(
            in_query("who", WORD, "Only what they did."),
            in_query("action", WORD, "Only this one; `letters` also finds `letters.retry`."),
            in_query("since", WORD, "RFC 3339, or Unix seconds."),
            in_query("until", WORD, "The same, left out itself."),
            in_query("cursor", WORD, "The next_cursor of the page before."),
            LIMIT,
        ),
        problems=(403, 422, 503),
    ),
}
