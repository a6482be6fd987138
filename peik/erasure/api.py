"""Erasing a person over the API. The answer says what went, place by place, and which backups still hold it."""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from peik.admin.sign_ins import who_of
from peik.core.units import rfc3339
from peik.web.access import Caller
from peik.web.operations import Count, Moment, operation
from peik.web.parse import whole_number

if TYPE_CHECKING:
    from peik.erasure.service import Eraser, Report


FORGET_S = 3600.0  # all that was ever sent to somebody is looked for; if the caller leaves, Peik goes on with it


class ForgetEverywhereBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/forget`: by Telegram's user id, or by the caller's own name of a linked user."""

    user_id: int | str | None = None
    name: str | None = None
    bot_id: int | str | None = None
    dry_run: bool = False


class ErasedPlaceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    removed: Count
    blanked: Count
    left: Count


class HoldingBackupAnswer(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    made_at: Moment
    goes_at: Moment | None


class ForgottenPersonAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Without the person: `mark` is a keyed hash, the same as in the audit log."""

    id: Annotated[str | None, msgspec.Meta(description="Of the act, as in the audit log; null of a dry run.")]
    mark: Annotated[str, msgspec.Meta(description="A keyed hash of the person: the same one has the same.")]
    dry_run: bool
    state: Annotated[
        Literal["done", "going_on", "dry_run"],
        msgspec.Meta(
            description="going_on: something is in use just now, or the last look is to come. Peik ends it by itself."
        ),
    ]
    count: Annotated[Count, msgspec.Meta(description="Records that were removed or blanked, or would be.")]
    places: Annotated[
        dict[str, ErasedPlaceAnswer],
        msgspec.Meta(
            description="By place (docs/forget.md): removed, blanked, and left for later because it is in use."
        ),
    ]
    notes: Annotated[list[str], msgspec.Meta(description="What remains in files of a server, and for how long.")]
    backups: Annotated[
        list[HoldingBackupAnswer],
        msgspec.Meta(description="Backups that still hold what was removed. They are never changed."),
    ]


class ErasureApi:
    def __init__(self, eraser: "Eraser") -> None:
        self._eraser = eraser

    @operation(
        "POST",
        "/v1/forget",
        name="forgetEverywhere",
        tag="forget",
        scope="admin",
        is_for_all=True,
        problems=(403, 404, 413, 422, 503),
        example={"user_id": "123456789", "dry_run": True},
        body_bytes_max=4 * 1024,
    )
    async def forget(self, caller: Caller, body: ForgetEverywhereBody) -> ForgottenPersonAnswer:
        """Remove a person's data everywhere; with dry_run, say what would go."""
        person = await self._eraser.person(
            user_id=None if body.user_id is None else whole_number(str(body.user_id), "user_id"),
            name=body.name,
            bot_id=None if body.bot_id is None else whole_number(str(body.bot_id), "bot_id"),
        )
        if body.dry_run:
            report = await self._eraser.look(person)
        else:
            report = await self._eraser.forget(person, who=who_of(caller.key))
        return _answer(report, is_dry=body.dry_run)


def _answer(report: "Report", *, is_dry: bool) -> ForgottenPersonAnswer:
    return ForgottenPersonAnswer(
        id=report.id,
        mark=report.mark,
        dry_run=is_dry,
        state="dry_run" if is_dry else "done" if report.is_over else "going_on",
        count=report.count,
        places={
            place: ErasedPlaceAnswer(removed=gone.removed, blanked=gone.blanked, left=gone.left)
            for place, gone in report.found.items()
        },
        notes=list(report.notes),
        backups=[
            HoldingBackupAnswer(
                path=one.path,
                made_at=rfc3339(one.made_at_ms),
                goes_at=None if one.goes_at_ms is None else rfc3339(one.goes_at_ms),
            )
            for one in report.backups
        ],
    )
