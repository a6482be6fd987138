"""REST: keys of the API and the secret that webhooks of single letters are signed with; the audit log, and what makes REST
itself write it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import msgspec

from peik.admin.audit import AuditLine, Outcome
from peik.admin.model import Key, Scope
from peik.admin.sign_ins import who_of
from peik.core.units import rfc3339
from peik.errors import BadInput, Denied, Problem
from peik.web.access import Caller
from peik.web.openapi import LIMIT_DEFAULT, WORD, WORD_CHARS_MAX
from peik.web.operations import Id, Moment, Told, declared, operation
from peik.web.parse import LIMIT, MOMENT, TEXT, NumberInPath, Param, Time, instant_ms, parse_id

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from peik.admin.audit import Audit
    from peik.admin.keys import Keyring
    from peik.outbox.service import OutboxService
    from peik.web.access import Access
    from peik.web.responses import Endpoint

BOT_IDS_MAX = 1000
_SHOWN_ONCE = {"Cache-Control": "no-store"}


class KeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/keys`. Without `bot_ids` it is for every bot, also those to come."""

    name: str
    scopes: list[Scope]
    bot_ids: list[int | str] | None = None
    expires_at: Time = None
    webhook_url: str | None = None
    rate: str | None = None


class KeyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    name: str
    scopes: list[Scope]
    bot_ids: list[Id] | None
    created_at: Moment
    expires_at: Moment | None
    last_used_at: Moment | None
    webhook_url: str | None
    rate: Annotated[
        str | None, msgspec.Meta(description="Its own limit, such as `20/s burst 100`; null: PEIK_RATE_KEY.")
    ]

    @classmethod
    def of(cls, key: Key) -> "KeyAnswer":
        return cls(
            id=str(key.id),
            name=key.name,
            scopes=list(key.scopes),
            bot_ids=None if key.bot_ids is None else [str(bot_id) for bot_id in sorted(key.bot_ids)],
            created_at=rfc3339(key.created_at_ms),
            expires_at=rfc3339(key.expires_at_ms),
            last_used_at=rfc3339(key.last_used_at_ms),
            webhook_url=key.webhook_url,
            rate=None if key.rate is None else str(key.rate),
        )


class NewKeyAnswer(KeyAnswer, frozen=True, kw_only=True):
    key: Annotated[str, msgspec.Meta(description="Shown now and never again.")]
    webhook_secret: Annotated[
        str | msgspec.UnsetType, msgspec.Meta(description="If it has a webhook. Shown now and never again.")
    ] = msgspec.UNSET


class KeysAnswer(msgspec.Struct, frozen=True, kw_only=True):
    keys: list[KeyAnswer]


class WebhookSecretAnswer(msgspec.Struct, frozen=True, kw_only=True):
    webhook_secret: str


class KeyApi:
    def __init__(
        self, service: "OutboxService", *, keyring: "Keyring", webhook_secret: Callable[[], Awaitable[str]]
    ) -> None:
        self._service = service
        self._keyring = keyring
        self._webhook_secret = webhook_secret

    @operation(
        "POST",
        "/v1/keys",
        name="makeKey",
        tag="keys",
        scope="admin",
        is_for_all=True,
        status=201,
        problems=(404, 409, 413, 422, 503),
        example={"name": "shop", "scopes": ["send"], "webhook_url": "https://shop.example/hooks/peik"},
    )
    async def make_key(self, caller: Caller, body: KeyBody) -> Told[NewKeyAnswer]:
        """Make a key. Its text, and the secret of its webhook, are shown now and never again."""
        return Told(await make_key(self._keyring, self._service, body), 201, _SHOWN_ONCE)

    @operation("GET", "/v1/keys", name="listKeys", tag="keys", scope="admin", is_for_all=True)
    async def list_keys(self, caller: Caller) -> KeysAnswer:
        """Every key without its text, and when it was last used, to about a minute."""
        return KeysAnswer(keys=[KeyAnswer.of(key) for key in self._keyring.known()])

    @operation(
        "DELETE",
        "/v1/keys/{key_id}",
        name="revokeKey",
        tag="keys",
        scope="admin",
        is_for_all=True,
        problems=(404, 422, 503),
    )
    async def revoke_key(self, caller: Caller, key_id: NumberInPath) -> None:
        """Revoke a key. It opens nothing any more; its webhook still hears of the letters that it had brought."""
        await self._keyring.revoke(key_id)

    @operation(
        "GET",
        "/v1/webhooks/secret",
        name="getWebhookSecret",
        tag="keys",
        scope="admin",
        is_for_all=True,
        problems=(503,),
    )
    async def get_webhook_secret(self, caller: Caller) -> Told[WebhookSecretAnswer]:
        """What webhooks of single letters (`webhook_url` in the letter) are signed with."""
        return Told(WebhookSecretAnswer(webhook_secret=await self._webhook_secret()), headers=_SHOWN_ONCE)


async def make_key(keyring: "Keyring", service: "OutboxService", body: KeyBody) -> NewKeyAnswer:
    """The new key with its secrets, which are shown once."""
    made = await keyring.make(
        body.name,
        body.scopes,
        bot_ids=_bot_ids(service, body.bot_ids),
        expires_at_ms=instant_ms(body.expires_at, "expires_at"),
        webhook_url=body.webhook_url,
        rate=body.rate,
    )
    return NewKeyAnswer(
        **msgspec.structs.asdict(KeyAnswer.of(made.key)),
        key=made.text,
        webhook_secret=msgspec.UNSET if made.webhook_secret is None else made.webhook_secret,
    )


def _bot_ids(service: "OutboxService", given: list[int | str] | None) -> frozenset[int] | None:
    if given is None:
        return None
    if len(given) > BOT_IDS_MAX:
        raise BadInput(code="too_many_bot_ids", detail=f"A key names at most {BOT_IDS_MAX} bots.")
    return frozenset(service.bot(parse_id(str(one), "bot_id")).bot_id for one in given)


# ---- the audit log ----


def _cursor(text: str, name: str) -> str:
    if not (text.isascii() and text.isprintable()):
        raise BadInput(code="bad_cursor", detail="A cursor is the next_cursor of the page before.")
    return text


def _filter(param: Param, text: str) -> Param:
    def read(word: str, name: str) -> object:
        if not 0 < len(word) <= WORD_CHARS_MAX:
            raise BadInput(code="bad_filter", detail=f"A filter has 1 to {WORD_CHARS_MAX} characters.")
        return param.read(word, name)

    return Param(read, param.schema, text, write=param.write)


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    who: Annotated[str | None, _filter(TEXT, "Only what they did.")] = None
    action: Annotated[str | None, _filter(TEXT, "Only this one; `letters` also finds `letters.retry`.")] = None
    since: Annotated[int | None, _filter(MOMENT, "RFC 3339, or Unix seconds.")] = None
    until: Annotated[int | None, _filter(MOMENT, "The same, left out itself.")] = None
    cursor: Annotated[str | None, _filter(Param(_cursor, WORD), "The next_cursor of the page before.")] = None
    limit: Annotated[int, _filter(LIMIT, LIMIT.text)] = LIMIT_DEFAULT


class AuditLineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    at: Moment
    who: Annotated[
        str, msgspec.Meta(description="A person, `oidc <name>`, `key <name>`, `admin key` or `command line`.")
    ]
    action: Annotated[str, msgspec.Meta(description="The operation of REST, or what the dashboard calls it.")]
    target: str
    outcome: Annotated[
        str,
        msgspec.Meta(
            description="begun: it is under way, or was cut off.",
            extra_json_schema={"enum": [str(outcome) for outcome in Outcome]},
        ),
    ]
    detail: str
    address: str

    @classmethod
    def of(cls, line: AuditLine) -> "AuditLineAnswer":
        return cls(
            id=line.id,
            at=rfc3339(line.at_ms),
            who=line.who,
            action=line.action,
            target=line.target,
            outcome=line.outcome,
            detail=line.detail,
            address=line.address,
        )


class AuditPageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    audit: list[AuditLineAnswer]
    next_cursor: str | None


class AuditApi:
    def __init__(self, audit: "Audit") -> None:
        self._audit = audit

    @operation(
        "GET", "/v1/audit", name="listAudit", tag="audit", scope="admin", is_for_all=True, problems=(403, 422, 503)
    )
    async def list_audit(self, caller: Caller, query: AuditQuery) -> AuditPageAnswer:
        """Who did what to Peik, by whichever door, the newest first."""
        page = await self._audit.find(
            who=query.who,
            action=query.action,
            since_ms=query.since,
            until_ms=query.until,
            cursor=query.cursor,
            limit=query.limit,
        )
        return AuditPageAnswer(audit=[AuditLineAnswer.of(line) for line in page.lines], next_cursor=page.cursor)


_ANSWER_BYTES_MAX = 64 * 1024


class Audited:
    """Wraps endpoints of REST, so that what they do is in the audit log: begun before, ended after. Not those that only look,
    and not the traffic."""

    def __init__(self, audit: "Audit", access: "Access") -> None:
        self._audit = audit
        self._access = access

    def wrap(self, verb: str, endpoint: "Endpoint", operation_id: str) -> "Endpoint":
        # What programs do all day is in the letters, arrivals and jobs themselves, with the key that did it.
        if verb == "GET" or declared(endpoint).is_traffic:
            return endpoint

        async def audited(request: "Request") -> "Response":
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


def _outcome(response: "Response") -> str:
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
