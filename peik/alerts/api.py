"""Alerts over the API: what goes on, what was sent last, and one that is sent to see whether anybody receives it."""

from typing import TYPE_CHECKING, Annotated

import msgspec

from peik.alerts.matters import MatterKind, SentAlert
from peik.alerts.rules import BY_NAME
from peik.core.units import rfc3339
from peik.monitoring.values import Ongoing
from peik.web.access import Caller
from peik.web.operations import Id, Moment, operation

if TYPE_CHECKING:
    from peik.alerts.service import AlertService
    from peik.monitoring.overview import Overview

_Rule = Annotated[str, msgspec.Meta(description=f"One of docs/reference/alerts.md: {', '.join(BY_NAME)}.")]
_KINDS = [str(kind) for kind in MatterKind if kind is not MatterKind.TEST]


class OngoingAlertAnswer(msgspec.Struct, frozen=True, kw_only=True):
    rule: _Rule
    node: str
    bot_id: Id | None
    text: str
    since: Moment
    last: Annotated[Moment, msgspec.Meta(description="When it was heard of last.")]
    count: int
    todo: Annotated[str | None, msgspec.Meta(description="What to do, in one line.")]
    runbook: Annotated[str | None, msgspec.Meta(description="Where the docs say more.")]


class SentAlertAnswer(msgspec.Struct, frozen=True, kw_only=True):
    at: Moment
    kind: Annotated[str, msgspec.Meta(extra_json_schema={"enum": _KINDS})]
    rule: _Rule
    node: str
    bot_id: Id | None
    text: str


class AlertsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    ongoing: list[OngoingAlertAnswer]
    last: list[SentAlertAnswer]


class AlertWayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    way: Annotated[str, msgspec.Meta(description="A chat, or the kind of an address.")]
    is_done: Annotated[bool, msgspec.Meta(description="It was taken there; of a chat: the letter is in the outbox.")]
    why: str | None


class AlertTestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    ways: list[AlertWayAnswer]


class AlertApi:
    def __init__(self, alerts: "AlertService", overview: "Overview") -> None:
        self._alerts = alerts
        self._overview = overview

    @operation("GET", "/v1/alerts", name="listAlerts", tag="health", scope="read", problems=(503,))
    async def list_alerts(self, caller: Caller) -> AlertsAnswer:
        """Troubles that go on, on all nodes, and the last hundred alerts that were told, the newest first."""
        view = await self._overview.now()
        return AlertsAnswer(
            ongoing=[_ongoing(one) for one in view.alerts if _may_see(caller, one.bot_id)],
            last=[_sent(one) for one in await self._alerts.last() if _may_see(caller, one.bot_id)],
        )

    @operation(
        "POST", "/v1/alerts/test", name="testAlerts", tag="health", scope="admin", is_for_all=True, problems=(403, 503)
    )
    async def test_alerts(self, caller: Caller) -> AlertTestAnswer:
        """Send one alert by every way: to each chat of PEIK_ADMIN_CHATS, and to each address of PEIK_ALERT_URLS."""
        lines = await self._alerts.test()
        return AlertTestAnswer(ways=[AlertWayAnswer(way=one.way, is_done=one.is_done, why=one.why) for one in lines])


def _ongoing(one: Ongoing) -> OngoingAlertAnswer:
    rule = BY_NAME.get(one.name)  # None, of a rule that a node of another version has
    return OngoingAlertAnswer(
        rule=one.name,
        node=one.node,
        bot_id=str(one.bot_id) if one.bot_id else None,
        text=one.text,
        since=rfc3339(one.since_ms),
        last=rfc3339(one.last_ms),
        count=one.count,
        todo=None if rule is None else rule.todo,
        runbook=None if rule is None else rule.runbook,
    )


def _sent(one: SentAlert) -> SentAlertAnswer:
    return SentAlertAnswer(
        at=rfc3339(one.at_ms),
        kind=one.kind,
        rule=one.rule,
        node=one.node,
        bot_id=str(one.bot_id) if one.bot_id else None,
        text=one.text,
    )


def _may_see(caller: Caller, bot_id: int) -> bool:
    """What concerns Peik as a whole is not for keys of some bots."""
    return caller.key.bot_ids is None or (bot_id != 0 and caller.key.serves(bot_id))
