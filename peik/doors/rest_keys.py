"""REST: keys of the API, and the secret that webhooks of single letters are signed with."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.key import Key, Scope
from peik.desk import Desk
from peik.doors.access import Access
from peik.doors.bodies import decode, instant_ms, parse_id, read_body
from peik.doors.replies import Route, json_response
from peik.engine.hooks import Hooks
from peik.errors import BadInput
from peik.keyring import Keyring
from peik.shown import rfc3339

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
    def __init__(self, desk: Desk, access: Access, *, keyring: Keyring, hooks: Hooks) -> None:
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


async def make_key(keyring: Keyring, desk: Desk, body: KeyBody) -> dict[str, object]:
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


def _bot_ids(desk: Desk, given: list[int | str] | None) -> frozenset[int] | None:
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
