"""REST: how the secrets in the store are kept, and sealing them anew."""

from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.secrets.service import Custodian, SealedCounts, SecretsStanding
from peik.web.access import Access
from peik.web.openapi import Json, Operation, shape
from peik.web.responses import Route, json_response

if TYPE_CHECKING:
    from peik.accounts.service import AccountService


class SecretRoutes:
    def __init__(self, custodian: Custodian, sessions: "AccountService | None", access: Access) -> None:
        self._custodian = custodian
        self._sessions = sessions
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/secrets", self.get_secrets, "getSecrets", "secrets"),
            ("POST", "/v1/secrets/rotate", self.rotate, "rotateSecrets", "secrets"),
        )

    async def get_secrets(self, request: Request) -> Response:
        """How many secrets lie in the store, plain or sealed, and with which of the keys. None of them is shown."""
        self._access.admit(request, "admin").must_serve_all()
        return json_response(standing_view(await self._custodian.standing()))

    async def rotate(self, request: Request) -> Response:
        """Seal everything with the first key of PEIK_SECRET_KEY, keys of accounts, too.

        That is what is plain, and what older keys have sealed. May be repeated, and goes on where it was interrupted."""
        self._access.admit(request, "admin").must_serve_all()
        done = await self._custodian.rotate()
        accounts = None if self._sessions is None else msgspec.to_builtins(await self._sessions.reseal())
        return json_response({**settled_view(done), "accounts": accounts})


def standing_view(standing: SecretsStanding) -> dict[str, object]:
    return {**msgspec.to_builtins(standing), "advice": standing.advice}


def settled_view(settled: SealedCounts) -> dict[str, object]:
    return {"sealed": settled.sealed, "renewed": settled.renewed, "left": settled.left}


# The OpenAPI document's part about secrets in the store.


_COUNT: Json = {"type": "integer"}
_SENTENCE: Json = {"type": ["string", "null"]}

SECRET_SCHEMAS: Json = {
    "Secrets": shape(
        has_key={"type": "boolean", "description": "Whether PEIK_SECRET_KEY is set here."},
        plain=_COUNT,
        sealed=_COUNT | {"description": "With the first key."},
        older=_COUNT | {"description": "With another key that is here."},
        foreign=_COUNT | {"description": "With a key that is not here."},
        is_scrubbed={"type": "boolean", "description": "Nothing of texts that were replaced is left in the file."},
        advice=_SENTENCE | {"description": "The next step; null: all is well."},
    ),
    "SecretsSettled": shape(
        sealed=_COUNT | {"description": "That were plain."},
        renewed=_COUNT | {"description": "That were sealed with an older key."},
        left=_SENTENCE | {"description": "What is left of the old texts in the store's file."},
        accounts={"type": ["object", "null"], "description": "The same for keys of accounts; null: there are none."},
    ),
}

SECRET_OPERATIONS: dict[str, Operation] = {
    "getSecrets": Operation(answers={200: "Secrets"}, problems=(503,)),
    "rotateSecrets": Operation(answers={200: "SecretsSettled"}, problems=(409, 422, 503)),
}
