"""REST: alerts. What goes on, what was told last, and one that is sent to see whether anybody hears it."""

from starlette.requests import Request
from starlette.responses import Response

from peik.alerts.matters import MatterKind, SentAlert
from peik.alerts.rules import BY_NAME
from peik.alerts.service import Alerts
from peik.monitoring.overview import Overview
from peik.monitoring.values import Ongoing
from peik.outbox.answers import rfc3339
from peik.web.access import Access, Caller
from peik.web.openapi import ID, TIME, Json, Operation, nullable, shape
from peik.web.responses import Route, json_response


class AlertRoutes:
    def __init__(self, alerts: Alerts, overview: Overview, access: Access) -> None:
        self._alerts = alerts
        self._overview = overview
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/alerts", self.get_alerts, "listAlerts", "health"),
            ("POST", "/v1/alerts/test", self.post_test, "testAlerts", "health"),
        )

    async def get_alerts(self, request: Request) -> Response:
        """Troubles that go on, on all nodes, and the last hundred alerts that were told, the newest first."""
        caller = self._access.admit(request, "read")
        view = await self._overview.now()
        ongoing = [ongoing_view(one) for one in view.alerts if _may_see(caller, one.bot_id)]
        last = [told_view(one) for one in await self._alerts.last() if _may_see(caller, one.bot_id)]
        return json_response({"ongoing": ongoing, "last": last})

    async def post_test(self, request: Request) -> Response:
        """Send one alert by every way: to each chat of PEIK_ADMIN_CHATS, and to each address of PEIK_ALERT_URLS."""
        self._access.admit(request, "admin").must_serve_all()
        lines = await self._alerts.test()
        return json_response({"ways": [{"way": one.way, "is_done": one.is_done, "why": one.why} for one in lines]})


def ongoing_view(one: Ongoing) -> dict[str, object]:
    return {
        "rule": one.name,
        "node": one.node,
        "bot_id": str(one.bot_id) if one.bot_id else None,
        "text": one.text,
        "since": rfc3339(one.since_ms),
        "last": rfc3339(one.last_ms),
        "count": one.count,
        **_help(one.name),
    }


def told_view(one: SentAlert) -> dict[str, object]:
    return {
        "at": rfc3339(one.at_ms),
        "kind": one.kind,
        "rule": one.rule,
        "node": one.node,
        "bot_id": str(one.bot_id) if one.bot_id else None,
        "text": one.text,
    }


def _help(name: str) -> dict[str, object]:
    """None, of a rule that a node of another version has."""
    rule = BY_NAME.get(name)
    return {"todo": None if rule is None else rule.todo, "runbook": None if rule is None else rule.runbook}


def _may_see(caller: Caller, bot_id: int) -> bool:
    """What concerns Peik as a whole is not for keys of some bots."""
    return caller.key.bot_ids is None or (bot_id != 0 and caller.sees(bot_id))


# The alerts' part of the OpenAPI document.


_TEXT: Json = {"type": "string"}
_RULE: Json = _TEXT | {"description": f"One of docs/reference/alerts.md: {', '.join(BY_NAME)}."}

ALERT_SCHEMAS: Json = {
    "Alerts": shape(
        ongoing={
            "type": "array",
            "items": shape(
                rule=_RULE,
                node=_TEXT,
                bot_id=nullable(ID),
                text=_TEXT,
                since=TIME,
                last=TIME | {"description": "When it was heard of last."},
                count={"type": "integer"},
                todo=nullable(_TEXT) | {"description": "What to do, in one line."},
                runbook=nullable(_TEXT) | {"description": "Where the docs say more."},
            ),
        },
        last={
            "type": "array",
            "items": shape(
                at=TIME,
                kind={"type": "string", "enum": [str(kind) for kind in MatterKind if kind is not MatterKind.TEST]},
                rule=_RULE,
                node=_TEXT,
                bot_id=nullable(ID),
                text=_TEXT,
            ),
        },
    ),
    "AlertTest": shape(
        ways={
            "type": "array",
            "items": shape(
                way=_TEXT | {"description": "A chat, or the kind of an address."},
                is_done={
                    "type": "boolean",
                    "description": "It was taken there; of a chat: the letter is in the outbox.",
                },
                why=nullable(_TEXT),
            ),
        }
    ),
}

ALERT_OPERATIONS: dict[str, Operation] = {
    "listAlerts": Operation(answers={200: "Alerts"}, problems=(503,)),
    "testAlerts": Operation(answers={200: "AlertTest"}, problems=(403, 503)),
}
