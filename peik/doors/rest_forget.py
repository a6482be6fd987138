"""REST: forgetting a person. The answer says what went, place by place, and which backups still hold it."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admins.sign_ins import who_of
from peik.doors.access import Access
from peik.doors.bodies import decode, read_body
from peik.doors.queries import whole_number
from peik.doors.replies import Route, json_response
from peik.forgetting.desk import Forgetter
from peik.shown_forgetting import report_view

_SMALL_BODY = 4 * 1024


class ForgetEverywhereBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/forget`: by Telegram's user id, or by the caller's own name of a linked user."""

    user_id: int | str | None = None
    name: str | None = None
    bot_id: int | str | None = None
    dry_run: bool = False


class ForgetRoutes:
    def __init__(self, forgetter: Forgetter, access: Access) -> None:
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


async def answer(forgetter: Forgetter, body: ForgetEverywhereBody, *, who: str) -> dict[str, object]:
    person = await forgetter.person(
        user_id=None if body.user_id is None else whole_number(str(body.user_id), "user_id"),
        name=body.name,
        bot_id=None if body.bot_id is None else whole_number(str(body.bot_id), "bot_id"),
    )
    report = await (forgetter.look(person) if body.dry_run else forgetter.forget(person, who=who))
    return report_view(report, is_dry=body.dry_run)
