"""REST: forgetting a person. The answer says what went, place by place, and which backups still hold it."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.sign_ins import who_of
from peik.erasure.service import Eraser, report_view
from peik.web.access import Access
from peik.web.bodies import decode, read_body, whole_number
from peik.web.openapi import TIME, Json, Operation, nullable, shape
from peik.web.responses import Route, json_response

_SMALL_BODY = 4 * 1024


class ForgetEverywhereBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/forget`: by Telegram's user id, or by the caller's own name of a linked user."""

    user_id: int | str | None = None
    name: str | None = None
    bot_id: int | str | None = None
    dry_run: bool = False


class ForgetRoutes:
    def __init__(self, forgetter: Eraser, access: Access) -> None:
        self._forgetter = forgetter
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (("POST", "/v1/forget", self.post, "forgetEverywhere", "forget"),)

    async def post(self, request: Request) -> Response:
        """Remove a person's data everywhere; with dry_run, say what would go."""
        caller = self._access.admit(request, "admin")
        caller.must_serve_all()
        body = decode(ForgetEverywhereBody, await read_body(request, bytes_max=_SMALL_BODY))
        return json_response(await answer(self._forgetter, body, who=who_of(caller.key)))


async def answer(forgetter: Eraser, body: ForgetEverywhereBody, *, who: str) -> dict[str, object]:
    person = await forgetter.person(
        user_id=None if body.user_id is None else whole_number(str(body.user_id), "user_id"),
        name=body.name,
        bot_id=None if body.bot_id is None else whole_number(str(body.bot_id), "bot_id"),
    )
    report = await (forgetter.look(person) if body.dry_run else forgetter.forget(person, who=who))
    return report_view(report, is_dry=body.dry_run)


# Forgetting's part of the OpenAPI document.


_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0}

FORGET_SCHEMAS: Json = {
    "ForgottenPerson": shape(
        id=nullable(_TEXT) | {"description": "Of the act, as in the audit log; null of a dry run."},
        mark=_TEXT | {"description": "A keyed hash of the person: the same one has the same."},
        dry_run={"type": "boolean"},
        state=_TEXT
        | {
            "enum": ["done", "going_on", "dry_run"],
            "description": "going_on: something is in use just now, or the last look is to come. Peik ends it by itself.",
        },
        count=_COUNT | {"description": "Records that were removed or blanked, or would be."},
        places={
            "type": "object",
            "description": "By place (docs/forget.md): removed, blanked, and left for later because it is in use.",
            "additionalProperties": shape(removed=_COUNT, blanked=_COUNT, left=_COUNT),
        },
        notes={"type": "array", "items": _TEXT, "description": "What remains in files of a server, and for how long."},
        backups={
            "type": "array",
            "description": "Backups that still hold what was removed. They are never changed.",
            "items": shape(path=_TEXT, made_at=TIME, goes_at=nullable(TIME)),
        },
    ),
}

FORGET_OPERATIONS: dict[str, Operation] = {
    "forgetEverywhere": Operation(
        answers={200: "ForgottenPerson"},
        body=ForgetEverywhereBody,
        example={"user_id": "123456789", "dry_run": True},
        problems=(403, 404, 413, 422, 503),
    ),
}
